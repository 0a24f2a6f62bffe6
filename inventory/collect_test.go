package inventory_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/inventory"
)

var billing = adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}

const dlq = "orders.billing.dlq"

// bench is a broker with dead letter streams, as its consumers see it and as
// the operator does.
type bench struct {
	*testing.T
	broker  *memory.Broker
	process adapters.Broker
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, broker: memory.New(memory.Config{})}
	b.process = b.open()
	if err := b.process.Ensure(t.Context(), billing); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.broker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) open() adapters.Broker {
	b.Helper()
	p, err := b.broker.Opener().Open(b.Context(), adapters.OpenParams{})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// fail dead-letters messages, as the chain does.
func (b *bench) fail(ids ...string) {
	b.Helper()
	for _, id := range ids {
		s := envelope.State{
			Broker: "memory", Attempt: 3, ConsumerGroup: "billing", Handler: "charge", ConsumerVersion: "1.8.2", Source: envelope.Position{Topic: "orders"},
			Class: failure.ClassValidation, Nature: failure.NaturePermanent, Message: "no field \"amount\"", Reason: "permanent",
			FirstAttemptAt: time.Now().Add(-time.Minute), DeadLetteredAt: time.Now(),
		}
		s.DeadLetterID = envelope.DeadLetterID(s, id, []byte(id))
		pairs, _ := s.Pairs(0)
		h := adapters.Handoff{Consumer: billing, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id, Payload: []byte(id)}, State: pairs}
		if err := b.process.Handoff(b.Context(), h); err != nil {
			b.Fatal(err)
		}
	}
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%d", prefix, i))
	}
	return ids
}

func collect(t *testing.T, s *inventory.Store, broker adapters.Broker, cfg inventory.CollectConfig) (inventory.StreamProgress, error) {
	t.Helper()
	cfg.Streams = append(cfg.Streams, dlq)
	cfg.Logger = slog.New(slog.DiscardHandler)
	p, err := s.Collect(t.Context(), broker, cfg)
	return p.Total(), err
}

func want(t *testing.T, what string, got inventory.StreamProgress, err error, read int64, added inventory.Added) {
	t.Helper()
	if err != nil || got.Read != read || got.Added != added {
		t.Errorf("%s: read %d, %+v, %v; want read %d, %+v", what, got.Read, got.Added, err, read, added)
	}
}

func TestCollectEmptiesTheStream(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), open(t, filepath.Join(t.TempDir(), "i.db"))
	b.fail(numbered("m", 25)...)
	var seen []int64
	got, err := collect(t, s, b.process, inventory.CollectConfig{Batch: 10, Author: "ana", Progress: func(p inventory.Progress) { seen = append(seen, p.Total().Read) }})
	want(t, "collect", got, err, 25, inventory.Added{New: 25})
	if got.Remaining != 0 || b.broker.Depth(dlq) != 0 {
		t.Errorf("%d remain, %d lie there", got.Remaining, b.broker.Depth(dlq))
	}
	if fmt.Sprint(seen) != "[10 20 25 25]" {
		t.Errorf("progress %v", seen)
	}
	found, err := s.Find(t.Context(), "m7", 0)
	if err != nil || len(found) != 1 || string(found[0].DeadLetter.FailedMessage.Payload) != "m7" || found[0].DeadLetter.Failure.Attempts != 3 {
		t.Errorf("found %+v, %v", found, err)
	}
	if a, err := s.Audit(t.Context(), dlq, 0); err != nil || len(a) != 1 || a[0].Author != "ana" || a[0].Total != 25 {
		t.Errorf("audit %+v, %v", a, err)
	}
	got, err = collect(t, s, b.process, inventory.CollectConfig{})
	want(t, "again", got, err, 0, inventory.Added{})
}

// A collection that goes on for weeks, or is killed, is in the audit meanwhile.
func TestCollectIsAuditedWhileItGoesOn(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), open(t, filepath.Join(t.TempDir(), "i.db"))
	b.fail(numbered("m", 25)...)
	got, err := collect(t, s, b.process, inventory.CollectConfig{Batch: 10, Author: "ana", AuditEvery: 1})
	want(t, "collect", got, err, 25, inventory.Added{New: 25})
	lines, err := s.Audit(t.Context(), dlq, 0)
	var totals []int64
	for _, l := range lines {
		totals = append(totals, l.Total)
	}
	if err != nil || fmt.Sprint(totals) != "[5 10 10]" {
		t.Errorf("audit %v, %v", totals, err)
	}
}

// O18: what is in no form that is known is a dead letter all the same: whole,
// of class unknown, and however many there are, in a group that tells where
// they lay.
func TestWhatIsUnknownIsOneGroup(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		b, s := newBench(t), open(t, url)
		for i := range 2000 {
			r := adapters.Record{ID: fmt.Sprint("bare", i), Key: []byte{0xfe}, Payload: []byte(fmt.Sprintf(`{"order":%d,"total":"12.50"}`, i)), Headers: []adapters.Header{{Key: "tenant", Value: []byte("acme")}}}
			if i%2 == 0 {
				r.Payload = []byte{byte(i), byte(i >> 8), 0xff}
			}
			if err := b.broker.Publish(dlq, r); err != nil {
				t.Fatal(err)
			}
		}
		b.fail("good")
		if err := b.broker.Publish(dlq, adapters.Record{ID: "says why", Payload: []byte(`{"order":7,"error":"no customer 7"}`)}); err != nil {
			t.Fatal(err)
		}
		got, err := collect(t, s, b.process, inventory.CollectConfig{})
		want(t, "collect", got, err, 2002, inventory.Added{New: 2002})
		if got.Unknown != 2001 {
			t.Errorf("%d are said to be unknown", got.Unknown)
		}
		list := groups(t, s)
		slices.SortFunc(list, func(a, b inventory.Group) int { return cmp.Compare(b.Total, a.Total) })
		if len(list) != 3 || list[0].Total != 2000 || list[0].Aggregate.Class != "unknown" || list[0].Signature != `no evidence of a failure: lay in stream "orders.billing.dlq"` {
			t.Errorf("groups %+v", list)
		}
		found, err := s.Find(t.Context(), "bare3", 0)
		if err != nil || len(found) != 1 {
			t.Fatalf("found %+v, %v", found, err)
		}
		d := found[0].DeadLetter
		if m := d.FailedMessage; string(m.Payload) != `{"order":3,"total":"12.50"}` || string(m.Key) != "\xfe" || len(m.Headers) != 1 || string(m.Headers[0].Value) != "acme" || d.Source.Topic != dlq {
			t.Errorf("found %+v", d)
		}
		if why, err := s.Find(t.Context(), "says why", 0); err != nil || len(why) != 1 || why[0].DeadLetter.Failure.Message != "no customer 7" {
			t.Errorf("found %+v, %v", why, err)
		}
		if n, err := s.Quarantined(t.Context()); err != nil || n != 0 {
			t.Errorf("%d in the quarantine, %v", n, err)
		}
	})
}

// O18: what the database never takes goes to its own list, and the rest goes on.
func TestCollectGoesOnAfterWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "i.db")
	s := open(t, path)
	run(t, path, `CREATE TRIGGER refuse BEFORE INSERT ON dead_letters WHEN CAST(NEW.payload AS TEXT) LIKE 'bad%' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	b.fail(append(numbered("bad", 3), numbered("good", 57)...)...)
	got, err := collect(t, s, b.process, inventory.CollectConfig{Batch: 50})
	want(t, "collect", got, err, 60, inventory.Added{New: 57, Quarantined: 3})
	all, err := s.Quarantine(t.Context(), 0)
	if err != nil || len(all) != 3 || !strings.Contains(all[0].Cause, "refused") || string(all[0].Record.Payload) != "bad2" {
		t.Errorf("%d in the quarantine, %v", len(all), err)
	}
}

// O34: a record is removed after it is safe, so a crash in between brings it
// again, and it counts once.
func TestCrashBetweenCommitAndAck(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), open(t, filepath.Join(t.TempDir(), "i.db"))
	b.fail(numbered("m", 20)...)
	stop := errors.New("killed")
	var batches int
	err := b.process.(adapters.BatchDrainer).DrainBatch(t.Context(), dlq, 5, func(ctx context.Context, records []adapters.Record) error {
		var items []inventory.Item
		for _, r := range records {
			d := envelope.FromState(envelope.Parse(r.Headers, time.Now()), r.ID, r.Key, r.Headers, r.Payload)
			items = append(items, inventory.Item{DeadLetter: d, Stream: dlq})
		}
		add(t, s, items...)
		if batches++; batches == 3 {
			return stop // committed, and not acknowledged
		}
		return nil
	})
	if !errors.Is(err, stop) || b.broker.Depth(dlq) != 10 {
		t.Fatalf("%v, %d left", err, b.broker.Depth(dlq))
	}
	got, err := collect(t, s, b.process, inventory.CollectConfig{})
	want(t, "after it", got, err, 10, inventory.Added{New: 5, Duplicates: 5})
	if g := groups(t, s); len(g) != 1 || g[0].Total != 20 || g[0].Aggregate.Count != 20 {
		t.Errorf("groups %+v", g)
	}
}

// dead is x-death of a message that was rejected.
func dead(count int) []adapters.Header {
	return []adapters.Header{{Key: "x-death", Type: "array", Value: fmt.Appendf(nil,
		`[{"count":%d,"exchange":"orders","queue":"orders_billing","reason":"rejected","time":{"$timestamp":"1796040000"}}]`, count)}}
}

// What RabbitMQ dead-letters may have no message id. It is known again after a
// crash by its body and its death. Copies that are equal in every byte count
// as often as there are any, and a message that was sent back and died again
// counts twice.
func TestRecordsWithoutMessageIDCountOnce(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), open(t, filepath.Join(t.TempDir(), "i.db"))
	publish := func(body string, count int) {
		if err := b.broker.Publish(dlq, adapters.Record{Payload: []byte(body), Headers: dead(count)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		publish(fmt.Sprint("order ", i), 1)
	}
	publish("order 3", 2)
	for range 5 {
		publish("beat", 1)
	}
	// Looking removes nothing, as a crash between commit and acknowledgement.
	for step, added := range []inventory.Added{{New: 16}, {Duplicates: 16}} {
		got, err := collect(t, s, b.process, inventory.CollectConfig{Peek: true, Batch: 4})
		want(t, fmt.Sprint("look ", step), got, err, 16, added)
	}
	got, err := collect(t, s, b.process, inventory.CollectConfig{Batch: 7})
	want(t, "collect", got, err, 16, inventory.Added{Duplicates: 16})
}

// In Follow a batch that failed comes again in the same run, and what is equal
// to what was there before does not.
func TestFollowCountsCopies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), open(t, filepath.Join(dir, "i.db"))
		beat := func() {
			if err := b.broker.Publish(dlq, adapters.Record{Payload: []byte("beat"), Headers: dead(1)}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan inventory.Progress)
		go func() {
			p, err := s.Collect(ctx, b.process, inventory.CollectConfig{Streams: []string{dlq}, Follow: true, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
			}
			done <- p
		}()
		for range 3 {
			beat()
			time.Sleep(time.Minute)
		}
		b.broker.Inject(memory.Fault{On: memory.Drain, ID: "last", Do: memory.Fail(errors.New("the broker is away"))})
		beat()
		if err := b.broker.Publish(dlq, adapters.Record{ID: "last"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		if got := (<-done).Total(); got.New != 5 || got.Duplicates > 1 {
			t.Errorf("%+v", got)
		}
	})
}

// An inventory that is down takes nothing from the broker.
func TestNothingIsRemovedThatWasNotCommitted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, err := inventory.Open(t.Context(), filepath.Join(t.TempDir(), "i.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.fail(numbered("m", 5)...)
	if _, err := collect(t, s, b.process, inventory.CollectConfig{}); err == nil {
		t.Error("no error")
	}
	if n := b.broker.Depth(dlq); n != 5 {
		t.Errorf("%d of 5 left", n)
	}
}

// O50: while the inventory is slow nothing fails and nothing piles up: the
// records stay with the broker, and it can be seen how many.
func TestSlowInventoryHoldsTheBrokerBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "i.db")
	s := open(t, path)
	b.fail(numbered("m", 50)...)
	other, err := raw(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	first := make(chan int64, 100)
	go func() {
		got, err := collect(t, s, b.process, inventory.CollectConfig{Batch: 10, Progress: func(p inventory.Progress) { first <- p.Total().Remaining }})
		want(t, "collect", got, err, 50, inventory.Added{New: 50})
		done <- nil
	}()
	// Whatever it does meanwhile, nothing leaves the broker.
	for range 100 {
		if n := b.broker.Depth(dlq); n != 50 {
			t.Fatalf("%d lie there, want 50", n)
		}
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	<-done
	if n := <-first; n != 40 {
		t.Errorf("after the first batch %d are said to remain, want 40", n)
	}
}

func TestFollowGoesOnUntilItIsStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), open(t, filepath.Join(dir, "i.db"))
		broken := errors.New("the broker is away")
		b.fail("a")
		b.broker.Inject(memory.Fault{On: memory.Drain, ID: "b", Do: memory.Fail(broken)})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan inventory.Progress)
		go func() {
			p, err := s.Collect(ctx, b.process, inventory.CollectConfig{Streams: []string{dlq, "other.dlq"}, Follow: true, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
			}
			done <- p
		}()
		synctest.Wait()
		time.Sleep(time.Minute)
		b.fail("b") // fails once, and is tried again
		time.Sleep(time.Minute)
		stop()
		if got := (<-done).Total(); got.Read != 2 || got.New != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestPeekTakesNothingAndCollectingFillsIn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		b, s := newBench(t), open(t, url)
		b.fail(numbered("m", 12)...)
		for _, step := range []struct {
			what  string
			cfg   inventory.CollectConfig
			added inventory.Added
		}{
			{"peek without payloads", inventory.CollectConfig{Peek: true, LeaveOut: true, Batch: 5}, inventory.Added{New: 12}},
			{"peek again", inventory.CollectConfig{Peek: true, LeaveOut: true}, inventory.Added{Duplicates: 12}},
			{"collect", inventory.CollectConfig{}, inventory.Added{Duplicates: 12}},
		} {
			if n := b.broker.Depth(dlq); n != 12 {
				t.Errorf("before %s: %d lie there", step.what, n)
			}
			got, err := collect(t, s, b.process, step.cfg)
			want(t, step.what, got, err, 12, step.added)
			e, err := s.Find(t.Context(), "m3", 0)
			if err != nil || len(e) != 1 || e[0].LeftOut != step.cfg.LeaveOut || (e[0].DeadLetter.FailedMessage.Payload == nil) != step.cfg.LeaveOut {
				t.Errorf("after %s: %+v, %v", step.what, e, err)
			}
		}
		if g := groups(t, s); g[0].Total != 12 || b.broker.Depth(dlq) != 0 {
			t.Errorf("%d in the inventory, %d left", g[0].Total, b.broker.Depth(dlq))
		}
	})
}

func TestWhatCannotBeAskedForIsRefused(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), open(t, filepath.Join(t.TempDir(), "i.db"))
	b.fail("a")
	onlyDrains := struct{ adapters.Broker }{b.process}
	if _, err := collect(t, s, onlyDrains, inventory.CollectConfig{Peek: true}); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	for _, cfg := range []inventory.CollectConfig{{LeaveOut: true}, {Peek: true, Follow: true}} {
		if _, err := collect(t, s, b.process, cfg); err == nil {
			t.Errorf("%+v is not refused", cfg)
		}
	}
	if _, err := s.Collect(t.Context(), b.process, inventory.CollectConfig{}); err == nil {
		t.Error("no stream is not refused")
	}
	// An adapter that only drains is slower, and does.
	got, err := collect(t, s, onlyDrains, inventory.CollectConfig{})
	want(t, "one by one", got, err, 1, inventory.Added{New: 1})
}
