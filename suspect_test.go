package spillway_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// suspected writes a message to the suspect stream, as a process does that finds
// it delivered too often.
func suspected(t *testing.T, b *memory.Broker, topic, id string) {
	t.Helper()
	err := connect(t, b).Handoff(t.Context(), adapters.Handoff{
		Consumer: adapters.Consumer{Topic: topic, Group: group}, Stream: adapters.StreamSuspect,
		Record: adapters.Record{ID: id, Payload: []byte(id)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Invariant 8: a message is dead-lettered as consumer_crash only when it was
// alone in the handler, and neighbours never trip it. Here "s" is in the
// suspect stream for what an earlier neighbour did, and harmless; the killer is
// new, on main, and shares the process with it.
func TestNeighbourOnMainDoesNotConvictASuspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		handled := false
		for n := range 6 {
			s := installedOn(t, b, spillway.Config{})
			s.consume(func(msg *message.Message) error {
				switch msg.UUID {
				case "killer":
					work(time.Second)
					b.Crash(topic, group)
				case "s":
					work(10 * time.Second)
					handled = true
				}
				return nil
			})
			s.start()
			if n == 0 {
				suspected(t, b, topic, "s")
				put(t, b, topic, "killer")
			}
			after(time.Minute)
			s.end()
		}
		if !handled {
			t.Error("the suspect was never handled")
		}
		wantDepths(t, b, map[string]int{suspectOf: 1}) // the killer
		if rec, _ := only(t, b, suspectOf); rec.ID != "killer" {
			t.Errorf("%s is in the suspect stream, want the killer", rec.ID)
		}
	})
}

// A suspect that a shutdown interrupts has not crashed anything: rolling
// restarts never add up to a consumer_crash.
func TestRestartsNeverMakeACrashOfASuspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broker := memory.New(memory.Config{})
		if err := broker.Publisher().Publish(topic, message.NewMessage("1", []byte("body"))); err != nil {
			t.Fatal(err)
		}
		var streams []adapters.Stream
		for range 12 {
			s := installedOn(t, broker, spillway.Config{})
			s.consume(func(msg *message.Message) error {
				d, _ := spillway.DeliveryFrom(msg.Context())
				streams = append(streams, d.Stream)
				<-msg.Context().Done()
				return msg.Context().Err()
			})
			s.start()
			after(time.Second)
			s.stop()
		}
		if last := streams[len(streams)-1]; last != adapters.StreamSuspect || len(streams) != 12 {
			t.Fatalf("the handler was called %d times, in the end from %s", len(streams), last)
		}
		wantDepths(t, broker, map[string]int{suspectOf: 1})
		nextProcessHandles(t, broker, 1)
	})
}

// Also not when its handler does not end within CloseGrace, so that it is given
// back while it runs.
func TestRollingRestartsDoNotConvictASuspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		put(t, b, topic, "long")
		var calls atomic.Int32
		for range 10 {
			s := installedOn(t, b, spillway.Config{CloseGrace: time.Second})
			handle := s.sw.Middleware()(func(*message.Message) ([]*message.Message, error) {
				calls.Add(1)
				work(time.Hour) // a long job that does not look at its context
				return nil, nil
			})
			messages, err := s.sw.Subscriber().Subscribe(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			// What a Router does. A real one would hold a lock while it waits for
			// this handler, and time would stand still for whoever wants it.
			go func() {
				for msg := range messages {
					go func() {
						if _, err := handle(msg); err != nil {
							msg.Nack()
						} else {
							msg.Ack()
						}
					}()
				}
			}()
			after(time.Minute)
			if err := s.sw.Close(t.Context()); err != nil { // a deployment
				t.Error(err)
			}
		}
		if calls.Load() != 10 {
			t.Errorf("%d calls, want one for each process", calls.Load())
		}
		wantDepths(t, b, map[string]int{suspectOf: 1})
		after(2 * time.Hour) // let the handlers end
	})
}

// A hand-off during Close leaves exactly one copy, in the suspect stream too:
// there a delivery that is returned at shutdown is written anew.
func TestReturnOfASuspectDuringCloseLeavesOneCopy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{CloseGrace: 20 * time.Second})
		entered := make(chan struct{})
		h := s.consume(func(msg *message.Message) error {
			close(entered)
			<-msg.Context().Done()
			work(19 * time.Second) // it is tidy, but slow to stop
			return msg.Context().Err()
		})
		s.start()
		suspected(t, s.broker, topic, "s")
		<-entered
		s.broker.Inject(memory.Fault{On: memory.Handoff, Stream: suspectOf, Do: memory.Delay(3 * time.Second)})
		h.Stop() // closes the subscription; the broker stays open
		after(time.Minute)
		wantDepths(t, s.broker, map[string]int{suspectOf: 1})
		s.stop()
	})
}

// A handler that hangs keeps a suspect waiting for 30 s, and a suspect that hangs
// keeps all others waiting for as long again.
func TestWaitsForASuspectEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Concurrency: 2})
		begun := time.Now()
		var mu sync.Mutex
		at := map[string]time.Duration{}
		s.consume(func(msg *message.Message) error {
			mu.Lock()
			at[msg.UUID] = time.Since(begun)
			mu.Unlock()
			if msg.UUID != "healthy" {
				work(time.Hour)
			}
			return nil
		})
		s.start()
		put(t, s.broker, topic, "hangs")
		after(time.Second)
		suspected(t, s.broker, topic, "suspect")
		after(time.Second)
		put(t, s.broker, topic, "healthy")
		after(2 * time.Hour)
		s.stop()
		want := map[string]time.Duration{"hangs": 0, "suspect": 31 * time.Second, "healthy": 61 * time.Second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("begun after (-want +got):\n%s", diff)
		}
		wantDepths(t, s.broker, nil)
	})
}

// The suspects of two consumers in one process take turns too.
func TestSuspectsOfTwoConsumersTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		var mu sync.Mutex
		inside, handled := 0, 0
		handle := func(*message.Message) error {
			mu.Lock()
			handled++
			if inside++; inside > 1 {
				t.Error("two suspects at a time")
			}
			mu.Unlock()
			work(10 * time.Second)
			mu.Lock()
			inside--
			mu.Unlock()
			return nil
		}
		s.consume(handle)
		s.router.AddConsumerHandler("refund", "refunds", s.sw.Subscriber(), handle)
		s.start()
		suspected(t, s.broker, topic, "a")
		suspected(t, s.broker, "refunds", "b")
		after(20 * time.Second)
		s.stop()
		if handled != 2 {
			t.Errorf("%d suspects were handled within the time of both, want 2", handled)
		}
		wantDepths(t, s.broker, nil)
	})
}
