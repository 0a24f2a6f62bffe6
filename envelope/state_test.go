package envelope_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/envelope"
)

// Other services, and messages in flight during an upgrade, rely on the keys
// and on the form of each value.
func TestWrittenFormIsFrozen(t *testing.T) {
	t.Parallel()
	full, ok := fullState().Pairs(0)
	if !ok {
		t.Error("without a budget everything fits")
	}
	first, _ := envelope.State{}.Pairs(0)
	trimmed, _ := fullState().Trimmed().Pairs(0)
	golden(t, "state.golden", "# every field\n"+format(full)+
		"\n# the zero state\n"+format(first)+
		"\n# trimmed\n"+format(trimmed)+
		"\n# left out in this order\n"+strings.Join(envelope.Optional(), "\n")+"\n")
}

// A field that somebody adds to State, and forgets to write, is lost between
// two hops.
func TestEveryFieldSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	want := fullState()
	for v, i := reflect.ValueOf(want), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("fullState leaves %s zero, so it proves nothing about it", v.Type().Field(i).Name)
		}
	}
	pairs, _ := want.Pairs(0)
	got := envelope.Parse(headersOf(pairs), now)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
	written := map[string]bool{}
	for _, p := range pairs {
		if written[p.Key] {
			t.Errorf("%s is written twice", p.Key)
		}
		written[p.Key] = true
	}
}

// K7, and K6: attempts are text with bounds. A producer who forges state can
// neither pause a consumer nor break a counter.
func TestForgedCountersAndDueTimesAreClamped(t *testing.T) {
	t.Parallel()
	due := now.Add(time.Hour).Format(time.RFC3339Nano)
	for _, tc := range []struct {
		attempt string
		want    int
		dueNow  bool
	}{
		{"", 1, true},
		{"-1", 1, true},
		{"0", 1, true},
		{"abc", 1, true},
		{"1.5", 1, true},
		{" 3", 1, true},
		{"0x10", 1, true},
		{"9223372036854775808", 1, true}, // 2^63
		{"99999999999999999999999999", 1, true},
		{"-9223372036854775809", 1, true},
		{"999999999999", envelope.MaxCount, false},
		{"9223372036854775807", envelope.MaxCount, false},
		{"1000001", envelope.MaxCount, false},
		{"1", 1, false},
		{"127", 127, false},
		{"128", 128, false},
		{"256", 256, false},
		{"300", 300, false},
	} {
		t.Run(tc.attempt, func(t *testing.T) {
			t.Parallel()
			// The order of headers makes no difference.
			for _, headers := range [][]envelope.Header{
				{header(envelope.KeyAttempt, tc.attempt), header(envelope.KeyDueAt, due)},
				{header(envelope.KeyDueAt, due), header(envelope.KeyAttempt, tc.attempt)},
			} {
				got := envelope.Parse(headers, now)
				if got.Attempt != tc.want {
					t.Errorf("attempt = %d, want %d", got.Attempt, tc.want)
				}
				if got.DueAt.IsZero() != tc.dueNow {
					t.Errorf("due at %v, want due now: %v", got.DueAt, tc.dueNow)
				}
			}
			others := envelope.Parse([]envelope.Header{
				header(envelope.KeyHops, tc.attempt),
				header(envelope.KeyParkChecks, tc.attempt),
				header(envelope.KeyReplayCount, tc.attempt),
			}, now)
			want := tc.want
			if tc.dueNow {
				want = 0
			}
			if others.Hops != want || others.ParkChecks != want || others.ReplayCount != want {
				t.Errorf("hops, park checks, replays = %d, %d, %d, want %d",
					others.Hops, others.ParkChecks, others.ReplayCount, want)
			}
		})
	}
}

// K7: the times.
func TestForgedTimesAreClamped(t *testing.T) {
	t.Parallel()
	parse := func(key, value string) envelope.State {
		return envelope.Parse([]envelope.Header{header(envelope.KeyAttempt, "2"), header(key, value)}, now)
	}
	latest := now.Add(envelope.MaxDueAhead)
	for value, want := range map[string]time.Time{
		"9999-12-31T23:59:59.999999999Z": latest,
		"9999-12-31T23:59:59-14:00":      {}, // year 10000 in UTC
		"2026-03-08T12:00:00.000000001Z": latest,
		"2026-03-08T12:00:00.000000000Z": latest,
		"2026-03-08T11:59:59.999999999Z": latest.Add(-1),
		"0001-01-01T00:00:00Z":           {},
		"0000-01-01T00:00:00Z":           {},
		"2026-03-01T11:00:00Z":           now.Add(-time.Hour),
		"1772362800":                     {},
		"2026-03-01":                     {},
		"tomorrow":                       {},
		"":                               {},
	} {
		if got := parse(envelope.KeyDueAt, value).DueAt; !got.Equal(want) {
			t.Errorf("due %q: got %v, want %v", value, got, want)
		}
	}
	// A message parked in the future would never reach its deadline.
	future := "2031-01-01T00:00:00Z"
	if got := parse(envelope.KeyParkedAt, future).ParkedAt; !got.Equal(now) {
		t.Errorf("parked at %v, want %v", got, now)
	}
	if got := parse(envelope.KeyFirstAttemptAt, future).FirstAttemptAt; !got.Equal(now) {
		t.Errorf("first attempt at %v, want %v", got, now)
	}
}

func TestTimesAreReadInEveryFormOfRFC3339(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 8, 7, 0, time.UTC)
	for value, want := range map[string]time.Time{
		"2026-03-01T09:08:07Z":                            at,
		"2026-03-01T09:08:07.5Z":                          at.Add(500 * time.Millisecond),
		"2026-03-01T09:08:07.123456789Z":                  at.Add(123456789),
		"2026-03-01T09:08:07.12345678999999999999999999Z": at.Add(123456789),
		"2026-03-01T10:08:07.25+01:00":                    at.Add(250 * time.Millisecond),
		"2026-03-01t09:08:07z":                            at,
	} {
		got := envelope.Parse([]envelope.Header{header(envelope.KeySourceTimestamp, value)}, now).Source.Timestamp
		if !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

func TestTimesAreWrittenInUTCWithNineDecimals(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", -3*3600)
	pairs, _ := envelope.State{
		FirstAttemptAt: time.Date(2026, 3, 1, 9, 0, 0, 0, zone),
		DueAt:          time.Date(20260, 1, 1, 0, 0, 0, 0, zone), // cannot be written
	}.Pairs(0)
	want := []envelope.Pair{
		{Key: envelope.KeyStateVersion, Value: "1"},
		{Key: envelope.KeyAttempt, Value: "1"},
		{Key: envelope.KeyFirstAttemptAt, Value: "2026-03-01T12:00:00.000000000Z"},
	}
	if diff := cmp.Diff(want, pairs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnreadablePositionIsAbsentNotInvented(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "-1", "x", "9223372036854775808", "1e3"} {
		got := envelope.Parse([]envelope.Header{
			header(envelope.KeySourcePartition, value),
			header(envelope.KeySourceOffset, value),
		}, now)
		if got.Source.Partition != nil || got.Source.Offset != nil {
			t.Errorf("%q gives partition %v and offset %v", value, got.Source.Partition, got.Source.Offset)
		}
	}
	if got := envelope.Parse([]envelope.Header{header(envelope.KeySourcePartition, "2147483648")}, now); got.Source.Partition != nil {
		t.Errorf("partition above 32 bits gives %d", *got.Source.Partition)
	}
	// Position 0 of partition 0 is a position.
	pairs, _ := envelope.State{Source: envelope.Position{Partition: new(int32), Offset: new(int64)}}.Pairs(0)
	got := envelope.Parse(headersOf(pairs), now)
	if got.Source.Partition == nil || got.Source.Offset == nil {
		t.Error("partition 0, offset 0 got lost")
	}
}

func TestLastValueWinsAndCaseDoesNotMatter(t *testing.T) {
	t.Parallel()
	got := envelope.Parse([]envelope.Header{
		header("SPILLWAY-ATTEMPT", "9"),
		header("Spillway-Handler", "one"),
		header("spillway-attempt", "3"),
		header("spillway-Handler", "two"),
		header("spillway-unheard-of", "x"),
		header("attempt", "77"),
	}, now)
	if got.Attempt != 3 || got.Handler != "two" {
		t.Errorf("got attempt %d, handler %q", got.Attempt, got.Handler)
	}
}

func TestNoStateIsAFirstDelivery(t *testing.T) {
	t.Parallel()
	want := envelope.State{Attempt: 1}
	for name, headers := range map[string][]envelope.Header{
		"no headers":    nil,
		"no own":        {header("x", "y")},
		"unknown own":   {header("spillway-", "y"), header("spillway-x", "")},
		"nil values":    {{Key: envelope.KeyAttempt}, {Key: envelope.KeyDroppedHeaders}, {Key: envelope.KeyDueAt}},
		"other version": {header(envelope.KeyStateVersion, "99")},
	} {
		if diff := cmp.Diff(want, envelope.Parse(headers, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTextsAreBoundedAndPrintable(t *testing.T) {
	t.Parallel()
	s := envelope.State{
		Message:      "a\x00b\x1b[31m\tc\r\nd\u0085e\uffff\xff",
		Handler:      "bill\n\tor\u007fder\xc3",
		ReplayReason: strings.Repeat("é", envelope.MaxTextRunes+1),
	}
	pairs, _ := s.Pairs(0)
	got := envelope.Parse(headersOf(pairs), now)
	want := envelope.State{
		Attempt:      1,
		Message:      "a\ufffdb\ufffd[31m\tc\r\nd\ufffde\ufffd\ufffd",
		Handler:      "bill\ufffd\ufffdor\ufffdder\ufffd",
		ReplayReason: strings.Repeat("é", envelope.MaxTextRunes),
		Truncated:    true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Reading bounds them as well: who wrote them is not known.
	huge := strings.Repeat("日", 1<<20)
	read := envelope.Parse([]envelope.Header{
		header(envelope.KeyErrorMessage, huge),
		header(envelope.KeyConsumerGroup, huge),
		header(envelope.KeyDroppedHeaders, `["`+huge+`"]`),
	}, now)
	if utf8.RuneCountInString(read.Message) != envelope.MaxErrorRunes ||
		utf8.RuneCountInString(read.ConsumerGroup) != envelope.MaxTextRunes ||
		read.DroppedHeaders != nil || !read.Truncated {
		t.Errorf("read %d and %d runes, %d names, truncated %v", utf8.RuneCountInString(read.Message),
			utf8.RuneCountInString(read.ConsumerGroup), len(read.DroppedHeaders), read.Truncated)
	}
}

func TestManyDroppedHeadersAreBounded(t *testing.T) {
	t.Parallel()
	var s envelope.State
	for i := range 5000 {
		s.DroppedHeaders = append(s.DroppedHeaders, fmt.Sprintf("<secret>\n%d", i))
	}
	pairs, _ := s.Pairs(0)
	if size := sizeOf(pairs); size > 3000 {
		t.Errorf("written in %d bytes", size)
	}
	got := envelope.Parse(headersOf(pairs), now)
	if n := len(got.DroppedHeaders); n < 50 || got.DroppedHeaders[0] != "<secret>\ufffd0" || !got.Truncated {
		t.Errorf("kept %d names, truncated %v", n, got.Truncated)
	}
}

// O19: all metadata together has a budget. The error text gives way first,
// then optional keys in their order, and truncated says so.
func TestShrinkingFollowsItsOrder(t *testing.T) {
	t.Parallel()
	s := fullState()
	s.Message = strings.Repeat("ü", envelope.MaxErrorRunes)
	s.Truncated = false
	all, _ := s.Pairs(0)
	essential, _ := s.Trimmed().Pairs(0)
	lastKeys := len(all) + 1
	var dropped []string
	for budget := sizeOf(all); budget >= sizeOf(essential); budget-- {
		pairs, ok := s.Pairs(budget)
		if !ok || sizeOf(pairs) > budget {
			t.Fatalf("budget %d: ok %v, size %d", budget, ok, sizeOf(pairs))
		}
		got := envelope.Parse(headersOf(pairs), now)
		if !utf8.ValidString(got.Message) || strings.ContainsRune(got.Message, utf8.RuneError) {
			t.Fatalf("budget %d: the error text was cut inside a rune", budget)
		}
		if got.Truncated != (budget < sizeOf(all)) {
			t.Fatalf("budget %d: truncated %v", budget, got.Truncated)
		}
		if len(pairs) < lastKeys && budget < sizeOf(all) {
			dropped = dropped[:0]
			for _, p := range all {
				if !slices.ContainsFunc(pairs, func(q envelope.Pair) bool { return q.Key == p.Key }) {
					dropped = append(dropped, p.Key)
				}
			}
			// What is gone is always a head of the table.
			head := envelope.Optional()[:len(dropped)]
			if !slices.Equal(slices.Sorted(slices.Values(head)), slices.Sorted(slices.Values(dropped))) {
				t.Fatalf("budget %d: gone are %v, want %v", budget, dropped, head)
			}
			if len(dropped) > 0 && len(got.Message) > 64 {
				t.Fatalf("budget %d: keys went before the error text", budget)
			}
			lastKeys = len(pairs)
		}
	}
	if len(dropped) != len(envelope.Optional()) {
		t.Errorf("at the end %d of %d optional keys are gone", len(dropped), len(envelope.Optional()))
	}
	pairs, ok := s.Pairs(sizeOf(essential) - 1)
	if ok {
		t.Error("essential keys over the budget are reported as fitting")
	}
	if diff := cmp.Diff(essential, pairs); diff != "" {
		t.Errorf("over budget the essential keys are still returned (-want +got):\n%s", diff)
	}
}

// The keys that decisions, lineage and ownership rest on.
func TestEssentialKeysAreNeverOptional(t *testing.T) {
	t.Parallel()
	optional := envelope.Optional()
	for _, key := range []string{
		envelope.KeyStateVersion, envelope.KeyAttempt, envelope.KeyFirstAttemptAt, envelope.KeyDueAt, envelope.KeyHops,
		envelope.KeySourceTopic, envelope.KeySourcePartition, envelope.KeySourceOffset, envelope.KeySourceTimestamp,
		envelope.KeyConsumerGroup, envelope.KeyParkedAt, envelope.KeyDeadLetterID, envelope.KeyDeadLetterReason,
		envelope.KeyReplayID, envelope.KeyReplayOf, envelope.KeyReplayReason, envelope.KeyReplayCount,
		envelope.KeyErrorClass, envelope.KeyTruncated,
	} {
		if slices.Contains(optional, key) {
			t.Errorf("%s may be left out", key)
		}
	}
	s := fullState()
	if got := s.Trimmed(); got.Class != s.Class || got.Message != "" || !got.Truncated || s.Message == "" {
		t.Errorf("trimmed: class %q, message %q, truncated %v; the original's message %q", got.Class, got.Message, got.Truncated, s.Message)
	}
}

// K3: nothing accumulates. A message that has hopped 200 times has the same
// keys as one that has hopped twice, and only its counters have more digits.
func TestSizeDoesNotGrowWithHops(t *testing.T) {
	t.Parallel()
	headers := []envelope.Header{header("content-type", "application/json"), header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}
	at := now
	sizes, keys := map[int]int{}, map[int][]string{}
	for hop := 1; hop <= 200; hop++ {
		s := envelope.Parse(headers, at)
		envelope.Keys{}.Describe(&s, headers)
		at = at.Add(time.Minute)
		s.Attempt++
		s.Hops++
		s.FirstAttemptAt = now
		s.ConsumerGroup, s.Handler = "billing", "bill-order"
		s.DueAt = at.Add(time.Second)
		s.Message = s.Message + strings.Repeat("gateway says no; ", 40) // a handler that wraps what it got
		pairs, _ := s.Pairs(0)
		headers = append(slices.Clone(envelope.StripHeaders(headers)), headersOf(pairs)...)
		for _, h := range headers {
			sizes[hop] += len(h.Key) + len(h.Value)
			keys[hop] = append(keys[hop], h.Key)
		}
	}
	if diff := cmp.Diff(keys[2], keys[200]); diff != "" {
		t.Errorf("keys at hop 2 and 200 (-2 +200):\n%s", diff)
	}
	digits := len("201") - len("3") + len("200") - len("2")
	if got := sizes[200] - sizes[2]; got != digits {
		t.Errorf("grew by %d bytes from hop 2 to 200, want only the %d digits of the counters", got, digits)
	}
}

// K24: the trace stays one, through retries and into the dead letter.
func TestOneTraceparentKeepsItsTraceID(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	headers := []envelope.Header{header("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")}
	for attempt := 2; attempt <= 3; attempt++ {
		s := envelope.Parse(headers, now)
		envelope.Keys{}.Describe(&s, headers)
		s.Attempt = attempt
		pairs, _ := s.Pairs(0)
		headers = append(slices.Clone(envelope.StripHeaders(headers)), headersOf(pairs)...)
	}
	s := envelope.Parse(headers, now)
	dead := envelope.FromState(s, "1", nil, headers, nil)
	if s.Attempt != 3 || s.TraceID != trace || dead.TraceID != trace || envelope.TraceID(headers) != trace {
		t.Errorf("attempt %d: trace %q, dead letter %q", s.Attempt, s.TraceID, dead.TraceID)
	}
	n := 0
	for _, h := range headers {
		if h.Key == "traceparent" {
			n++
		}
	}
	if n != 1 || len(dead.FailedMessage.Headers) != 1 {
		t.Errorf("%d traceparents, %v in the dead letter", n, dead.FailedMessage.Headers)
	}
}

func TestStripKeepsTheInput(t *testing.T) {
	t.Parallel()
	type metadata map[string]string
	m := metadata{"a": "1", "spillway-attempt": "2", "SpillWay-X": "3", "spillwayish": "4", "Spillway": "5", "spillway-": "6"}
	before := maps.Clone(m)
	want := metadata{"a": "1", "spillwayish": "4", "Spillway": "5"}
	if diff := cmp.Diff(want, envelope.Strip(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, m); diff != "" {
		t.Errorf("Strip changed its input (-before +after):\n%s", diff)
	}

	h := []envelope.Header{header("a", "1"), header("SPILLWAY-DUE-AT", "x"), header("a", "2"), header("spillway-attempt", "3"), header("b", "")}
	hBefore := slices.Clone(h)
	if diff := cmp.Diff([]envelope.Header{header("a", "1"), header("a", "2"), header("b", "")}, envelope.StripHeaders(h)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(hBefore, h); diff != "" {
		t.Errorf("StripHeaders changed its input (-before +after):\n%s", diff)
	}
	if got := envelope.Strip(metadata(nil)); got != nil {
		t.Errorf("nil became %v", got)
	}
}

// The healthy path pays nothing: allocations are counted, so not in parallel.
func TestNothingToStripAllocatesNothing(t *testing.T) {
	m := map[string]string{"a": "1", "content-type": "application/json"}
	h := []envelope.Header{header("a", "1"), header("content-type", "application/json")}
	if n := testing.AllocsPerRun(100, func() {
		envelope.Strip(m)
		envelope.StripHeaders(h)
		if s := envelope.Parse(h, now); s.Attempt != 1 {
			t.Error("attempt", s.Attempt)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Invariant 10: state that leaked from another consumer is not honoured; and
// a name that cannot be written as it is must not make its own state foreign,
// or attempts would start at 1 for ever.
func TestBelongsToItsOwnConsumer(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"orders", "billing"}, {"or\nders", "bil\x00ling\xff"}, {strings.Repeat("ö", 2000), strings.Repeat("g", 2000)}} {
		topic, group := names[0], names[1]
		s := envelope.State{ConsumerGroup: group, Source: envelope.Position{Topic: topic}}
		pairs, _ := s.Pairs(0)
		got := envelope.Parse(headersOf(pairs), now)
		if !got.BelongsTo(topic, group) || !s.BelongsTo(topic, group) {
			t.Errorf("%.20q/%.20q does not recognise its own state", topic, group)
		}
		if got.BelongsTo(topic, "shipping") || got.BelongsTo("payments", group) || (envelope.State{}).BelongsTo(topic, group) {
			t.Errorf("%.20q/%.20q takes foreign state for its own", topic, group)
		}
	}
}
