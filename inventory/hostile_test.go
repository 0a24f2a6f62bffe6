package inventory_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/inventory"
)

// Times that no calendar of a database or of JSON holds stop nothing (O18).
func TestCollectTakesImpossibleTimes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		b, s := newBench(t), open(t, url)
		times := []string{
			"0000-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
			"-0005-01-01T00:00:00Z", "12026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "yesterday", "",
		}
		for _, at := range times {
			publish(t, b, adapters.Record{ID: "m-" + at, Payload: []byte("{}"), Headers: []adapters.Header{
				{Key: "MT-Fault-Message", Value: []byte("boom")}, {Key: "MT-Fault-ExceptionType", Value: []byte("System.Exception")},
				{Key: "MT-Fault-Timestamp", Value: []byte(at)},
			}})
		}
		got, err := collect(t, s, b.process, inventory.CollectConfig{})
		want(t, "collect", got, err, int64(len(times)), inventory.Added{New: len(times)})
		if tr, err := s.Triage(t.Context(), inventory.TriageOptions{}); err != nil || tr.Messages != int64(len(times)) {
			t.Errorf("triage counts %d, %v", tr.Messages, err)
		}
	})
}

// A broker may hand out what a producer wrote as the time of a record.
func TestAddTakesImpossibleTimes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		var items []inventory.Item
		var records []inventory.Quarantined
		for _, at := range []time.Time{time.UnixMilli(1<<63 - 1), time.UnixMilli(-1 << 62), time.Unix(1<<60, 0), time.Unix(-1<<60, 0)} {
			it := letter(at.String(), "boom", at)
			it.At = at
			items = append(items, it)
			it = letter("none "+at.String(), "boom", time.Time{})
			it.DeadLetter.Failure.FirstAttemptAt, it.At = time.Time{}, at
			items = append(items, it)
			r := adapters.Record{ID: at.String()}
			r.Position.Timestamp = at
			records = append(records, inventory.Quarantined{Stream: dlq, Record: r})
		}
		added, err := s.Add(t.Context(), inventory.Batch{Items: items, Quarantine: records})
		if want := (inventory.Added{New: len(items), Quarantined: len(records)}); err != nil || added != want {
			t.Fatalf("added %+v, %v; want %+v", added, err, want)
		}
		if _, err := s.Triage(t.Context(), inventory.TriageOptions{}); err != nil {
			t.Error(err)
		}
		if q, err := s.Quarantine(t.Context(), 0); err != nil || len(q) != len(records) {
			t.Errorf("%d in the quarantine, %v", len(q), err)
		}
	})
}

func publish(t *testing.T, b *bench, records ...adapters.Record) {
	t.Helper()
	for _, r := range records {
		if err := b.broker.Publish(dlq, r); err != nil {
			t.Fatal(err)
		}
	}
}

// What one database or JSON has no form for is stored and found all the same, on
// both databases (O18).
func TestCollectTakesHostileRecords(t *testing.T) {
	t.Parallel()
	nul, broken := "a\x00b", "a\xff\xfe\xed\xa0\x80b"
	onBoth(t, func(t *testing.T, url string) {
		b, s := newBench(t), open(t, url)
		flat := func(text string) []byte {
			return []byte(`{"payload":{},"errorClass":"` + text + `","errorMessage":"` + text + `","consumerVersion":"` + text + `","traceId":"` + text + `","deadLetteredAt":"2026-01-02T03:04:05Z"}`)
		}
		var many []adapters.Header
		for i := range 5000 {
			many = append(many, adapters.Header{Key: fmt.Sprint("h", i), Value: []byte("v")})
		}
		thrown := func(text string) []adapters.Header {
			return []adapters.Header{{Key: text, Value: []byte(text)}, {Key: "x-exception-message", Value: []byte(text)}, {Key: "x-exception-stacktrace", Value: []byte(text)},
				{Key: "x-original-exchange", Value: []byte(text)}, {Key: "x-original-routingKey", Value: []byte(text)}}
		}
		records := []adapters.Record{
			{ID: nul, Key: []byte(nul), Payload: []byte(nul), Headers: thrown(nul)},
			{ID: broken, Key: []byte(broken), Payload: []byte(broken), Headers: thrown(broken)},
			{ID: "flat nul", Payload: flat(`a\u0000b`)},
			{ID: "flat raw", Payload: flat(nul)},
			{ID: "flat surrogate", Payload: flat(`\ud800x\udfff`)},
			{ID: "flat broken", Payload: flat(broken)},
			{ID: "many", Headers: many},
			{ID: "long name", Headers: []adapters.Header{{Key: strings.Repeat("k", 1<<20), Value: []byte(strings.Repeat("v", 1<<20))}}},
			{ID: "deep", Payload: []byte(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))},
			{ID: "deep object", Payload: []byte(strings.Repeat(`{"failedMessage":`, 50_000) + "1" + strings.Repeat("}", 50_000))},
			{ID: "huge number", Payload: []byte(`{"failedMessage":{"payload":1e999999999},"failure":{"message":"x","attempts":` + strings.Repeat("9", 5000) + `,"failedAt":1e400}}`)},
			{ID: strings.Repeat("i", 70_000)},
			{ID: "\u202e\x1b[2J"},
			{},
		}
		publish(t, b, records...)
		got, err := collect(t, s, b.process, inventory.CollectConfig{})
		want(t, "collect", got, err, int64(len(records)), inventory.Added{New: len(records)})
		if tr, err := s.Triage(t.Context(), inventory.TriageOptions{}); err != nil || tr.Messages != int64(len(records)) {
			t.Errorf("triage counts %d, %v", tr.Messages, err)
		}
		all, err := s.DeadLetters(t.Context(), inventory.Filter{})
		if err != nil || len(all) != len(records) {
			t.Fatalf("%d are kept, %v", len(all), err)
		}
		for _, e := range all {
			for _, id := range []string{e.DeadLetter.ID, e.DeadLetter.FailedMessage.ID, string(e.DeadLetter.FailedMessage.Key)} {
				if id == "" {
					continue
				}
				if found, err := s.Find(t.Context(), id, 0); err != nil || len(found) != 1 {
					t.Errorf("%.50q: %d are found, %v", id, len(found), err)
				}
			}
		}
		for _, r := range records[:2] { // by what the producer calls it
			for _, id := range []string{r.ID, string(r.Key)} {
				if found, err := s.Find(t.Context(), id, 0); err != nil || len(found) != 1 || string(found[0].DeadLetter.FailedMessage.Payload) != string(r.Payload) {
					t.Errorf("%q: %d are found, %v", id, len(found), err)
				}
			}
		}
		for _, g := range groups(t, s) {
			closeGroup(t, s, inventory.Decision{Group: g.ID, Reason: inventory.ReasonFixedInCode, FixedIn: "v\x00\xff1", Note: nul + broken + "\n\x1b[31m", Author: broken + nul})
		}
	})
}

// A long id is looked up whole.
func TestFindLongIDs(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "i.db"))
	id := strings.Repeat("long", 100)
	add(t, s, letter(id, "boom", monday))
	for _, id := range []string{id, "m-" + id, "order-" + id, "k-" + id} {
		if found, err := s.Find(t.Context(), id, 0); err != nil || len(found) != 1 {
			t.Errorf("%.10s: %d are found, %v", id, len(found), err)
		}
	}
}

// A stream that is named twice has one reader, which tells copies apart.
func TestCollectReadsAStreamOnce(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), open(t, filepath.Join(t.TempDir(), "i.db"))
	publish(t, b, adapters.Record{Payload: []byte("x")}, adapters.Record{Payload: []byte("x")})
	p, err := s.Collect(t.Context(), b.process, inventory.CollectConfig{Streams: []string{dlq, dlq, dlq}})
	if len(p.Streams) != 1 {
		t.Errorf("read %v", p.Streams)
	}
	want(t, "collect", p.Total(), err, 2, inventory.Added{New: 2})
}

// A message that fails again after the decision about it is no copy of what was
// closed, though nothing else tells the two apart: somebody sent the original
// back. A record that was committed and comes again is one.
func TestFailingAgainAfterTheDecisionIsNoDuplicate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letter("a", "boom", ago(48*time.Hour)))
		g := groups(t, s)[0].ID
		for round := 1; round <= 3; round++ {
			closeGroup(t, s, inventory.Decision{Group: g, Reason: inventory.ReasonHandledByHand})
			if got := add(t, s, letter("a", "boom", ago(48*time.Hour))); got.New != 0 {
				t.Errorf("round %d: the record of before: %+v", round, got)
			}
			again := letter("a", "boom", time.Now())
			again.DeadLetter.Failure.FirstAttemptAt = time.Now()
			if got := add(t, s, again); got.New != 1 {
				t.Errorf("round %d: it failed again: %+v", round, got)
			}
			if got := add(t, s, again, again); got.New != 0 || got.Duplicates != 2 {
				t.Errorf("round %d: the same record again: %+v", round, got)
			}
			if got := groups(t, s)[0]; got.Total != int64(round+1) || got.Open != 1 {
				t.Errorf("round %d: %d, %d open", round, got.Total, got.Open)
			}
		}
		found, err := s.Find(t.Context(), "m-a", 0)
		if err != nil || len(found) != 4 {
			t.Errorf("%d are found, %v", len(found), err)
		}
	})
}
