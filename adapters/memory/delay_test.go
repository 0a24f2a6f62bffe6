package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

func handoff(t *testing.T, process adapters.Broker, to adapters.Stream, id string, due time.Time) {
	t.Helper()
	h := adapters.Handoff{Consumer: consumer, Stream: to, Record: adapters.Record{ID: id}, Due: due}
	if err := process.Handoff(t.Context(), h); err != nil {
		t.Fatal(err)
	}
}

// K17: what was due after 100 ms, 1 s or 5 s comes at that instant.
func TestRetriesComeExactlyWhenDue(t *testing.T) {
	t.Parallel()
	for _, to := range []adapters.Stream{adapters.StreamRetry, adapters.StreamSuspect} {
		for _, wait := range []time.Duration{1, 100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Minute, 7 * 24 * time.Hour} {
			t.Run(fmt.Sprint(to, " ", wait), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					broker, process := setup(t, memory.Config{})
					sub := subscribe(t, process, consumer)
					written := time.Now()
					handoff(t, process, to, "a", written.Add(wait))
					receiveNothing(t, sub)
					d := <-sub.Deliveries()
					if late := time.Since(written.Add(wait)); late != 0 {
						t.Errorf("came %v after it was due", late)
					}
					if d.Stream != to || d.Count != 1 || *d.Position.Offset != 0 || !d.Position.Timestamp.Equal(written) {
						t.Errorf("delivery %+v, want the first of %s, written at %v", d, to, written)
					}
					ack(t, d)
					wantRecords(t, broker, "orders.billing."+string(to))
				})
			})
		}
	}
}

func TestRetriesComeInTheOrderOfDueTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		sub := subscribe(t, process, consumer)
		start := time.Now()
		random := rand.New(rand.NewPCG(1, 2))
		const n = 500
		for _, i := range random.Perm(n) {
			handoff(t, process, adapters.StreamRetry, fmt.Sprint(i), start.Add(time.Duration(i)*time.Second))
		}
		// Those due at the same instant keep the order of their hand-offs.
		for i := range 10 {
			handoff(t, process, adapters.StreamRetry, fmt.Sprint(n+i), start.Add(n*time.Second))
		}
		for i := range n + 10 {
			d := <-sub.Deliveries()
			if d.ID != fmt.Sprint(i) {
				t.Fatalf("received %s, want %d", d.ID, i)
			}
			if want := start.Add(time.Duration(min(i, n)) * time.Second); !time.Now().Equal(want) {
				t.Fatalf("%d came %v after it was due", i, time.Since(want))
			}
			if *d.Position.Offset != int64(i) {
				t.Fatalf("%d has offset %d", i, *d.Position.Offset)
			}
			ack(t, d)
		}
		wantRecords(t, broker, "orders.billing.retry")
	})
}

func TestDueInThePastIsNow(t *testing.T) {
	t.Parallel()
	_, process := setup(t, memory.Config{})
	sub := subscribe(t, process, with(3))
	handoff(t, process, adapters.StreamRetry, "zero", time.Time{})
	handoff(t, process, adapters.StreamRetry, "past", time.Now().Add(-time.Hour))
	receiveID(t, sub, "zero", 1)
	receiveID(t, sub, "past", 1)
}

// K7: a due time in the year 9999 waits, and neither overflows nor delays others.
func TestFarDueTimesDelayNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		sub := subscribe(t, process, consumer)
		handoff(t, process, adapters.StreamRetry, "far", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		due := time.Now().Add(time.Minute)
		handoff(t, process, adapters.StreamRetry, "near", due)
		d := <-sub.Deliveries()
		if d.ID != "near" || !time.Now().Equal(due) {
			t.Errorf("received %s after %v", d.ID, time.Since(due))
		}
		ack(t, d)
		time.Sleep(24 * 365 * time.Hour)
		receiveNothing(t, sub)
		wantRecords(t, broker, "orders.billing.retry", "far")
	})
}

func TestParkedRecordsMoveToRetryWhenDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		sub := subscribe(t, process, with(5))
		due := time.Now().Add(5 * time.Minute)
		h := adapters.Handoff{Consumer: consumer, Stream: adapters.StreamParking, Due: due, Record: adapters.Record{ID: "a", Key: []byte("k"), Payload: []byte("p"), Headers: []adapters.Header{{Key: "h", Value: []byte("v")}}}}
		if err := process.Handoff(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		handoff(t, process, adapters.StreamParking, "b", due.Add(-time.Minute))
		handoff(t, process, adapters.StreamParking, "now", time.Time{})
		if d := receiveID(t, sub, "now", 1); d.Stream != adapters.StreamRetry {
			t.Errorf("comes from %s, want retry", d.Stream)
		}
		wantRecords(t, broker, "orders.billing.parking", "b", "a")
		if broker.Records("orders.billing.parking")[1].Position.Offset != nil {
			t.Error("a record that waits has an offset")
		}
		if b := <-sub.Deliveries(); b.ID != "b" || !time.Now().Equal(due.Add(-time.Minute)) {
			t.Errorf("received %s %v before a is due", b.ID, time.Until(due))
		}
		d := <-sub.Deliveries()
		if d.ID != "a" || d.Stream != adapters.StreamRetry || string(d.Key) != "k" || string(d.Payload) != "p" || string(d.Headers[0].Value) != "v" {
			t.Errorf("received %+v", d)
		}
		if d.Position.Topic != "orders.billing.retry" || !time.Now().Equal(due) || !d.Position.Timestamp.Equal(due) {
			t.Errorf("position %+v at %v, want the retry stream's at %v", d.Position, time.Now(), due)
		}
		wantRecords(t, broker, "orders.billing.parking")
		wantRecords(t, broker, "orders.billing.retry", "now", "b", "a")
	})
}

// K20, K13: no wait survives a close, and a waiting record survives it.
func TestDelaysSurviveTheirProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		subscribe(t, process, consumer)
		due := time.Now().Add(time.Minute)
		handoff(t, process, adapters.StreamRetry, "a", due)
		time.Sleep(30 * time.Second)
		if err := process.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !time.Now().Equal(due.Add(-30 * time.Second)) {
			t.Error("close has waited")
		}
		sub := subscribe(t, open(t, broker), consumer)
		ack(t, <-sub.Deliveries())
		if !time.Now().Equal(due) {
			t.Errorf("came %v after it was due", time.Since(due))
		}
	})
}

func TestClosedBrokerReleasesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		handoff(t, process, adapters.StreamParking, "a", time.Now().Add(time.Minute))
		if err := broker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		wantRecords(t, broker, "orders.billing.parking", "a")
	})
}

func drain(t *testing.T, process adapters.Broker, stream string) []string {
	t.Helper()
	var got []adapters.Record
	err := process.Drain(t.Context(), stream, func(_ context.Context, r adapters.Record) error {
		got = append(got, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids(got)
}

func TestDrainEmptiesAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{Partitions: 2})
		for _, id := range []string{"a", "b", "c"} {
			handoff(t, process, adapters.StreamDeadLetter, id, time.Time{})
			handoff(t, process, adapters.StreamParking, id, time.Now().Add(time.Minute))
		}
		for _, stream := range []string{"orders.billing.dlq", "orders.billing.parking"} {
			if got := fmt.Sprint(drain(t, process, stream)); got != "[a b c]" {
				t.Errorf("drained %s from %s", got, stream)
			}
			wantRecords(t, broker, stream)
		}
		time.Sleep(time.Hour)
		wantRecords(t, broker, "orders.billing.retry") // nothing parked was left to move
		if got := drain(t, process, "no such stream"); got != nil {
			t.Errorf("drained %q from nowhere", got)
		}
	})
}

// O34: a record leaves its stream only after fn said so. O20: one that fn
// writes back to the same stream does not make Drain endless.
func TestDrainKeepsWhatFnRefuses(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	for _, id := range []string{"a", "b", "c"} {
		handoff(t, process, adapters.StreamDeadLetter, id, time.Time{})
	}
	refusal := errors.New("database is down")
	err := process.Drain(t.Context(), "orders.billing.dlq", func(_ context.Context, r adapters.Record) error {
		if r.ID == "b" {
			return refusal
		}
		handoff(t, process, adapters.StreamDeadLetter, "again "+r.ID, time.Time{})
		return nil
	})
	if !errors.Is(err, refusal) {
		t.Errorf("drain: %v, want %v", err, refusal)
	}
	wantRecords(t, broker, "orders.billing.dlq", "b", "c", "again a")
	ended, cancel := context.WithCancel(t.Context())
	n := 0
	err = process.Drain(ended, "orders.billing.dlq", func(context.Context, adapters.Record) error {
		n++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("drain: %v after %d records, want context.Canceled after 1", err, n)
	}
	wantRecords(t, broker, "orders.billing.dlq", "c", "again a")
}

func TestDrainAndConsumersShareNothing(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b", "c")
	sub := subscribe(t, process, consumer)
	a := receiveID(t, sub, "a", 1)
	var seen []string
	err := process.Drain(t.Context(), "orders", func(_ context.Context, r adapters.Record) error {
		seen = append(seen, r.ID)
		if r.ID == "b" {
			// b is in Drain's hands: neither a consumer nor another Drain gets it.
			if got := fmt.Sprint(drain(t, process, "orders")); got != "[c]" {
				t.Errorf("the other Drain has got %s", got)
			}
			ack(t, a)
			receiveNothing(t, sub)
			return errors.New("not now")
		}
		return nil
	})
	if err == nil || fmt.Sprint(seen) != "[b]" {
		t.Errorf("drain: %v, seen %q", err, seen)
	}
	ack(t, receiveID(t, sub, "b", 1)) // given back by Drain
	if lag := broker.Lag("orders", "billing"); lag != 0 {
		t.Errorf("lag %d, want 0", lag)
	}
	publish(t, broker, "d")
	receiveID(t, sub, "d", 1)
}

func TestRecordThatFallsDueWhileDrained(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint("keep=", keep), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				broker, process := setup(t, memory.Config{})
				sub := subscribe(t, process, consumer)
				handoff(t, process, adapters.StreamParking, "a", time.Now().Add(time.Minute))
				err := process.Drain(t.Context(), "orders.billing.parking", func(context.Context, adapters.Record) error {
					time.Sleep(2 * time.Minute)
					receiveNothing(t, sub)
					wantRecords(t, broker, "orders.billing.parking", "a")
					if keep {
						return errors.New("not now")
					}
					return nil
				})
				if keep != (err != nil) {
					t.Errorf("drain: %v", err)
				}
				wantRecords(t, broker, "orders.billing.parking")
				if keep {
					receiveID(t, sub, "a", 1)
				} else {
					receiveNothing(t, sub)
				}
			})
		})
	}
}

func TestDrainGivesBackWhenFnPanics(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = process.Drain(t.Context(), "orders", func(context.Context, adapters.Record) error { panic("fn") })
	}()
	receiveID(t, subscribe(t, process, consumer), "a", 1)
}

// A record that is due keeps its place before one written at that very moment,
// even if the latter's writer is quicker than the timer.
func TestWritesDoNotOvertakeWhatIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, process := setup(t, memory.Config{})
		sub := subscribe(t, process, with(2))
		quicker := time.After(time.Minute) // older than the broker's timer
		handoff(t, process, adapters.StreamRetry, "due", time.Now().Add(time.Minute))
		<-quicker
		handoff(t, process, adapters.StreamRetry, "now", time.Time{})
		receiveID(t, sub, "due", 1)
		receiveID(t, sub, "now", 1)
	})
}

func TestDrainBeforeTheGroupsCame(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	mailing := adapters.Consumer{Topic: "orders", Group: "mailing", Concurrency: 1}
	ensure(t, process, mailing)
	publish(t, broker, "a", "b")
	sub := subscribe(t, process, consumer)
	ack(t, receiveID(t, sub, "a", 1)) // mailing has not seen it
	giveBack(t, receiveID(t, sub, "b", 1))
	if err := sub.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(drain(t, process, "orders")); got != "[a b]" {
		t.Errorf("drained %s", got)
	}
	for _, group := range []string{"billing", "mailing"} {
		if lag := broker.Lag("orders", group); lag != 0 {
			t.Errorf("lag of %s is %d, want 0", group, lag)
		}
	}
	publish(t, broker, "c")
	ack(t, receiveID(t, subscribe(t, process, mailing), "c", 1))
	ack(t, receiveID(t, subscribe(t, process, consumer), "c", 1))
	wantRecords(t, broker, "orders")
}
