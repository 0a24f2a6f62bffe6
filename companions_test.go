package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	wmw "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

func TestCorrelationIDStaysTheSameOverRetriesAndReachesOutputs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware(wmw.CorrelationID)
		calls := 0
		s.produce(func(msg *message.Message) ([]*message.Message, error) {
			if got := wmw.MessageCorrelationID(msg); got != "c-1" {
				t.Errorf("attempt %d sees correlation id %q", calls+1, got)
			}
			if calls++; calls < 3 {
				return nil, errors.New("not yet")
			}
			return message.Messages{message.NewMessage("out", nil)}, nil
		})
		s.start()
		msg := message.NewMessage("1", nil)
		wmw.SetCorrelationID("c-1", msg)
		s.send(msg)
		after(time.Minute)
		out, _ := only(t, s.broker, outTopic)
		if got := string(out.Headers[0].Value); out.Headers[0].Key != wmw.CorrelationIDMetadataKey || got != "c-1" {
			t.Errorf("output has headers %v", out.Headers)
		}
		s.stop()
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeRetried, middleware.OutcomeProcessed)
	})
}

// The Timeout inside the chain ends the handler's context, which is no shutdown:
// the attempt counts, and an outage of twelve attempts is outlived.
func TestTimeoutInsideIsAFailureNotAShutdown(t *testing.T) {
	for name, handler := range map[string]func(ctx context.Context) error{
		"handler returns the context's error": func(ctx context.Context) error { return ctx.Err() },
		"handler wraps it":                    func(ctx context.Context) error { return fmt.Errorf("call gateway: %w", ctx.Err()) },
		"handler returns context.Canceled":    func(context.Context) error { return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.router.AddMiddleware(wmw.Timeout(time.Second))
				s.consume(func(msg *message.Message) error {
					<-msg.Context().Done()
					return handler(msg.Context())
				})
				s.start()
				s.publish("x")
				after(time.Second)
				s.wantOutcomes(middleware.OutcomeRetried)
				f := s.lastOutcome().Failure
				if f.Nature != failure.NatureTransient || f.Class != failure.ClassDependencyTimeout {
					t.Errorf("the failure is %s, %s", f.Nature, f.Class)
				}
				if _, st := only(t, s.broker, retryOf); st.Attempt != 2 {
					t.Errorf("the next attempt is %d, want 2", st.Attempt)
				}
				s.stop()
			})
		})
	}
}

// The Timeout cancels its context also after a success; the message passed
// through then carries an ended context, which must not stop its publishing.
func TestTimeoutInsideDoesNotStopOutputs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware(wmw.Timeout(time.Second))
		s.produce(message.PassthroughHandler)
		s.start()
		s.publish("x")
		after(0)
		s.wantOutcomes(middleware.OutcomeProcessed)
		wantDepths(t, s.broker, map[string]int{outTopic: 1})
		s.stop()
	})
}

func TestThrottleDelaysAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware(wmw.NewThrottle(10, time.Second).Middleware)
		var at []time.Time
		s.consume(func(*message.Message) error { at = append(at, time.Now()); return nil })
		s.start()
		s.publish("a", "b", "c")
		after(time.Second)
		s.stop()
		s.wantOutcomes(middleware.OutcomeProcessed, middleware.OutcomeProcessed, middleware.OutcomeProcessed)
		if spread := at[2].Sub(at[0]); spread != 200*time.Millisecond {
			t.Errorf("three messages at ten a second spread over %s, want 200ms", spread)
		}
	})
}

// withZero calls f with the zero value of its argument: the default settings,
// without importing the breaker's package.
func withZero[S, R any](f func(S) R) R {
	var zero S
	return f(zero)
}

// An open breaker refuses messages that nothing is wrong with, for a minute at
// a time. They must outlive the outage like those that the outage has hit.
func TestOpenCircuitBreakerIsAnUnavailableDependency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware(withZero(wmw.NewCircuitBreaker).Middleware)
		end := time.Now().Add(4 * time.Minute)
		var calls atomic.Int32
		s.consume(func(*message.Message) error {
			calls.Add(1)
			if time.Now().Before(end) {
				return failure.Transient(errors.New("the gateway is down"))
			}
			return nil
		})
		s.start()
		bodies := make([]string, 20)
		s.publish(bodies...)
		after(0)
		var open failure.Failure
		s.mu.Lock()
		for _, o := range s.outcomes {
			if strings.Contains(o.Failure.Err.Error(), "circuit breaker") {
				open = o.Failure
			}
		}
		s.mu.Unlock()
		if open.Nature != failure.NatureTransient || open.Class != failure.ClassDependencyUnavailable {
			t.Errorf("the open breaker is %s, %s; want transient, dependency_unavailable", open.Nature, open.Class)
		}
		if n := calls.Load(); n > 7 {
			t.Errorf("the breaker let %d calls through", n)
		}
		after(time.Hour)
		wantDepths(t, s.broker, nil)
		s.stop()
	})
}

// Watermill's Recoverer makes an error whose text contains the stack. It must
// get into no message.
func TestRecovererInsideKeepsTheStackOutOfTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Unknown: 1}}})
		s.router.AddMiddleware(wmw.Recoverer)
		s.consume(func(*message.Message) error { panic("no such customer") })
		s.start()
		s.publish("x")
		after(0)
		rec, st := only(t, s.broker, dlqOf)
		if st.Message != "panic: no such customer" || st.Class != failure.ClassPanic {
			t.Errorf("evidence is %s %q", st.Class, st.Message)
		}
		for _, h := range rec.Headers {
			if strings.Contains(string(h.Value), ".go:") || strings.Contains(string(h.Value), "goroutine") {
				t.Errorf("header %s holds a stack", h.Key)
			}
		}
		s.stop()
	})
}

// Also not when somebody has joined the error with another one.
func TestJoinedRecovererErrorKeepsTheStackOutOfTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := h(msg)
				return out, errors.Join(err, errors.New("and the transaction was rolled back"))
			}
		}, wmw.Recoverer)
		s.consume(func(*message.Message) error { panic("boom") })
		s.start()
		s.publish("x")
		after(time.Hour)
		if _, st := only(t, s.broker, dlqOf); strings.Contains(st.Message, "goroutine ") || strings.Contains(st.Message, ".go:") {
			t.Errorf("the error text has the stack: %q", st.Message)
		}
		s.stop()
	})
}

// The panic of a nil value (GODEBUG=panicnil=1) behind the Recoverer is a
// failure, not a success.
func TestRecoveredNilIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return wmw.RecoveredPanicError{Stacktrace: "stack"} })
		s.start()
		s.publish("x")
		after(time.Hour)
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		s.stop()
	})
}

// A handler that gave its message back has not handled it.
func TestOnceDoesNotRememberWhatWasNacked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		store, err := middleware.NewMemoryStore(middleware.MemoryStoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s.router.AddMiddleware(middleware.Once(store, nil))
		calls := 0
		s.consume(func(msg *message.Message) error {
			if calls++; calls == 1 {
				msg.Nack()
			}
			return nil
		})
		s.start()
		s.publish("x")
		after(time.Hour)
		if calls != 2 {
			t.Errorf("%d calls, want 2: the first gave the message back", calls)
		}
		s.stop()
	})
}

// dedupStore remembers keys for ever. Watermill's own has a goroutine that
// nothing ends.
type dedupStore struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (s *dedupStore) IsDuplicate(_ context.Context, key string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[key] {
		return true, nil
	}
	s.seen[key] = true
	return false, nil
}

// O31: what was seen before is not done before. Retries and replays reach the
// handler, and true duplicates do not.
func TestDeduplicatorWithDedupKeyLetsRetriesAndReplaysThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		dedup := &wmw.Deduplicator{KeyFactory: spillway.DedupKey, Repository: &dedupStore{seen: map[string]bool{}}}
		s.router.AddMiddleware(dedup.Middleware)
		var calls []string
		s.consume(func(msg *message.Message) error {
			calls = append(calls, msg.UUID)
			d, _ := spillway.DeliveryFrom(msg.Context())
			switch {
			case msg.UUID == "poison" && d.State.ReplayCount == 0:
				return failure.Permanent(errors.New("no"))
			case msg.UUID == "flaky" && d.State.Attempt < 3:
				return errors.New("not yet")
			}
			return nil
		})
		s.start()
		for _, id := range []string{"good", "good", "flaky", "poison"} {
			s.send(message.NewMessage(id, []byte("body")))
		}
		after(time.Minute)
		if diff := cmp.Diff([]string{"good", "flaky", "poison", "flaky", "flaky"}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}

		replay(t, s.broker)
		after(0)
		if calls[len(calls)-1] != "poison" {
			t.Error("the replay did not reach the handler")
		}
		wantDepths(t, s.broker, nil)
		s.stop()
	})
}

// The stock key of the Deduplicator is a hash of the payload: the retry is taken
// for a duplicate and the message is gone, as a success. Nothing shows from
// outside which key a Deduplicator has, so it cannot be refused; this is what
// the documentation of DedupKey warns of.
func TestDeduplicatorWithItsStockKeyDropsEveryRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware((&wmw.Deduplicator{Repository: &dedupStore{seen: map[string]bool{}}}).Middleware)
		calls := 0
		s.consume(func(*message.Message) error { calls++; return errors.New("not yet") })
		s.start()
		s.publish("body")
		after(time.Minute)
		if calls != 1 {
			t.Errorf("the handler was called %d times", calls)
		}
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeProcessed)
		s.stop()
	})
}

func TestDuplicatorIsOneAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddMiddleware(wmw.Duplicator)
		calls := 0
		s.produce(func(*message.Message) ([]*message.Message, error) {
			if calls++; calls == 2 {
				return nil, errors.New("the second call fails")
			}
			return message.Messages{message.NewMessage("out", nil)}, nil
		})
		s.start()
		s.publish("x")
		after(0)
		wantDepths(t, s.broker, map[string]int{retryOf: 1}) // and no output of the first call
		after(time.Minute)
		wantDepths(t, s.broker, map[string]int{outTopic: 2})
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeProcessed)
		s.stop()
	})
}

func TestRandomFailAndRandomPanicAreFailures(t *testing.T) {
	for name, m := range map[string]message.HandlerMiddleware{"fail": wmw.RandomFail(1), "panic": wmw.RandomPanic(1)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.router.AddMiddleware(m)
				s.consume(func(*message.Message) error { t.Error("the handler was called"); return nil })
				s.start()
				s.publish("x")
				after(time.Hour)
				wantDepths(t, s.broker, map[string]int{dlqOf: 1})
				if n := len(s.outcomesNow()); n != 5 {
					t.Errorf("%d outcomes, want 5", n)
				}
				s.stop()
			})
		})
	}
}

// Watermill's delay component writes metadata that only its own SQL broker
// reads. Beside Spillway it delays nothing, and does no harm.
func TestDelayComponentIsMetadataLikeAnyOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(msg *message.Message) error {
			if msg.Metadata.Get(delay.DelayedUntilKey) == "" {
				t.Error("the delay's metadata is gone")
			}
			return nil
		})
		s.start()
		pub, err := delay.NewPublisher(s.sw.Publisher(), delay.PublisherConfig{})
		if err != nil {
			t.Fatal(err)
		}
		msg := message.NewMessage("1", nil)
		msg.SetContext(delay.WithContext(t.Context(), delay.For(time.Hour)))
		if err := pub.Publish(topic, msg); err != nil {
			t.Fatal(err)
		}
		after(0)
		s.wantOutcomes(middleware.OutcomeProcessed)
		s.stop()
	})
}

// forbidden is what must not stand beside the chain, with what the refusal
// must say.
func forbidden(t *testing.T, pub message.Publisher) map[string]struct {
	m    message.HandlerMiddleware
	says []string
} {
	t.Helper()
	poison, err := wmw.PoisonQueue(pub, "poison")
	if err != nil {
		t.Fatal(err)
	}
	filtered, err := wmw.PoisonQueueWithFilter(pub, "poison", func(error) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		m    message.HandlerMiddleware
		says []string
	}{
		"Retry":                 {wmw.Retry{}.Middleware, []string{"Retry", "Config.Policy"}},
		"PoisonQueue":           {poison, []string{"PoisonQueue", "Spillway dead-letters"}},
		"PoisonQueueWithFilter": {filtered, []string{"PoisonQueue", "Spillway dead-letters"}},
		"IgnoreErrors":          {wmw.NewIgnoreErrors(nil).Middleware, []string{"IgnoreErrors", "return nil"}},
		"InstantAck":            {wmw.InstantAck, []string{"InstantAck", "remove it"}},
		"DelayOnError":          {(&wmw.DelayOnError{}).Middleware, []string{"DelayOnError", "Config.Policy"}},
	}
}

func TestForbiddenCompanionsAreRefusedAtStart(t *testing.T) {
	never := func(*message.Message) error { return nil }
	add := map[string]func(s *service, m message.HandlerMiddleware){
		"router":  func(s *service, m message.HandlerMiddleware) { s.router.AddMiddleware(m); s.consume(never) },
		"handler": func(s *service, m message.HandlerMiddleware) { s.consume(never).AddMiddleware(m) },
	}
	for _, name := range []string{"Retry", "PoisonQueue", "PoisonQueueWithFilter", "IgnoreErrors", "InstantAck", "DelayOnError"} {
		for level, add := range add {
			t.Run(name+" on the "+level, func(t *testing.T) {
				t.Parallel()
				s := installed(t, spillway.Config{})
				f := forbidden(t, s.sw.Publisher())[name]
				add(s, f.m)
				err := s.refused()
				if err == nil {
					t.Fatal("it was not refused")
				}
				wantContains(t, err.Error(), f.says...)
			})
		}
	}
}

func TestForbiddenCompanionsAreRefusedForHandlersAddedLater(t *testing.T) {
	t.Parallel()
	err := refusedLater(t, func(s *service) {
		s.router.AddConsumerHandler("late", "refunds", s.sw.Subscriber(), func(*message.Message) error { return nil }).
			AddMiddleware(wmw.InstantAck)
	})
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), "InstantAck")
}

func TestAllowedCompanionsAreNotRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		store, err := middleware.NewMemoryStore(middleware.MemoryStoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s.router.AddMiddleware(wmw.CorrelationID, wmw.Recoverer, wmw.Timeout(time.Minute), middleware.Once(store, nil))
		s.consume(func(*message.Message) error { return nil }).AddMiddleware(wmw.Duplicator)
		s.start()
		s.publish("x")
		after(0)
		s.wantOutcomes(middleware.OutcomeProcessed)
		s.stop()
	})
}

func TestInstallNotFirstIsRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, spillway.Config{})
	s.router.AddMiddleware(wmw.CorrelationID)
	s.sw.Install(s.router)
	s.consume(func(*message.Message) error { return nil })
	err := s.refused()
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), "Install", "first", "outermost")
}

func TestInstallTwiceIsRefused(t *testing.T) {
	t.Parallel()
	s := installed(t, spillway.Config{})
	s.sw.Install(s.router)
	s.consume(func(*message.Message) error { return nil })
	err := s.refused()
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), "twice")
	if strings.Contains(err.Error(), "before any other middleware") {
		t.Errorf("the error sends the reader the wrong way: %v", err)
	}
}
