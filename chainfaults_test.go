package spillway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// K1 and K30: a hand-off that fails is repeated with the decision that was
// taken, the source is not acknowledged before, and the reason gets there.
func TestFailingHandoffIsRepeatedUntilConfirmed(t *testing.T) {
	for name, tc := range map[string]struct {
		stream string
		err    error
	}{
		"retry":       {retryOf, errors.New("no")},
		"parking":     {parkingOf, failure.Waiting(errors.New("no"), "approval")},
		"dead letter": {dlqOf, failure.Permanent(errors.New("no"))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.broker.Inject(memory.Fault{On: memory.Handoff, Stream: tc.stream, Times: 2, Do: memory.Fail(nil)})
				var calls atomic.Int32
				s.consume(func(*message.Message) error { calls.Add(1); return tc.err })
				s.start()
				s.publish("body")
				after(0)
				wantDepths(t, s.broker, map[string]int{topic: 1}) // not acknowledged
				after(time.Second)
				_, st := only(t, s.broker, tc.stream)
				wantDepths(t, s.broker, map[string]int{tc.stream: 1})
				if n := calls.Load(); n != 1 || st.Message != "no" {
					t.Errorf("%d calls, reason %q", n, st.Message)
				}
				s.stop()
				if n := len(s.handoffFailures()); n != 2 {
					t.Errorf("%d failures reported, want 2", n)
				}
				wantNoFaultsLeft(t, s.broker)
			})
		})
	}
}

// K2: a hand-off that always fails is tried at a rate that falls to twice a
// minute, and gets through within one pause of the broker's healing.
func TestFailingHandoffBacksOffAndRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: memory.Handoff, Times: memory.Always, Do: memory.Fail(nil)})
		s.consume(func(*message.Message) error { return failure.Permanent(errors.New("no")) })
		s.start()
		s.publish("body")
		begin := time.Now()
		after(time.Hour)
		tries := s.handoffFailures()
		if n := len(tries); n < 70 || n > 260 {
			t.Errorf("%d tries in an hour", n)
		}
		if first := tries[1].at.Sub(begin); first < 50*time.Millisecond || first > 150*time.Millisecond {
			t.Errorf("the second try came after %s", first)
		}
		for i, try := range tries[:len(tries)-1] {
			if pause := tries[i+1].at.Sub(try.at); pause != try.Next {
				t.Errorf("try %d announced a pause of %s and made one of %s", i+1, try.Next, pause)
			}
			if try.Tries != i+1 {
				t.Errorf("try %d is reported as %d", i+1, try.Tries)
			}
		}
		s.broker.ClearFaults()
		after(45 * time.Second)
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		s.stop()
	})
}

// K4: what is too large for every stream is tried once more without optional
// metadata, and then goes to the last resort: a file whose content is the record.
func TestTooLargeIsTrimmedOnceThenGoesToTheLastResort(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	dir := t.TempDir()
	s := installedOn(t, memory.New(memory.Config{MaxMessageBytes: limit, HeadRoom: memory.NoHeadRoom}), spillway.Config{LastResort: dir})
	s.consume(func(*message.Message) error { return failure.Permanent(errors.New("no"), failure.ClassValidation) })
	s.start()
	body := bytes.Repeat([]byte{0xff, 0, 'a', '"'}, limit/4-25)
	rec := adapters.Record{ID: "1", Key: []byte{0x80}, Payload: body, Headers: []adapters.Header{
		{Key: "tenant", Value: []byte("a")}, {Key: "tenant", Value: []byte{0xff}}, {Key: "empty", Value: []byte{}},
	}}
	if err := s.broker.Publish(topic, rec); err != nil {
		t.Fatal(err)
	}
	for len(s.outcomesNow()) == 0 {
		<-s.changed
	}
	s.stop()
	s.wantOutcomes(middleware.OutcomeLastResort)
	if tries := s.handoffFailures(); len(tries) != 2 || !errors.Is(tries[1].Err, adapters.ErrTooLarge) {
		t.Errorf("%d tries, want 2: in full and trimmed", len(tries))
	}
	wantDepths(t, s.broker, nil)

	letters := lastResort(t, dir)
	if len(letters) != 1 {
		t.Fatalf("%d letters, want 1", len(letters))
	}
	d := letters[0]
	got := adapters.Record{ID: d.FailedMessage.ID, Key: d.FailedMessage.Key, Payload: d.FailedMessage.Payload, Headers: d.FailedMessage.Headers}
	if diff := cmp.Diff(rec, got); diff != "" {
		t.Errorf("record in the file (-want +got):\n%s", diff)
	}
	if d.Failure.Class != failure.ClassValidation || d.Failure.Message != "no" || d.Source.Topic != topic || d.Consumer.Group != group {
		t.Errorf("the letter says %+v, %+v, %+v", d.Failure, d.Source, d.Consumer)
	}
}

// K4 in the ordinary case: dead letter streams have head-room.
func TestFullSizeMessageFitsItsDeadLetterStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const limit = 10_000
		s := installedOn(t, memory.New(memory.Config{MaxMessageBytes: limit}), spillway.Config{})
		s.consume(func(*message.Message) error { return failure.Permanent(errors.New(strings.Repeat("é", 1000))) })
		s.start()
		s.publish(strings.Repeat("x", limit-10))
		after(0)
		s.stop()
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		if n := len(s.handoffFailures()); n > 0 {
			t.Errorf("%d hand-offs failed", n)
		}
	})
}

// K4 without a last resort: the message stays with the broker, in its slot,
// with an alarm twice a minute, and no loop.
func TestRefusedWithoutALastResortStaysWithAnAlarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: memory.Handoff, Times: memory.Always, Do: memory.Fail(adapters.ErrRefused)})
		var calls atomic.Int32
		s.consume(func(*message.Message) error { calls.Add(1); return errors.New("no") })
		s.start()
		s.publish("body")
		after(10 * time.Minute)
		if n := len(s.handoffFailures()); n < 20 || n > 22 {
			t.Errorf("%d alarms in ten minutes, want one each 30s", n)
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		wantDepths(t, s.broker, map[string]int{topic: 1})
		s.broker.ClearFaults()
		after(31 * time.Second)
		wantDepths(t, s.broker, map[string]int{retryOf: 1})
		s.stop()
	})
}

// K8 and K27: a consumer of dead letters that can't process one never feeds its
// own stream. The letter comes back the later, the more often it came.
func TestDeadLetterConsumerNeverFeedsItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Group: "ops"})
		var at []time.Time
		s.router.AddConsumerHandler("look", dlqOf, s.sw.Subscriber(), func(*message.Message) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			at = append(at, time.Now())
			return failure.Permanent(errors.New("no"))
		})
		if err := s.broker.Publisher().Publish(dlqOf, message.NewMessage("1", []byte("body"))); err != nil {
			t.Fatal(err)
		}
		s.start()
		after(time.Hour)
		s.stop()
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		if len(at) < 50 || len(at) > 75 {
			t.Errorf("%d calls in an hour", len(at))
		}
		for i := 2; i < len(at); i++ {
			before, now := at[i-1].Sub(at[i-2]), at[i].Sub(at[i-1])
			if now < before || now > time.Minute {
				t.Errorf("pause %d is %s after one of %s", i, now, before)
			}
		}
	})
}

// K10: the handler is called once for each delivery. Nothing retries in process.
func TestOneCallForEachDelivery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		deliveries := map[string]int{}
		s.consume(func(msg *message.Message) error {
			d, _ := spillway.DeliveryFrom(msg.Context())
			deliveries[fmt.Sprint(d.Stream, d.State.Attempt, d.Count)]++
			return errors.New("no")
		})
		s.start()
		s.publish("body")
		after(time.Hour)
		s.stop()
		if len(deliveries) != 5 {
			t.Errorf("deliveries: %v", deliveries)
		}
		for d, n := range deliveries {
			if n != 1 {
				t.Errorf("%d calls for delivery %s", n, d)
			}
		}
	})
}

// K11: the whole tree counts, the first rule of the user wins, and every attempt
// is classified afresh.
func TestEveryAttemptIsClassifiedAfresh(t *testing.T) {
	base := errors.New("base")
	deep := failure.Permanent(base)
	for i := range 5 {
		deep = fmt.Errorf("level %d: %w", i, deep)
	}
	for name, tc := range map[string]struct {
		errs  []error // one for each call
		rules []failure.Rule
		want  []middleware.Outcome
	}{
		"five deep": {[]error{deep}, nil, []middleware.Outcome{middleware.OutcomeDeadLettered}},
		"join of transient and permanent": {
			[]error{errors.Join(failure.Transient(base), failure.Permanent(base))}, nil,
			[]middleware.Outcome{middleware.OutcomeDeadLettered},
		},
		"transient twice, then permanent": {
			[]error{context.DeadlineExceeded, context.DeadlineExceeded, deep}, nil,
			[]middleware.Outcome{middleware.OutcomeRetried, middleware.OutcomeRetried, middleware.OutcomeDeadLettered},
		},
		"the user's rule before the built-in": {
			[]error{context.DeadlineExceeded}, []failure.Rule{{Match: func(err error) (failure.Failure, bool) {
				return failure.Failure{Nature: failure.NaturePermanent, Class: "mine"}, errors.Is(err, context.DeadlineExceeded)
			}}},
			[]middleware.Outcome{middleware.OutcomeDeadLettered},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{Rules: tc.rules})
				calls := 0
				s.consume(func(*message.Message) error { calls++; return tc.errs[calls-1] })
				s.start()
				s.publish("body")
				after(time.Minute)
				s.stop()
				s.wantOutcomes(tc.want...)
			})
		})
	}
}

// K6 over the whole chain: the counter has room for more than a byte.
func TestThreeHundredAttemptsOverTheChain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Unknown: 300}}})
		calls := 0
		s.consume(func(*message.Message) error { calls++; return errors.New("no") })
		s.start()
		s.publish("body")
		after(7 * 24 * time.Hour)
		s.stop()
		if calls != 300 {
			t.Errorf("%d calls, want 300", calls)
		}
		_, st := only(t, s.broker, dlqOf)
		if st.Attempt != 300 {
			t.Errorf("dead letter of attempt %d", st.Attempt)
		}
	})
}

// K3: what a message carries does not grow with its hops.
func TestMetadataDoesNotGrowWithAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Unknown: 100}}})
		var sizes []int
		s.consume(func(msg *message.Message) error {
			d, _ := spillway.DeliveryFrom(msg.Context())
			size := 0
			for _, h := range d.Headers {
				if h.Key != "spillway-attempt" {
					size += len(h.Key) + len(h.Value)
				}
			}
			sizes = append(sizes, size)
			return fmt.Errorf("no, for %s", strings.Repeat("x", 1000))
		})
		s.start()
		s.publish("body")
		after(24 * time.Hour)
		s.stop()
		if len(sizes) != 100 || sizes[1] != sizes[99] {
			t.Errorf("%d deliveries, metadata of %v bytes", len(sizes), sizes)
		}
	})
}

// K33 and invariant 6: one failure among 500 costs one call more, and no time.
func TestOneFailureDoesNotDelayItsNeighbours(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		begin := time.Now()
		calls, last := 0, time.Duration(0)
		s.consume(func(msg *message.Message) error {
			calls++
			d, _ := spillway.DeliveryFrom(msg.Context())
			if msg.UUID == "250" && d.State.Attempt == 1 {
				return errors.New("not yet")
			}
			if msg.UUID != "250" {
				last = time.Since(begin)
			}
			return nil
		})
		s.start()
		s.publish(make([]string, 500)...)
		after(time.Minute)
		s.stop()
		if calls != 501 || last != 0 {
			t.Errorf("%d calls, the last healthy message after %s; want 501, 0s", calls, last)
		}
	})
}

// O37 and O38: with and without retries, for a consumer of a topic and one of
// dead letters, it ends: retries and dead letter stream are bounded as a pair.
func TestRetriesAndDeadLettersAreBoundedAsAPair(t *testing.T) {
	for _, onDLQ := range []bool{false, true} {
		for _, attempts := range []int{1, 2, 5} {
			for _, permanent := range []bool{false, true} {
				t.Run(fmt.Sprintf("dead letter consumer %t, %d attempts, permanent %t", onDLQ, attempts, permanent), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						s := newService(t, spillway.Config{
							Policy: policy.Policy{Attempts: policy.Attempts{Unknown: attempts, Transient: attempts}},
						})
						s.sw.Install(s.router)
						source := topic
						if onDLQ {
							source = "payments.audit.dlq"
						}
						var seen []int
						s.router.AddConsumerHandler("charge", source, s.sw.Subscriber(), func(msg *message.Message) error {
							d, _ := spillway.DeliveryFrom(msg.Context())
							s.mu.Lock()
							defer s.mu.Unlock()
							seen = append(seen, d.State.Attempt)
							if permanent {
								return failure.Permanent(errors.New("the reason"))
							}
							return errors.New("the reason")
						})
						if err := s.broker.Publisher().Publish(source, message.NewMessage("1", nil)); err != nil {
							t.Fatal(err)
						}
						s.start()
						after(time.Hour)
						s.stop()
						want := attempts
						if permanent {
							want = 1
						}
						if last := seen[len(seen)-1]; last != want {
							t.Errorf("the last attempt is %d, want %d", last, want)
						}
						if onDLQ {
							// It stays in one place, and is looked at about once a minute.
							if n := len(seen); n > want+75 {
								t.Errorf("%d calls in an hour", n)
							}
							if n := s.broker.Depth(source) + s.broker.Depth(source+".billing.retry"); n != 1 || s.broker.Depth(source+".billing.dlq") != 0 {
								t.Errorf("records: %v", depths(s.broker))
							}
							return
						}
						if len(seen) != want {
							t.Errorf("%d calls, want %d", len(seen), want)
						}
						wantDepths(t, s.broker, map[string]int{dlqOf: 1})
						if _, st := only(t, s.broker, dlqOf); st.Message != "the reason" || st.Reason == "" {
							t.Errorf("the dead letter says %q, %q", st.Message, st.Reason)
						}
					})
				})
			}
		}
	}
}

// K24: one traceparent, with the trace that it came with.
func TestTraceStaysWithTheMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		s := installed(t, spillway.Config{})
		s.consume(twiceThenForGood)
		s.start()
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set("traceparent", parent)
		s.send(msg)
		after(time.Minute)
		rec, st := only(t, s.broker, dlqOf)
		n := 0
		for _, h := range rec.Headers {
			if h.Key == "traceparent" {
				if n++; string(h.Value) != parent {
					t.Errorf("traceparent is %s", h.Value)
				}
			}
		}
		if n != 1 || st.TraceID != "0af7651916cd43dd8448eb211c80319c" || st.Attempt != 3 {
			t.Errorf("%d values, trace id %s, attempt %d", n, st.TraceID, st.Attempt)
		}
		s.stop()
	})
}

// K15: counters travel with the messages, over restarts and among neighbours.
func TestEachPoisonMessageGetsItsAttemptsOverRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broker := memory.New(memory.Config{Partitions: 2})
		calls := map[string]int{}
		for run := range 10 {
			s := installedOn(t, broker, spillway.Config{})
			s.consume(func(msg *message.Message) error {
				calls[msg.UUID]++
				if strings.HasPrefix(msg.UUID, "poison") {
					return errors.New("no")
				}
				return nil
			})
			s.start()
			if run == 0 {
				for _, id := range []string{"good-1", "poison-1", "good-2", "poison-2", "good-3"} {
					s.send(message.NewMessage(id, nil))
				}
			}
			after(10 * time.Second)
			s.stop()
		}
		want := map[string]int{"good-1": 1, "good-2": 1, "good-3": 1, "poison-1": 5, "poison-2": 5}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		wantDepths(t, broker, map[string]int{dlqOf: 2})
	})
}

// K13: no pause survives in a process. A message that waits is handled at its
// due time, once, whoever comes and goes meanwhile.
func TestWaitingMessageIsHandledOnceAtItsDueTimeOverRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broker := memory.New(memory.Config{})
		var handled []time.Time
		var due time.Time
		for run := range 20 {
			s := installedOn(t, broker, spillway.Config{})
			s.consume(func(msg *message.Message) error {
				if d, _ := spillway.DeliveryFrom(msg.Context()); d.State.Attempt == 1 {
					return failure.RetryAfter(errors.New("not yet"), time.Minute)
				}
				handled = append(handled, time.Now())
				return nil
			})
			s.start()
			if run == 0 {
				s.publish("body")
				after(0)
				_, st := only(t, broker, retryOf)
				due = st.DueAt
			}
			after(10 * time.Second)
			s.stop()
		}
		if len(handled) != 1 || !handled[0].Equal(due) {
			t.Errorf("handled at %v, due at %v", handled, due)
		}
	})
}

// A crash between hand-off and acknowledgement leaves a duplicate, with the same
// dead letter id, and no loss.
func TestCrashBetweenHandoffAndAckIsADuplicateWithOneID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broker := memory.New(memory.Config{})
		broker.Inject(memory.Fault{On: memory.Ack, Do: memory.Crash()})
		permanent := func(*message.Message) error { return failure.Permanent(errors.New("no")) }
		s := installedOn(t, broker, spillway.Config{})
		s.consume(permanent)
		s.start()
		s.publish("body")
		after(0)
		s.stop()
		next := installedOn(t, broker, spillway.Config{})
		next.consume(permanent)
		next.start()
		after(0)
		next.stop()
		records := broker.Records(dlqOf)
		if len(records) != 2 {
			t.Fatalf("%d dead letters, want 2 of one id", len(records))
		}
		ids := map[string]bool{}
		for _, rec := range records {
			for _, h := range rec.Headers {
				if h.Key == "spillway-dead-letter-id" {
					ids[string(h.Value)] = true
				}
			}
		}
		if len(ids) != 1 {
			t.Errorf("ids %v", ids)
		}
		wantNoFaultsLeft(t, broker)
	})
}

// K22: stream names depend on nothing that a policy says, so what waits under
// one policy is found under the next.
func TestPolicyChangeStrandsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broker := memory.New(memory.Config{})
		fail := true
		var handled []string
		for run, p := range []policy.Policy{
			{Attempts: policy.Attempts{Unknown: 20}, Backoff: policy.Backoff{Base: time.Minute, Jitter: policy.JitterNone}},
			{Attempts: policy.Attempts{Unknown: 3}, Backoff: policy.Backoff{Base: time.Second}},
		} {
			s := installedOn(t, broker, spillway.Config{Policy: p})
			s.consume(func(msg *message.Message) error {
				if fail {
					return errors.New("no")
				}
				handled = append(handled, msg.UUID)
				return nil
			})
			s.start()
			if run == 0 {
				s.publish("a", "b", "c")
				after(5 * time.Minute)
			} else {
				after(time.Hour)
			}
			s.stop()
			fail = false
		}
		if len(handled) != 3 {
			t.Errorf("handled: %v", handled)
		}
		wantDepths(t, broker, nil)
	})
}

// K23: the streams of a consumer are five, whatever the number of attempts, and
// handlers of one group share them.
func TestStreamsDoNotMultiplyWithAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		for _, source := range []string{"a", "b", "c"} {
			s.router.AddConsumerHandler("h-"+source, source, s.sw.Subscriber(), func(*message.Message) error {
				return failure.Transient(errors.New("no"))
			})
		}
		s.start()
		for _, source := range []string{"a", "b", "c"} {
			if err := s.sw.Publisher().Publish(source, message.NewMessage("1", nil)); err != nil {
				t.Fatal(err)
			}
		}
		after(time.Hour)
		s.stop()
		if streams := s.broker.Streams(); len(streams) > 15 {
			t.Errorf("%d streams for three consumers: %v", len(streams), streams)
		}
	})
}

// K17: a wait is as long as it should be, whatever its length.
func TestWaitsAreAsLongAsDecided(t *testing.T) {
	for _, delay := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 25 * time.Hour} {
		t.Run(delay.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{Policy: policy.Policy{
					Backoff: policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone},
				}})
				var at []time.Time
				s.consume(func(*message.Message) error {
					if at = append(at, time.Now()); len(at) < 4 {
						return errors.New("not yet")
					}
					return nil
				})
				s.start()
				s.publish("body")
				after(4 * delay)
				s.stop()
				if len(at) != 4 {
					t.Fatalf("%d calls, want 4", len(at))
				}
				for i := 1; i < len(at); i++ {
					if waited := at[i].Sub(at[i-1]); waited != delay {
						t.Errorf("wait %d took %s", i, waited)
					}
				}
			})
		})
	}
}

// R7, R26 and O32: headers in which brokers count mean nothing to us, whoever
// wrote them, and stay what they are.
func TestForgedBrokerCountersMeanNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		calls := 0
		s.consume(func(*message.Message) error { calls++; return errors.New("no") })
		s.start()
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set("x-death", "count=99")
		msg.Metadata.Set("x-delivery-count", "99")
		s.send(msg)
		after(time.Hour)
		s.stop()
		rec, _ := only(t, s.broker, dlqOf)
		if calls != 5 || string(rec.Headers[0].Value) != "count=99" || string(rec.Headers[1].Value) != "99" {
			t.Errorf("%d calls, headers %v", calls, rec.Headers[:2])
		}
	})
}

// A dead letter that somebody moved back to its topic with the broker's own means,
// such as SQS's console or a shovel, state and all, is a replay too. S35.
func TestDeadLetterMovedBackByHandIsAReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return errors.New("no") })
		s.start()
		s.publish("body")
		after(time.Hour)
		moved, first := only(t, s.broker, dlqOf)
		view := connect(t, s.broker)
		if err := view.Drain(t.Context(), dlqOf, func(context.Context, adapters.Record) error { return s.broker.Publish(topic, moved) }); err != nil {
			t.Fatal(err)
		}
		if err := view.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		_, second := only(t, s.broker, dlqOf)
		s.stop()
		s.wantAttempts(1, 2, 3, 4, 5, 1, 2, 3, 4, 5)
		if second.ReplayOf != first.DeadLetterID || second.DeadLetterID == first.DeadLetterID || second.ReplayCount != 1 {
			t.Errorf("first %s; second %s of %s, replay %d", first.DeadLetterID, second.DeadLetterID, second.ReplayOf, second.ReplayCount)
		}
		if second.Source.Offset == nil || *second.Source.Offset != *first.Source.Offset {
			t.Errorf("its position is %v, want that of the first delivery", second.Source)
		}
	})
}

// R27 and O15: a replay begins with a fresh budget of attempts, and what fails
// again is a new dead letter that names the one it came from.
func TestReplayHasAFreshBudgetAndKeepsItsLineage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return errors.New("no") })
		s.start()
		s.publish("body")
		after(time.Hour)
		_, first := only(t, s.broker, dlqOf)
		replay(t, s.broker)
		after(time.Hour)
		_, second := only(t, s.broker, dlqOf)
		s.stop()
		s.wantAttempts(1, 2, 3, 4, 5, 1, 2, 3, 4, 5)
		if second.ReplayOf != first.DeadLetterID || second.DeadLetterID == first.DeadLetterID || second.ReplayCount != 1 {
			t.Errorf("first %s; second %s of %s, replay %d", first.DeadLetterID, second.DeadLetterID, second.ReplayOf, second.ReplayCount)
		}
		if !s.lastOutcome().Replay {
			t.Error("the outcome is not marked as that of a replay")
		}
	})
}
