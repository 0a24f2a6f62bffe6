package envelope_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/envelope"
)

// checkState reports what no state that was read may have.
func checkState(t *testing.T, s envelope.State, now time.Time) {
	t.Helper()
	if s.Attempt < 1 || s.Attempt > envelope.MaxCount {
		t.Errorf("attempt %d", s.Attempt)
	}
	for name, n := range map[string]int{"hops": s.Hops, "park checks": s.ParkChecks, "replay count": s.ReplayCount} {
		if n < 0 || n > envelope.MaxCount {
			t.Errorf("%s %d", name, n)
		}
	}
	if s.DueAt.After(now.Add(envelope.MaxDueAhead)) || s.ParkedAt.After(now) || s.FirstAttemptAt.After(now) {
		t.Errorf("due at %v, parked at %v, first attempt at %v", s.DueAt, s.ParkedAt, s.FirstAttemptAt)
	}
	if s.Source.Partition != nil && *s.Source.Partition < 0 || s.Source.Offset != nil && *s.Source.Offset < 0 {
		t.Errorf("position %d/%d", *s.Source.Partition, *s.Source.Offset)
	}
	pairs, ok := s.Pairs(0)
	if !ok {
		t.Error("does not fit without a budget")
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		if seen[p.Key] || p.Value == "" || !utf8.ValidString(p.Value) || !envelope.IsOwn(p.Key) {
			t.Errorf("pair %q %q", p.Key, p.Value)
		}
		seen[p.Key] = true
		for _, r := range p.Value {
			if r < ' ' && (p.Key != envelope.KeyErrorMessage || r != '\t' && r != '\n' && r != '\r') {
				t.Errorf("%s holds %U", p.Key, r)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, value := range []string{"", "-1", "999999999999", "abc", "9223372036854775808", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00",
		"2026-03-01T12:00:00Z", "true", `["a","\u0000"]`, `[null]`, "\xff\x00\n", "3"} {
		f.Add("spillway-Attempt", []byte(value), envelope.KeyDueAt, []byte(value), int64(1772362800))
		f.Add(envelope.KeyParkedAt, []byte(value), envelope.KeySourceOffset, []byte(value), int64(0))
		f.Add(envelope.KeyDroppedHeaders, []byte(value), envelope.KeyErrorMessage, []byte(value), int64(-62135596800))
	}
	f.Fuzz(func(t *testing.T, key1 string, value1 []byte, key2 string, value2 []byte, unix int64) {
		now := time.Unix(unix&(1<<37-1), 0) // up to the year 6325
		headers := []envelope.Header{{Key: key1, Value: value1}, {Key: key2, Value: value2}}
		// Whatever the fuzzer makes of the two keys, each value meets each field.
		for _, p := range mustPairs(fullState()) {
			headers = append(headers, envelope.Header{Key: p.Key, Value: value1}, envelope.Header{Key: p.Key, Value: value2})
		}
		for _, hs := range [][]envelope.Header{headers, headers[:2], headers[:1]} {
			s := envelope.Parse(hs, now)
			checkState(t, s, now)
			again := envelope.Parse(headersOf(mustPairs(s)), now)
			if diff := cmp.Diff(s, again); diff != "" {
				t.Errorf("after a round trip (-want +got):\n%s", diff)
			}
		}
	})
}

func mustPairs(s envelope.State) []envelope.Pair {
	pairs, _ := s.Pairs(0)
	return pairs
}

func FuzzPairs(f *testing.F) {
	f.Add(4, 0, "orders", "billing", "gateway says no", "authorization", int64(1772362800), int64(7), 1000)
	f.Add(-1, 1<<62, "\xff", "", "\x00\n\t界", "<>&\u2028\"\\", int64(-1<<40), int64(-1), 1)
	f.Add(1, 2, "t", "g", string(bytes.Repeat([]byte("🙂"), 600)), "", int64(1<<40), int64(1<<62), 0)
	f.Fuzz(func(t *testing.T, attempt, hops int, topic, group, message, dropped string, unix, offset int64, budget int) {
		at := time.Unix(unix, unix&0xffffff).In(time.FixedZone("", int(unix%50000)))
		s := fullState()
		s.Attempt, s.Hops, s.ParkChecks, s.ReplayCount = attempt, hops, -hops, hops+1
		s.Source = envelope.Position{Topic: topic, Offset: &offset, Timestamp: at}
		s.ConsumerGroup, s.Message, s.Reference = group, message, message
		s.DroppedHeaders = []string{dropped, message}
		s.FirstAttemptAt, s.DueAt, s.DeadLetteredAt = at, at.Add(time.Minute), at

		pairs, ok := s.Pairs(budget)
		if size := sizeOf(pairs); ok && budget > 0 && size > budget {
			t.Errorf("%d bytes in a budget of %d", size, budget)
		}
		if !ok {
			minimal, _ := s.Trimmed().Pairs(0)
			if sizeOf(minimal) <= budget {
				t.Errorf("%d bytes would fit into %d", sizeOf(minimal), budget)
			}
			if len(pairs) != len(minimal) {
				t.Errorf("%d keys, of which %d are essential", len(pairs), len(minimal))
			}
		}
		// Everything is read back as it was written, but for the clamps of Parse.
		late := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		got := envelope.Parse(headersOf(pairs), late)
		checkState(t, got, late)
		again, _ := got.Pairs(0)
		if diff := cmp.Diff(pairs, again); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
		if !got.BelongsTo(topic, group) {
			t.Error("does not know its own consumer")
		}
		if id := envelope.DeadLetterID(s, message, []byte(topic)); len(id) != 52 {
			t.Errorf("id %q", id)
		}
	})
}

func FuzzCutRunes(f *testing.F) {
	f.Add("日本語", 2)
	f.Add("\xff\xfe", 1)
	f.Add("", -1)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		got, cut := envelope.CutRunes(in, limit)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > max(limit, 0) {
			t.Errorf("CutRunes(%q, %d) = %q", in, limit, got)
		}
		if want := utf8.RuneCountInString(in) > max(limit, 0); cut != want {
			t.Errorf("CutRunes(%q, %d): cut %v", in, limit, cut)
		}
		if !cut && utf8.ValidString(in) && got != in {
			t.Errorf("CutRunes(%q, %d) changed it to %q", in, limit, got)
		}
	})
}

func FuzzTraceID(f *testing.F) {
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x")
	f.Add("----")
	f.Fuzz(func(t *testing.T, v string) {
		got := envelope.TraceID([]envelope.Header{header("traceparent", v)})
		if got != "" && (len(got) != 32 || len(v) < 55 || v[3:35] != got) {
			t.Errorf("%q gives %q", v, got)
		}
	})
}

func FuzzDeadLetterJSON(f *testing.F) {
	f.Add("1", []byte("key"), []byte(`{"a":1}`), "h", []byte("v"), "int32", int64(1772362800), 3)
	f.Add("", []byte(nil), []byte("\xff"), "", []byte{}, "", int64(-1<<40), 0)
	f.Add("<&>", []byte("\u2028"), []byte(`"`), "dup", []byte("\x00\xc3"), "x", int64(0), 1<<20)
	f.Fuzz(func(t *testing.T, id string, key, payload []byte, name string, value []byte, kind string, unix int64, attempt int) {
		s := envelope.Parse(headersOf(mustPairs(envelope.State{
			Attempt: attempt, Handler: id, Message: string(payload), DeadLetteredAt: time.Unix(unix, unix&0xffff),
			DroppedHeaders: []string{name}, Source: envelope.Position{Offset: &unix}, ReplayCount: attempt,
		})), time.Unix(unix, 0))
		text := func(s string) string { s, _ = envelope.CutRunes(s, len(s)); return s }
		d := envelope.FromState(s, text(id), key, []envelope.Header{
			{Key: text(name), Value: value, Type: text(kind)}, {Key: text(name)},
		}, payload)
		encoded, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := envelope.DecodeDeadLetter(encoded)
		if err != nil {
			t.Fatalf("%v: %s", err, encoded)
		}
		if diff := cmp.Diff(d, got, exactBytes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if (got.FailedMessage.Payload == nil) != (payload == nil) || (got.FailedMessage.Key == nil) != (key == nil) {
			t.Errorf("nil and empty are mixed up: %s", encoded)
		}
	})
}

func FuzzDecodeDeadLetter(f *testing.F) {
	full, err := json.Marshal(fullDeadLetter())
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(full), ``, `null`, `[]`, `{}`, `{"payload":{}}`, `{"payload":"\ud800"}`, `{"payload":1e999,"attempts":1e999}`,
		`{"deadLetterId":null,"failedMessage":{"headers":{"a":[["b"]]}}}`, `{"deadLetterId":"","failedMessage":{"headers":[null,{"key":1}]}}`,
		`{"failedMessage":"x","failure":{"code":503,"attempts":"4"},"source":"orders"}`,
		`{"payload":"x","errorClass":"e","errorMessage":"m","consumerVersion":"1","traceId":"t","attempts":3,"firstAttemptAt":"2026-03-01T10:00:00Z","deadLetteredAt":"2026-03-01T11:00:00Z"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		d, err := envelope.DecodeDeadLetter(data)
		if !bytes.Equal(before, data) {
			t.Error("changed its input")
		}
		if err != nil {
			if diff := cmp.Diff(envelope.DeadLetter{}, d); diff != "" {
				t.Errorf("an error, and a dead letter: %s", diff)
			}
			return
		}
		// What was read can be written, and reads the same.
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := envelope.DecodeDeadLetter(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if diff := cmp.Diff(d, again, exactBytes); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
	})
}
