package storm_test

import (
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/internal/storm"
)

func TestScriptIsAFunctionOfSeedAndNumber(t *testing.T) {
	t.Parallel()
	target, err := storm.NewTarget("memory")
	if err != nil {
		t.Fatal(err)
	}
	s, fates := storm.Script{Seed: 7, Messages: 5000}, map[storm.Fate]int{}
	other, moved := storm.Script{Seed: 8, Messages: 5000}, 0
	for n := range s.Messages {
		fates[s.Fate(n)]++
		if a, b := storm.Digest(s.Record(n, target)), storm.Digest(s.Record(n, target)); a != b {
			t.Fatalf("message %d is different each time", n)
		}
		if s.Fate(n) != other.Fate(n) {
			moved++
		}
		if back, ok := s.Number(s.ID(n)); back != n || !ok {
			t.Fatalf("message %d has the id %s, which is that of %d", n, s.ID(n), back)
		}
	}
	for _, f := range []storm.Fate{
		storm.Healthy, storm.Transient, storm.Exhausted, storm.Permanent, storm.Missing, storm.Waiting,
		storm.Panics, storm.Stumbles, storm.Slow, storm.Output,
	} {
		if fates[f] == 0 {
			t.Errorf("no message is %s", f)
		}
	}
	if fates[storm.Exits] != 1 {
		t.Errorf("%d messages end their process, want 1", fates[storm.Exits])
	}
	if moved == 0 {
		t.Error("another seed makes the same script")
	}
	for _, id := range []string{"", "storm-", "storm-5", "storm-0005000", "storm--000001", "other-0000001"} {
		if n, ok := s.Number(id); ok {
			t.Errorf("%q is taken for message %d", id, n)
		}
	}
}

func TestDigestCoversWhatMustNotChange(t *testing.T) {
	t.Parallel()
	record := func(change func(*adapters.Record)) string {
		r := adapters.Record{ID: "a", Key: []byte("k"), Payload: []byte("p"), Headers: []adapters.Header{
			{Key: "storm-a", Value: []byte("1")}, {Key: "storm-a", Value: []byte("2"), Type: "int64"},
		}}
		change(&r)
		return storm.Digest(r)
	}
	same := record(func(*adapters.Record) {})
	for name, change := range map[string]func(*adapters.Record){
		"id":      func(r *adapters.Record) { r.ID = "b" },
		"key":     func(r *adapters.Record) { r.Key = nil },
		"payload": func(r *adapters.Record) { r.Payload = []byte("q") },
		"value":   func(r *adapters.Record) { r.Headers[0].Value = []byte("3") },
		"type":    func(r *adapters.Record) { r.Headers[1].Type = "int32" },
		"repeat":  func(r *adapters.Record) { r.Headers = r.Headers[:1] },
	} {
		if record(change) == same {
			t.Errorf("the digest does not notice another %s", name)
		}
	}
	for name, change := range map[string]func(*adapters.Record){
		"state": func(r *adapters.Record) {
			r.Headers = append(r.Headers, adapters.Header{Key: "spillway-attempt", Value: []byte("2")})
		},
		"order": func(r *adapters.Record) { r.Headers[0], r.Headers[1] = r.Headers[1], r.Headers[0] },
	} {
		if record(change) != same {
			t.Errorf("the digest notices %s", name)
		}
	}
}
