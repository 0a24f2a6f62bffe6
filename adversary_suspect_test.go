package spillway_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// Invariant 8: a message is dead-lettered as consumer_crash only when it was
// alone in the handler, and neighbours never trip it. Here "s" is in the
// suspect stream for what an earlier neighbour did, and harmless; the killer is
// new, on main, and shares the process with it.
func TestAdversaryNeighbourOnMainDoesNotConvictSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		for n := range 6 {
			a := advOpen(t, b, spillway.Config{})
			a.handle("orders", func(msg *message.Message) error {
				switch msg.UUID {
				case "killer":
					time.Sleep(time.Second)
					b.Crash("orders", "g")
				case "s":
					time.Sleep(10 * time.Second)
				}
				return nil
			}).run()
			if n == 0 {
				advSuspect(t, b)
				advPublish(t, b, "orders", "killer")
			}
			time.Sleep(time.Minute)
			if err := a.sw.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, r := range b.Records("orders.g.dlq") {
			if r.ID == "s" {
				t.Errorf("%q is dead-lettered as %s (%s)", r.ID, advHeader(r, "spillway-error-class"), advHeader(r, "spillway-error-message"))
			}
		}
	})
}

// Rolling restarts never trip it either: the handler of a suspect that does not
// end within CloseGrace is given back, and that counts.
func TestAdversaryRollingRestartsDoNotConvictSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		var calls atomic.Int32
		for n := range 10 {
			a := advOpen(t, b, spillway.Config{CloseGrace: time.Second})
			ctx := t.Context()
			a.handle("orders", func(msg *message.Message) error {
				calls.Add(1)
				select {
				case <-time.After(time.Hour): // a long job that does not look at its context
				case <-ctx.Done():
				}
				return nil
			}).run()
			if n == 0 {
				advPublish(t, b, "orders", "long")
			}
			time.Sleep(time.Minute)
			if err := a.sw.Close(t.Context()); err != nil { // a deployment
				t.Log(err)
			}
		}
		for _, r := range b.Records("orders.g.dlq") {
			t.Errorf("%q is dead-lettered as %s after %d calls: %s", r.ID, advHeader(r, "spillway-error-class"), calls.Load(), advHeader(r, "spillway-error-message"))
		}
		time.Sleep(2 * time.Hour) // let the handlers end
	})
}

// A hand-off during Close leaves exactly one copy, in the suspect stream too:
// there a delivery that is returned at shutdown is written anew.
func TestAdversaryReturnOfSuspectDuringCloseLeavesOneCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{CloseGrace: 20 * time.Second})
		entered := make(chan struct{})
		h := a.router.AddConsumerHandler("h", "orders", a.sw.Subscriber(), func(msg *message.Message) error {
			close(entered)
			<-msg.Context().Done()
			time.Sleep(19 * time.Second) // it is tidy, but slow to stop
			return msg.Context().Err()
		})
		a.run()
		advSuspect(t, b)
		<-entered
		b.Inject(memory.Fault{On: memory.Handoff, Stream: "orders.g.suspect", Do: memory.Delay(3 * time.Second)})
		h.Stop() // closes the subscription; the broker stays open
		time.Sleep(time.Minute)
		if n := b.Depth("orders.g.suspect"); n != 1 {
			t.Errorf("%d copies in the suspect stream after Close, want 1; outcomes: %v", n, a.told())
		}
	})
}

// advSuspect writes a message to the suspect stream, as a process does that
// finds it delivered too often.
func advSuspect(t *testing.T, b *memory.Broker) {
	t.Helper()
	v, err := b.Opener().Open(t.Context(), adapters.OpenParams{})
	if err != nil {
		t.Fatal(err)
	}
	err = v.Handoff(t.Context(), adapters.Handoff{
		Consumer: adapters.Consumer{Topic: "orders", Group: "g"}, Stream: adapters.StreamSuspect,
		Record: adapters.Record{ID: "s", Payload: []byte("s")},
	})
	if err != nil {
		t.Fatal(err)
	}
}
