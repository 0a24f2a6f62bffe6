package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

func outputs(ids ...string) message.Messages {
	var msgs message.Messages
	for _, id := range ids {
		msgs = append(msgs, message.NewMessage(id, []byte("output "+id)))
	}
	return msgs
}

func TestOutputsArePublishedAndTheAttemptSucceedsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.produce(func(*message.Message) ([]*message.Message, error) { return outputs("a", "b"), nil })
		s.start()
		s.publish("x", "y")
		after(0)
		wantDepths(t, s.broker, map[string]int{outTopic: 4})
		s.stop()
		s.wantOutcomes(middleware.OutcomeProcessed, middleware.OutcomeProcessed)
	})
}

// Invariant 12.
func TestOutputsOfAFailedAttemptAreNotPublished(t *testing.T) {
	for name, end := range map[string]func(*message.Message) ([]*message.Message, error){
		"with an error": func(*message.Message) ([]*message.Message, error) { return outputs("a"), errors.New("no") },
		"with a Nack":   func(msg *message.Message) ([]*message.Message, error) { msg.Nack(); return outputs("a"), nil },
		"with both": func(msg *message.Message) ([]*message.Message, error) {
			msg.Nack()
			return outputs("a"), errors.New("no")
		},
		"with a nil one":  func(*message.Message) ([]*message.Message, error) { return append(outputs("a"), nil), nil },
		"with only a nil": func(*message.Message) ([]*message.Message, error) { return message.Messages{nil}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				calls := 0
				s.produce(func(msg *message.Message) ([]*message.Message, error) {
					if calls++; calls > 1 {
						return nil, nil
					}
					return end(msg)
				})
				s.start()
				s.publish("x")
				after(time.Minute)
				wantDepths(t, s.broker, nil)
				if calls != 2 {
					t.Errorf("%d calls, want 2", calls)
				}
				s.stop()
			})
		})
	}
}

// A nil output is a mistake of the handler, and its evidence says so; Watermill's
// Router panics of it.
func TestNilOutputIsAFailureThatSaysSo(t *testing.T) {
	for says, outs := range map[string]message.Messages{
		"output 1 of 1 is nil": {nil},
		"output 2 of 2 is nil": append(outputs("a"), nil),
	} {
		t.Run(says, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.produce(func(*message.Message) ([]*message.Message, error) { return outs, nil })
				s.start()
				s.publish("x")
				after(time.Hour)
				_, st := only(t, s.broker, dlqOf)
				wantContains(t, st.Message, says)
				if st.Attempt != 5 || st.Class != failure.ClassUnknown {
					t.Errorf("given up as %s at attempt %d, want unknown at 5", st.Class, st.Attempt)
				}
				r := middleware.OutcomeRetried
				s.wantOutcomes(r, r, r, r, middleware.OutcomeDeadLettered) // none returned: that would loop
				wantDepths(t, s.broker, map[string]int{dlqOf: 1})
				s.stop()
			})
		})
	}
}

func TestPublishErrorIsDecidedLikeOneOfTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		calls := 0
		s.produce(func(*message.Message) ([]*message.Message, error) { calls++; return outputs("a"), nil })
		s.broker.Inject(memory.Fault{On: memory.Publish, Stream: outTopic, Times: 2, Do: memory.Fail(context.DeadlineExceeded)})
		s.start()
		s.publish("x")
		after(0)
		f := s.lastOutcome().Failure
		if f.Nature != failure.NatureTransient || f.Class != failure.ClassDependencyTimeout {
			t.Errorf("the failure is %s, %s", f.Nature, f.Class)
		}
		wantContains(t, f.Err.Error(), "publish 1 outputs to invoices")
		after(time.Minute)
		if calls != 3 {
			t.Errorf("%d calls, want 3", calls)
		}
		wantDepths(t, s.broker, map[string]int{outTopic: 1})
		s.stop()
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeRetried, middleware.OutcomeProcessed)
		wantNoFaultsLeft(t, s.broker)
	})
}

func TestPermanentPublishErrorIsDeadLetteredAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		guard := middleware.Validate(func(context.Context, middleware.ValidateParams) error {
			return errors.New("amount is missing")
		})
		s.router.AddPublisherDecorators(guard) // inside ours
		s.produce(func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil })
		s.start()
		s.publish("x")
		after(0)
		_, st := only(t, s.broker, dlqOf)
		wantContains(t, st.Message, "amount is missing")
		if st.Class != failure.ClassValidation || st.Attempt != 1 {
			t.Errorf("dead letter of class %s after %d attempts", st.Class, st.Attempt)
		}
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		s.stop()
	})
}

type publisherFunc func(topic string, msgs ...*message.Message) error

func (f publisherFunc) Publish(topic string, msgs ...*message.Message) error {
	return f(topic, msgs...)
}
func (publisherFunc) Close() error { return nil }

func TestPanickingPublisherIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Unknown: 2}}})
		pub := publisherFunc(func(string, ...*message.Message) error { panic("the connection is nil") })
		s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, pub,
			func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil })
		s.start()
		s.publish("x")
		after(time.Hour)
		_, st := only(t, s.broker, dlqOf)
		if st.Class != failure.ClassPanic || !strings.Contains(st.Message, "the connection is nil") {
			t.Errorf("evidence is %s %q", st.Class, st.Message)
		}
		s.stop()
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeDeadLettered)
	})
}

// A publisher that ends its goroutine must not block the slot for ever.
func TestPublisherThatEndsItsGoroutineIsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		goexit := publisherFunc(func(string, ...*message.Message) error { runtime.Goexit(); return nil })
		calls := 0
		s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, goexit, func(*message.Message) ([]*message.Message, error) {
			calls++
			return outputs("a"), nil
		})
		s.start()
		s.publish("x", "y")
		after(time.Hour)
		if calls != 10 || s.broker.InFlight(topic, group) != 0 {
			t.Errorf("%d calls, want 5 for each message; %d in flight after an hour", calls, s.broker.InFlight(topic, group))
		}
		wantDepths(t, s.broker, map[string]int{dlqOf: 2})
		s.stop()
	})
}

// failsOnce fails the first publish, after a while.
type failsOnce struct {
	message.Publisher
	failed bool
}

func (f *failsOnce) Publish(topic string, msgs ...*message.Message) error {
	if !f.failed {
		f.failed = true
		work(time.Second)
		return errors.New("broker is away")
	}
	return f.Publisher.Publish(topic, msgs...)
}

// A handler that acknowledges by itself and fails is handed off: nothing else
// has the message any more. The same holds when its outputs can't be published.
func TestOutputsOfAHandlerThatAcknowledgedAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, &failsOnce{Publisher: s.sw.Publisher()}, func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			work(time.Second)
			return outputs("a"), nil
		})
		s.start()
		s.publish("x")
		after(time.Hour)
		wantDepths(t, s.broker, map[string]int{outTopic: 1})
		s.stop()
	})
}

func TestOutputsWithoutAPublisherAreAFailure(t *testing.T) {
	returnOne := func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil }
	for name, add := range map[string]func(s *service){
		"nil publisher": func(s *service) {
			s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, nil, returnOne)
		},
		"consumer handler with a middleware that returns outputs": func(s *service) {
			s.consume(func(*message.Message) error { return nil }).AddMiddleware(
				func(message.HandlerFunc) message.HandlerFunc { return returnOne })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				add(s)
				s.start()
				s.publish("x")
				after(time.Hour)
				_, st := only(t, s.broker, dlqOf)
				wantContains(t, st.Message, message.ErrOutputInNoPublisherHandler.Error())
				if st.Reason != string(policy.ReasonAttemptsExhausted) {
					t.Errorf("reason %q", st.Reason)
				}
				s.stop()
			})
		})
	}
}

func TestPassthroughKeepsTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: memory.Publish, Stream: outTopic, Do: memory.Fail(nil)})
		s.produce(message.PassthroughHandler)
		s.start()
		msg := message.NewMessage("1", []byte("body"))
		msg.Metadata.Set("tenant", "a")
		s.send(msg)
		after(time.Minute)
		out, _ := only(t, s.broker, outTopic)
		if out.ID != "1" || string(out.Payload) != "body" || len(out.Headers) != 1 || out.Headers[0].Key != "tenant" {
			t.Errorf("passed through as %+v", out)
		}
		s.stop()
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeProcessed)
	})
}

// Invariant 10: handlers copy metadata, and some read the delivery's headers.
func TestHandlerThatCopiesMetadataLeaksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.produce(func(msg *message.Message) ([]*message.Message, error) {
			d, _ := spillway.DeliveryFrom(msg.Context())
			if d.State.Attempt == 1 {
				return nil, errors.New("not yet")
			}
			out := message.NewMessage("out", nil)
			for k, v := range msg.Metadata {
				out.Metadata.Set(k, v)
			}
			for _, h := range d.Headers {
				out.Metadata.Set(h.Key, string(h.Value))
			}
			out.Metadata.Set("SPILLWAY-Attempt", "7")
			return message.Messages{out}, nil
		})
		s.start()
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set("tenant", "a")
		s.send(msg)
		after(time.Minute)
		out, _ := only(t, s.broker, outTopic)
		if len(out.Headers) != 1 || out.Headers[0].Key != "tenant" {
			t.Errorf("output has headers %v", out.Headers)
		}
		s.stop()
	})
}

func TestUserDecoratorsInsideSeeCleanOutputs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		var mu sync.Mutex
		var seen []string
		s.router.AddPublisherDecorators(func(pub message.Publisher) (message.Publisher, error) {
			return publisherFunc(func(topic string, msgs ...*message.Message) error {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range msgs { // one by one, and the second fails at first
					seen = append(seen, m.UUID)
					if _, leaked := m.Metadata["spillway-attempt"]; leaked {
						t.Error("our metadata gets into decorators")
					}
					if len(seen) == 2 {
						return errors.New("not yet")
					}
					if err := pub.Publish(topic, m); err != nil {
						return err
					}
				}
				return nil
			}), nil
		})
		s.produce(func(*message.Message) ([]*message.Message, error) {
			msgs := outputs("a", "b")
			msgs[0].Metadata.Set("spillway-attempt", "3")
			return msgs, nil
		})
		s.start()
		s.publish("x")
		after(time.Minute)
		if diff := cmp.Diff([]string{"a", "b", "a", "b"}, seen); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		s.stop()
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeProcessed)
	})
}

// At-least-once: what was published before the batch broke is published again.
func TestPartlyPublishedBatchIsPublishedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: memory.Publish, Stream: outTopic, ID: "b", Do: memory.Fail(nil)})
		s.produce(func(*message.Message) ([]*message.Message, error) { return outputs("a", "b", "c"), nil })
		s.start()
		s.publish("x")
		after(time.Minute)
		var ids []string
		for _, r := range s.broker.Records(outTopic) {
			ids = append(ids, r.ID)
		}
		if diff := cmp.Diff([]string{"a", "a", "b", "c"}, ids); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
		s.stop()
		s.wantOutcomes(middleware.OutcomeRetried, middleware.OutcomeProcessed)
		wantNoFaultsLeft(t, s.broker)
	})
}

// An output whose confirmation got lost is there twice, and the message is not
// lost.
func TestLostConfirmationOfAnOutputIsADuplicate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: memory.Publish, Stream: outTopic, Do: memory.FailAfter(nil)})
		s.produce(func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil })
		s.start()
		s.publish("x")
		after(time.Minute)
		wantDepths(t, s.broker, map[string]int{outTopic: 2})
		s.stop()
		wantNoFaultsLeft(t, s.broker)
	})
}

// The chain alone, without the decorator that Install adds.
func TestMiddlewareAloneReportsEachOutcomeOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		fault []memory.Fault
		want  []middleware.Outcome
	}{
		"published": {nil, []middleware.Outcome{middleware.OutcomeProcessed}},
		"publish error goes back to the broker, uncounted": {
			[]memory.Fault{{On: memory.Publish, Stream: outTopic, Do: memory.Fail(nil)}},
			[]middleware.Outcome{middleware.OutcomeProcessed, middleware.OutcomeReturned},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newService(t, spillway.Config{})
				s.router.AddMiddleware(s.sw.Middleware())
				s.broker.Inject(tc.fault...)
				s.produce(func(msg *message.Message) ([]*message.Message, error) {
					if d, _ := spillway.DeliveryFrom(msg.Context()); d.State.Attempt != 1 {
						t.Errorf("attempt %d", d.State.Attempt)
					}
					return outputs("a"), nil
				})
				s.start()
				s.publish("x")
				after(time.Minute)
				s.stop()
				got := s.outcomesNow()
				slices.Sort(got) // the Router settles unasked, so its outcome is told beside the next delivery
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
				wantDepths(t, s.broker, map[string]int{outTopic: 1})
				wantNoFaultsLeft(t, s.broker)
			})
		})
	}
}

// Publishing to another broker than the one that is consumed.
func TestOutputsOfConcurrentAttemptsAreFinishedApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Concurrency: 16})
		pub := publisherFunc(func(_ string, msgs ...*message.Message) error {
			work(time.Second)
			if msgs[0].UUID == "out-3" {
				return failure.Permanent(errors.New("refused"))
			}
			return nil
		})
		s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, pub,
			func(msg *message.Message) ([]*message.Message, error) { return outputs("out-" + msg.UUID), nil })
		s.start()
		s.publish(make([]string, 16)...)
		after(time.Second)
		rec, _ := only(t, s.broker, dlqOf)
		if rec.ID != "3" {
			t.Errorf("dead letter is %q", rec.ID)
		}
		s.stop()
		counts := map[middleware.Outcome]int{}
		for _, o := range s.outcomesNow() {
			counts[o]++
		}
		if diff := cmp.Diff(map[middleware.Outcome]int{middleware.OutcomeProcessed: 15, middleware.OutcomeDeadLettered: 1}, counts); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	})
}

// A handler may return one and the same output for many messages at a time. Its
// object is not ours to write to; with the attempt in its context, an error of
// publishing would be decided about for the wrong message.
func TestSharedOutputIsNotTouched(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Concurrency: 16})
		shared := outputs("a")
		s.produce(func(*message.Message) ([]*message.Message, error) { return shared, nil })
		s.start()
		s.publish(make([]string, 100)...)
		after(0)
		s.stop()
		wantDepths(t, s.broker, map[string]int{outTopic: 100})
		if shared[0].Context() != context.Background() || len(shared) != 1 {
			t.Error("the handler's output was changed")
		}
	})
}

// An in-process Pub/Sub can hand the context of an output on to the handlers that
// consume it. What becomes of their outputs is not our attempt's affair.
func TestOutputsOfLaterHandlersAreNotOurs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		channel := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true, BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, channel,
			func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil })
		var published, failed int
		pub := publisherFunc(func(string, ...*message.Message) error {
			if failed == 0 {
				failed++
				return errors.New("not yet")
			}
			published++
			return nil
		})
		s.router.AddHandler("forward", outTopic, channel, "archive", pub, message.PassthroughHandler)
		s.start()
		s.publish("body")
		after(time.Minute)
		s.stop()
		s.wantOutcomes(middleware.OutcomeProcessed)
		if published != 1 {
			t.Errorf("the later handler published %d times, want once", published)
		}
		wantDepths(t, s.broker, nil)
	})
}

// K28: each message of a batch has its own outcome, with its own reason.
func TestEachMessageHasItsOwnOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Concurrency: 3})
		s.consume(func(msg *message.Message) error {
			if msg.UUID == "2" {
				return failure.Permanent(fmt.Errorf("message %s has no amount", msg.UUID))
			}
			return nil
		})
		s.start()
		s.publish("a", "b", "c")
		after(0)
		rec, st := only(t, s.broker, dlqOf)
		if rec.ID != "2" || st.Message != "message 2 has no amount" {
			t.Errorf("dead letter %s: %q", rec.ID, st.Message)
		}
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		s.stop()
	})
}

// An attempt is finished by its own outputs, never by those of a message that
// inherited their context. Here a later stage fails to publish; that must not
// be decided about as a failure of the first stage.
func TestInheritedContextDoesNotFinishAnotherAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		local := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true, BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		first, second := 0, 0
		s.router.AddHandler("first", topic, s.sw.Subscriber(), "local", local, func(*message.Message) ([]*message.Message, error) {
			first++
			return outputs("a"), nil
		})
		s.router.AddHandler("second", "local", local, outTopic, &failsOnce{Publisher: s.sw.Publisher()}, func(msg *message.Message) ([]*message.Message, error) {
			second++
			return message.Messages{message.NewMessageWithContext(msg.Context(), "b", nil)}, nil
		})
		s.start()
		s.publish("x")
		after(time.Hour)
		if first != 1 || second != 2 { // the second is retried by its own broker
			t.Errorf("the first stage ran %d times, the second %d times, want 1 and 2", first, second)
		}
		wantDepths(t, s.broker, map[string]int{outTopic: 1})
		s.stop()
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
}
