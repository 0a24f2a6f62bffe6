package inventory_test

import (
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
