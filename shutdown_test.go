package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// ways to end a process, with the right order and the wrong ones.
var ways = map[string]func(s *service, h *message.Handler) error{
	"router.Close": func(s *service, _ *message.Handler) error {
		return errors.Join(s.router.Close(), <-s.running, s.sw.Close(s.t.Context()))
	},
	"Run's context": func(s *service, _ *message.Handler) error {
		s.cancel()
		return errors.Join(<-s.running, s.sw.Close(s.t.Context()))
	},
	"Spillway.Close first": func(s *service, _ *message.Handler) error {
		return errors.Join(s.sw.Close(s.t.Context()), s.router.Close(), <-s.running)
	},
	"Spillway.Close twice at once": func(s *service, _ *message.Handler) error {
		other := make(chan error)
		go func() { other <- s.sw.Close(s.t.Context()) }()
		return errors.Join(s.sw.Close(s.t.Context()), <-other, s.router.Close(), <-s.running)
	},
	"Handler.Stop": func(s *service, h *message.Handler) error {
		h.Stop()
		<-h.Stopped()
		return errors.Join(s.router.Close(), <-s.running, s.sw.Close(s.t.Context()))
	},
}

// stage is a moment of a message's life at which the process ends.
type stage struct {
	faults  []memory.Fault
	rules   []failure.Rule
	handler message.HandlerFunc
	// reach lets the message get there.
	reach time.Duration
	// where the message is afterwards; empty if it is done with.
	where string
	// attempt that the next process sees; zero if it is done with.
	attempt int
	outputs int
}

func failing(*message.Message) ([]*message.Message, error) { return nil, errors.New("no") }

var stages = map[string]stage{
	"handler returns its context's error": {
		handler: func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			return nil, msg.Context().Err()
		},
		where: topic, attempt: 1,
	},
	"handler returns another error because of it": {
		handler: func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			return nil, failure.Permanent(errors.New("the query was interrupted"))
		},
		where: topic, attempt: 1,
	},
	"handler panics because of it": {
		handler: func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			panic("closed")
		},
		where: topic, attempt: 1,
	},
	"handler finishes its work": {
		handler: func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			work(10 * time.Second)
			return nil, nil
		},
	},
	"handler finishes its work, with outputs": {
		handler: func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			work(10 * time.Second)
			return outputs("a"), nil
		},
		outputs: 1,
	},
	"classification takes a while": {
		handler: failing,
		rules: []failure.Rule{{Match: func(error) (failure.Failure, bool) {
			work(5 * time.Second)
			return failure.Failure{}, false
		}}},
		where: topic, attempt: 1,
	},
	"hand-off takes a while": {
		handler: failing,
		faults:  []memory.Fault{{On: memory.Handoff, Do: memory.Delay(5 * time.Second)}},
		where:   retryOf, attempt: 2,
	},
	"hand-off to the dead letters takes a while": {
		handler: func(*message.Message) ([]*message.Message, error) { return nil, failure.Permanent(errors.New("no")) },
		faults:  []memory.Fault{{On: memory.Handoff, Do: memory.Delay(5 * time.Second)}},
		where:   dlqOf,
	},
	"hand-off takes longer than CloseGrace": {
		handler: failing,
		faults:  []memory.Fault{{On: memory.Handoff, Do: memory.Delay(25 * time.Second)}},
		where:   topic, attempt: 1,
	},
	"hand-off hangs": {
		handler: failing,
		faults:  []memory.Fault{{On: memory.Handoff, Do: memory.Hold(nil)}},
		where:   topic, attempt: 1,
	},
	"hand-off fails, and fails": {
		handler: failing, reach: time.Minute,
		faults: []memory.Fault{{On: memory.Handoff, Times: memory.Always, Do: memory.Fail(nil)}},
		where:  topic, attempt: 1,
	},
	"hand-off is refused, and there is no last resort": {
		handler: failing, reach: time.Minute,
		faults: []memory.Fault{{On: memory.Handoff, Times: memory.Always, Do: memory.Fail(adapters.ErrRefused)}},
		where:  topic, attempt: 1,
	},
	"output takes a while": {
		handler: func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil },
		faults:  []memory.Fault{{On: memory.Publish, Stream: outTopic, Do: memory.Delay(5 * time.Second)}},
		outputs: 1,
	},
	"output fails after a while": {
		handler: func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil },
		faults: []memory.Fault{
			{On: memory.Publish, Stream: outTopic, Do: memory.Fail(nil)},
			{On: memory.Handoff, Do: memory.Delay(5 * time.Second)},
		},
		where: retryOf, attempt: 2,
	},
	"acknowledgement takes a while": {
		handler: func(*message.Message) ([]*message.Message, error) { return nil, nil },
		faults:  []memory.Fault{{On: memory.Ack, Do: memory.Delay(3 * time.Second)}},
	},
	"acknowledgement hangs": {
		handler: func(*message.Message) ([]*message.Message, error) { return nil, nil },
		faults:  []memory.Fault{{On: memory.Ack, Do: memory.Hold(nil)}},
		where:   topic, attempt: 1,
	},
	"message waits for its retry": {
		handler: failing, reach: 100 * time.Millisecond,
		where: retryOf, attempt: 2,
	},
	"message is parked": {
		handler: func(*message.Message) ([]*message.Message, error) {
			return nil, failure.Waiting(errors.New("not signed"), "approval")
		},
		reach: time.Minute,
		where: parkingOf, attempt: 1,
	},
	"message waits for its retry for the third time": {
		handler: failing, reach: 10 * time.Second,
		where: retryOf, attempt: 4,
	},
}

// Invariants 1 and 7, K20, and S5: whenever the process ends, one copy of the
// message is left, or none if it was done; a shutdown counts no attempt; and
// every wait ends, which the bubble makes sure of.
func TestCloseAtEveryStageLeavesOneCopy(t *testing.T) {
	for name, st := range stages {
		for way, end := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := installed(t, spillway.Config{Rules: st.rules})
					s.broker.Inject(st.faults...)
					h := s.produce(st.handler)
					s.start()
					s.publish("body")
					after(st.reach)
					begin := time.Now()
					if err := end(s, h); err != nil {
						t.Errorf("ended with %v", err)
					}
					if took := time.Since(begin); took > 30*time.Second {
						t.Errorf("the end took %s", took)
					}
					after(time.Second)
					s.broker.ClearFaults()

					want := map[string]int{}
					if st.where != "" {
						want[st.where] = 1
					}
					if st.outputs > 0 {
						want[outTopic] = st.outputs
					}
					wantDepths(t, s.broker, want)
					nextProcessHandles(t, s.broker, st.attempt)
				})
			})
		}
	}
}

// nextProcessHandles starts another process and checks that its handler sees
// the message once, as this attempt; not at all if attempt is zero.
func nextProcessHandles(t *testing.T, b *memory.Broker, attempt int) {
	t.Helper()
	next := installedOn(t, b, spillway.Config{})
	var saw []string
	next.consume(func(msg *message.Message) error {
		d, _ := spillway.DeliveryFrom(msg.Context())
		saw = append(saw, fmt.Sprintf("attempt %d of %s %q", d.State.Attempt, msg.UUID, msg.Payload))
		return nil
	})
	next.start()
	after(24 * time.Hour)
	next.stop()
	var want []string
	if attempt > 0 {
		want = append(want, fmt.Sprintf("attempt %d of 1 %q", attempt, "body"))
	}
	if diff := cmp.Diff(want, saw); diff != "" {
		t.Errorf("the next process handles (-want +got):\n%s", diff)
	}
}

// A hand-off that is being repeated when the process ends was not counted and
// is repeated by the next process.
func TestEndedHandoffIsDecidedAnewByTheNextProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: memory.Handoff, Times: memory.Always, Do: memory.Fail(nil)})
		s.consume(func(*message.Message) error { return failure.Permanent(errors.New("no")) })
		s.start()
		s.publish("body")
		after(time.Minute)
		s.stop()
		s.wantOutcomes(middleware.OutcomeReturned)
		s.broker.ClearFaults()

		next := installedOn(t, s.broker, spillway.Config{})
		next.consume(func(*message.Message) error { return failure.Permanent(errors.New("no")) })
		next.start()
		after(0)
		next.stop()
		next.wantOutcomes(middleware.OutcomeDeadLettered)
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
	})
}

// slowStop is a broker that takes a second to stop delivering, as brokers do
// that must be asked over a network.
type slowStop struct{ adapters.Broker }

func (b slowStop) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	sub, err := b.Broker.Subscribe(ctx, c)
	return slowStopSubscription{sub}, err
}

type slowStopSubscription struct{ adapters.Subscription }

func (s slowStopSubscription) Stop(ctx context.Context) error {
	work(time.Second)
	return s.Subscription.Stop(ctx)
}

// What is given back while the subscription still delivers would come to it
// again, and count.
func TestShutdownCountsOneDelivery(t *testing.T) {
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				broker := memory.New(memory.Config{})
				opener := broker.Opener()
				s := serviceThrough(t, broker, adapters.Opener{Schemes: opener.Schemes, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
					b, err := opener.Open(ctx, p)
					return slowStop{b}, err
				}}, spillway.Config{})
				s.sw.Install(s.router)
				h := s.consume(func(msg *message.Message) error {
					<-msg.Context().Done()
					return msg.Context().Err()
				})
				s.start()
				s.publish("body")
				after(0)
				if err := end(s, h); err != nil {
					t.Error(err)
				}

				next := installedOn(t, broker, spillway.Config{})
				count := 0
				next.consume(func(msg *message.Message) error {
					d, _ := spillway.DeliveryFrom(msg.Context())
					count = d.Count
					return nil
				})
				next.start()
				after(0)
				next.stop()
				if count != 2 {
					t.Errorf("delivery %d, want 2", count)
				}
			})
		})
	}
}

// The Router gives up waiting before CloseGrace is over. Spillway.Close, called
// after Run as documented, still waits for the handler.
func TestRouterCloseTimeoutDoesNotCutFinishedWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, spillway.Config{})
		var err error
		s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		s.sw.Install(s.router)
		s.produce(func(*message.Message) ([]*message.Message, error) {
			work(15 * time.Second)
			return outputs("a"), nil
		})
		s.start()
		s.publish("body")
		after(0)
		if err := s.router.Close(); err == nil {
			t.Error("the Router's Close did not time out")
		}
		if err := errors.Join(<-s.running, s.sw.Close(t.Context())); err != nil {
			t.Error(err)
		}
		s.wantOutcomes(middleware.OutcomeProcessed)
		wantDepths(t, s.broker, map[string]int{outTopic: 1})
	})
}

// A handler that never looks at its context loses its message to the next
// process after CloseGrace. What it returns then changes nothing: its success is
// not reported, its outputs are not published, and its failure is not handed off.
//
// Not in a bubble: Watermill's Router holds a lock while it waits for handlers,
// and the end of the subscription needs that lock.
func TestHandlerThatIgnoresTheEndLosesItsMessage(t *testing.T) {
	for name, late := range map[string]message.HandlerFunc{
		"and succeeds": func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil },
		"and fails":    failing,
		"and panics":   func(*message.Message) ([]*message.Message, error) { panic("late") },
	} {
		for way, end := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				s := installed(t, spillway.Config{CloseGrace: time.Millisecond})
				started, release := make(chan struct{}), make(chan struct{})
				h := s.produce(func(msg *message.Message) ([]*message.Message, error) {
					close(started)
					<-release
					return late(msg)
				})
				s.start()
				s.publish("body")
				<-started
				ended := make(chan error)
				go func() { ended <- end(s, h) }()

				next := installedOn(t, s.broker, spillway.Config{})
				handled := make(chan struct{})
				next.consume(func(*message.Message) error { close(handled); return nil })
				next.start()
				<-handled
				close(release)
				if err := <-ended; err != nil {
					t.Errorf("ended with %v", err)
				}
				next.stop()
				s.wantOutcomes(middleware.OutcomeReturned)
				wantDepths(t, s.broker, nil)
			})
		}
	}
}

// Watermill holds messages back that arrive while its Router closes, and calls
// their handlers after all. Such a message goes back without a call.
func TestNoHandlerIsCalledAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, spillway.Config{})
	called := false
	handler := s.sw.Middleware()(func(*message.Message) ([]*message.Message, error) { called = true; return nil, nil })
	ctx, cancel := context.WithCancel(t.Context())
	msgs, err := s.sw.Subscriber().Subscribe(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	s.publish("body")
	msg := <-msgs
	cancel()
	<-msg.Context().Done()
	if _, err := handler(msg); !errors.Is(err, middleware.ErrReturned) {
		t.Errorf("error %v, want ErrReturned", err)
	}
	msg.Nack() // as the Router does
	if called {
		t.Error("the handler was called")
	}
	if err := s.sw.Close(t.Context()); err != nil {
		t.Error(err)
	}
	s.wantOutcomes(middleware.OutcomeReturned)
	wantDepths(t, s.broker, map[string]int{topic: 1})
}

// The same for a message that has gone back already when its turn comes: a copy
// of it would be one too many, also in the suspect stream.
func TestMessageThatWentBackIsNotHandled(t *testing.T) {
	t.Parallel()
	s := newService(t, spillway.Config{})
	handler := s.sw.Middleware()(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	msgs, err := s.sw.Subscriber().Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	s.publish("body")
	for range 7 { // main, and then the suspect stream
		msg := <-msgs
		msg.Nack()
		if _, err := handler(msg); !errors.Is(err, middleware.ErrReturned) {
			t.Errorf("error %v, want ErrReturned", err)
		}
	}
	if err := s.sw.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wantDepths(t, s.broker, map[string]int{topic: 1})
}

func TestCloseIsIdempotentAndSubscribeAfterItFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		early := s.sw.Subscriber()
		for range 3 {
			if err := s.sw.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for name, sub := range map[string]message.Subscriber{"made before": early, "made after": s.sw.SubscriberFor("other")} {
			if _, err := sub.Subscribe(t.Context(), topic); !errors.Is(err, adapters.ErrClosed) {
				t.Errorf("Subscribe of a subscriber %s: %v, want ErrClosed", name, err)
			}
			if err := sub.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.sw.Publisher().Publish(topic, message.NewMessage("1", nil)); !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("Publish after Close: %v, want ErrClosed", err)
		}
	})
}

// A closed subscriber stays closed, and takes no other one with it.
func TestClosingOneSubscriberLeavesTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		a, b := s.sw.Subscriber(), s.sw.SubscriberFor("audit")
		if _, err := a.Subscribe(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		fromB, err := b.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.Subscribe(t.Context(), topic); !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("Subscribe of the closed one: %v, want ErrClosed", err)
		}
		s.publish("body")
		(<-fromB).Ack()
		after(0)
		if err := s.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if lag := s.broker.Lag(topic, "audit"); lag != 0 {
			t.Errorf("the other group has %d left", lag)
		}
	})
}

// A dead letter consumer that pauses ends at once.
func TestCloseDuringThePauseOfADeadLetterConsumer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Group: "ops"})
		s.router.AddConsumerHandler("look", dlqOf, s.sw.Subscriber(), func(*message.Message) error {
			return failure.Permanent(errors.New("no"))
		})
		if err := s.broker.Publisher().Publish(dlqOf, message.NewMessage("1", nil)); err != nil {
			t.Fatal(err)
		}
		s.start()
		after(10 * time.Minute)
		begin := time.Now()
		s.stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("the end took %s", took)
		}
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
	})
}

// Close is idempotent. A second one, as of a signal handler beside a defer, must
// not close the broker under the first, which waits for a handler.
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { work(5 * time.Second); return nil })
		s.start()
		s.publish("body")
		begun := time.Now()
		after(time.Second)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := s.sw.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took < 5*time.Second {
					t.Errorf("Close returned after %s, while the handler ran", took)
				}
			})
			after(time.Second)
		}
		wg.Wait()
		wantDepths(t, s.broker, nil) // its handler succeeded within CloseGrace
		s.stop()
	})
}

// Close waits up to CloseGrace, not up to CloseGrace for each subscriber, and
// hands out nothing more meanwhile.
func TestCloseStopsAllSubscribersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{CloseGrace: 10 * time.Second})
		release := make(chan struct{})
		for n := range 5 {
			stuck := fmt.Sprint("stuck", n)
			s.router.AddConsumerHandler(stuck, stuck, s.sw.Subscriber(), func(*message.Message) error { <-release; return nil })
		}
		late := 0 // nothing is published to orders before
		s.consume(func(*message.Message) error { late++; return nil })
		s.start()
		for n := range 5 {
			put(t, s.broker, fmt.Sprint("stuck", n), "m")
		}
		after(time.Second)
		go func() {
			work(5 * time.Second)
			s.publish("body")
		}()
		start := time.Now()
		if err := s.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("Close took %v with a CloseGrace of 10 s", took)
		}
		if late > 0 {
			t.Errorf("%d messages handed out 5 s after Close was called", late)
		}
		close(release)
		s.stop()
	})
}

// Work that finished is acknowledged, also when it finishes at the very end of
// the grace. A message that took its Ack must not be given back.
func TestAckAtTheEndOfGraceCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 200
		s := installed(t, spillway.Config{CloseGrace: 10 * time.Second, Concurrency: n})
		sub := s.sw.Subscriber()
		messages, err := sub.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		var got []*message.Message
		for i := range n {
			put(t, s.broker, topic, fmt.Sprint(i))
		}
		for range n {
			got = append(got, <-messages)
		}
		accepted := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			work(10 * time.Second)
			for _, m := range got {
				if m.Ack() {
					accepted++
				}
			}
		}()
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		<-done
		if left := s.broker.Lag(topic, group); accepted+left != n {
			t.Errorf("%d of %d messages took their Ack, but %d are left in the source, want %d", accepted, n, left, n-accepted)
		}
		if err := s.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
