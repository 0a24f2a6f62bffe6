package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// always fails for good, after two attempts that are retried.
func twiceThenForGood(msg *message.Message) error {
	if d, _ := spillway.DeliveryFrom(msg.Context()); d.State.Attempt < 3 {
		return errors.New("not yet")
	}
	return failure.Permanent(errors.New("no"))
}

// K5: the dead letter's body is the body, whatever it is.
func TestBodiesArriveInTheDeadLetterUnchanged(t *testing.T) {
	const limit = 64 << 10
	for name, body := range map[string][]byte{
		"nil":               nil,
		"empty":             {},
		"invalid UTF-8":     {0xff, 0xfe, 'a', 0xc3},
		"zeros":             make([]byte, 100),
		"at the size limit": []byte(strings.Repeat("\xff", limit)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installedOn(t, memory.New(memory.Config{MaxMessageBytes: limit}), spillway.Config{})
				s.consume(twiceThenForGood)
				s.start()
				if err := s.broker.Publish(topic, adapters.Record{ID: "1", Payload: body}); err != nil {
					t.Fatal(err)
				}
				after(time.Minute)
				rec, st := only(t, s.broker, dlqOf)
				if diff := cmp.Diff(body, rec.Payload); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
				if st.Attempt != 3 || st.Truncated {
					t.Errorf("dead letter of attempt %d, truncated %t", st.Attempt, st.Truncated)
				}
				s.stop()
			})
		})
	}
}

// O19: all metadata together fits the limit, with the user's in full; ours goes
// where it must, and at the first try, not after the broker has refused.
func TestMetadataNearTheLimitLeavesRoomForOurs(t *testing.T) {
	const limit = 4096
	for _, user := range []int{0, 2000, 3000, 3400} {
		t.Run(fmt.Sprintf("%d bytes of the user", user), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installedOn(t, memory.New(memory.Config{MaxMetadataBytes: limit}), spillway.Config{})
				s.consume(func(msg *message.Message) error {
					return failure.Permanent(errors.New(strings.Repeat("é", 1<<19)))
				})
				s.start()
				value := strings.Repeat("v", user)
				msg := message.NewMessage("1", []byte("body"))
				msg.Metadata.Set("tenant", value)
				s.send(msg)
				after(0)
				rec, st := only(t, s.broker, dlqOf)
				size := 0
				for _, h := range rec.Headers {
					size += len(h.Key) + len(h.Value)
					if h.Key == "tenant" && string(h.Value) != value {
						t.Error("the user's metadata changed")
					}
				}
				if size > limit {
					t.Errorf("%d bytes of metadata, over %d", size, limit)
				}
				if st.Class == "" || st.Reason != string(policy.ReasonPermanent) || !st.Truncated {
					t.Errorf("class %q, reason %q, truncated %t", st.Class, st.Reason, st.Truncated)
				}
				if failed := s.handoffFailures(); len(failed) > 0 {
					t.Errorf("%d hand-offs were refused first: %v", len(failed), failed[0].Err)
				}
				s.stop()
			})
		})
	}
}

// R14: the budget for our keys is what the user's headers leave, and optional
// keys go first: the error text stays, cut, as long as there is room for it.
func TestUserHeadersAreInTheBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installedOn(t, memory.New(memory.Config{MaxMetadataBytes: 2000}), spillway.Config{})
		s.consume(func(*message.Message) error {
			return failure.Permanent(errors.New("invalid: "+strings.Repeat("x", 400)), failure.Code("BAD_SCHEMA"))
		})
		s.start()
		put(t, s.broker, topic, "m", adapters.Header{Key: "baggage", Value: []byte(strings.Repeat("u", 1100))})
		after(time.Minute)
		if rec, st := only(t, s.broker, dlqOf); st.Message == "" || st.Code == "" {
			t.Errorf("no error text or code, though there is room: %q", rec.Headers)
		}
		s.stop()
	})
}

// Metadata that fills the whole limit leaves no room for ours: no stream can
// take the message with a state. It goes to the last resort, and is not lost.
func TestMetadataThatFillsTheLimitGoesToTheLastResort(t *testing.T) {
	t.Parallel()
	const limit = 4096
	dir := t.TempDir()
	done := make(chan struct{})
	s := serviceOn(t, memory.New(memory.Config{MaxMetadataBytes: limit}), spillway.Config{
		LastResort: dir,
		Hooks: middleware.Hooks{OnOutcome: func(_ context.Context, o *middleware.OutcomeInfo) {
			if o.Outcome == middleware.OutcomeLastResort {
				close(done)
			}
		}},
	})
	s.sw.Install(s.router)
	s.consume(func(*message.Message) error { return errors.New("no") })
	s.start()
	msg := message.NewMessage("1", []byte("body"))
	msg.Metadata.Set("tenant", strings.Repeat("v", limit-len("tenant")))
	s.send(msg)
	<-done
	s.stop()
	letters := lastResort(t, dir)
	if len(letters) != 1 || string(letters[0].FailedMessage.Payload) != "body" || letters[0].FailedMessage.ID != "1" {
		t.Errorf("the last resort holds %+v", letters)
	}
	wantDepths(t, s.broker, nil)
}

// K7: state that a producer wrote means nothing on the main stream, and the
// handler does not even see it.
func TestForgedStateOnMainIsIgnored(t *testing.T) {
	for _, value := range []string{"", "-1", "0", "999999999999", "abc", "9223372036854775808", "9999-12-31T23:59:59Z", "\xff"} {
		t.Run(fmt.Sprintf("%q", value), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				var at []time.Time
				s.consume(func(msg *message.Message) error {
					at = append(at, time.Now())
					if len(msg.Metadata) > 0 {
						t.Errorf("the handler sees %v", msg.Metadata)
					}
					return failure.Permanent(errors.New("no"))
				})
				s.start()
				msg := message.NewMessage("1", nil)
				for _, key := range []string{
					"attempt", "first-attempt-at", "due-at", "hops", "source-topic", "source-offset", "parked-at", "park-checks",
					"replay-count", "dead-letter-id", "dead-lettered-at", "state-version", "error-nature",
				} {
					msg.Metadata.Set("spillway-"+key, value)
				}
				msg.Metadata.Set("Spillway-Consumer-Group", group)
				sent := time.Now()
				s.send(msg)
				after(0)
				if len(at) != 1 || !at[0].Equal(sent) {
					t.Errorf("handled at %v, want once at %v", at, sent)
				}
				_, st := only(t, s.broker, dlqOf)
				if st.Attempt != 1 || st.Source.Topic != topic || st.ReplayCount != 0 || !st.FirstAttemptAt.Equal(sent) {
					t.Errorf("dead letter has state %+v", st)
				}
				s.stop()
			})
		})
	}
}

// K7 and invariant 10: nor does state that is well forged, or that a handler
// copied from a retry into what it published.
func TestWellForgedStateOnMainIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return errors.New("no") })
		s.start()
		pairs, _ := envelope.State{
			Attempt: 4, ConsumerGroup: group, Source: envelope.Position{Topic: topic}, DueAt: time.Now().Add(time.Hour),
			FirstAttemptAt: time.Now().Add(-24 * time.Hour), ReplayCount: 9, DeadLetterID: "mine",
		}.Pairs(0)
		msg := message.NewMessage("1", nil)
		for _, p := range pairs {
			msg.Metadata.Set(p.Key, p.Value)
		}
		s.send(msg)
		after(time.Hour)
		s.stop()
		s.wantAttempts(1, 2, 3, 4, 5)
		if _, st := only(t, s.broker, dlqOf); st.ReplayCount != 0 || st.DeadLetterID == "mine" {
			t.Errorf("dead letter %s of replay %d", st.DeadLetterID, st.ReplayCount)
		}
	})
}

// K7 on the retry stream: what is written there is ours if it names us, and
// bounded even then.
func TestForgedStateOnRetryIsClamped(t *testing.T) {
	for _, tc := range []struct {
		key, value string
		attempts   int           // that the handler sees first
		delay      time.Duration // before it does
	}{
		{"spillway-attempt", "", 1, 0},
		{"spillway-attempt", "-1", 1, 0},
		{"spillway-attempt", "abc", 1, 0},
		{"spillway-attempt", "9223372036854775808", 1, 0},
		{"spillway-attempt", "4", 4, 0},
		{"spillway-due-at", "abc", 1, 0},
		{"spillway-due-at", "9999-12-31T23:59:59Z", 1, 7 * 24 * time.Hour},
		{"spillway-due-at", "0001-01-01T00:00:00Z", 1, 0},
	} {
		t.Run(fmt.Sprintf("%s=%q", tc.key, tc.value), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				var first int
				var at time.Time
				s.consume(func(msg *message.Message) error {
					d, _ := spillway.DeliveryFrom(msg.Context())
					first, at = d.State.Attempt, time.Now()
					return nil
				})
				s.start()
				sent := time.Now()
				state := map[string]string{
					"spillway-state-version": "1", "spillway-consumer-group": group, "spillway-source-topic": topic, "spillway-attempt": "1",
				}
				state[tc.key] = tc.value
				rec := adapters.Record{ID: "1"}
				for k, v := range state {
					rec.Headers = append(rec.Headers, adapters.Header{Key: k, Value: []byte(v)})
				}
				if err := s.broker.Publish(retryOf, rec); err != nil {
					t.Fatal(err)
				}
				after(8 * 24 * time.Hour)
				s.stop()
				if first != tc.attempts || at.Sub(sent) > tc.delay || tc.delay-at.Sub(sent) > time.Second {
					t.Errorf("attempt %d after %s, want %d after %s", first, at.Sub(sent), tc.attempts, tc.delay)
				}
			})
		})
	}
}

// State that another consumer wrote, and a record without any, are first
// deliveries.
func TestStateOfAnotherConsumerOnRetryIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return nil })
		s.start()
		pairs, _ := envelope.State{Attempt: 7, ConsumerGroup: "audit", Source: envelope.Position{Topic: topic}}.Pairs(0)
		rec := adapters.Record{ID: "1"}
		for _, p := range pairs {
			rec.Headers = append(rec.Headers, adapters.Header{Key: p.Key, Value: []byte(p.Value)})
		}
		if err := s.broker.Publish(retryOf, rec, adapters.Record{ID: "2"}); err != nil {
			t.Fatal(err)
		}
		after(0)
		s.stop()
		s.wantAttempts(1, 1)
	})
}

// Forged state gets no message more or fewer attempts, whatever the case of its
// keys, and no handler to see it.
func TestForgedStateChangesNoBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		calls := map[string]int{}
		s.consume(func(msg *message.Message) error {
			calls[msg.UUID]++
			for k := range msg.Metadata {
				if strings.HasPrefix(strings.ToLower(k), "spillway-") {
					t.Errorf("%s: the handler sees %s", msg.UUID, k)
				}
			}
			return failure.Transient(errors.New("later"))
		})
		s.start()
		forged := func(group string) []adapters.Header {
			return []adapters.Header{
				{Key: "Spillway-Attempt", Value: []byte("11")}, {Key: "spillway-attempt", Value: []byte("999999")},
				{Key: "SPILLWAY-DUE-AT", Value: []byte("9999-01-01T00:00:00Z")}, {Key: "spillway-replay-count", Value: []byte("10")},
				{Key: "spillway-source-topic", Value: []byte(topic)}, {Key: "spillway-consumer-group", Value: []byte(group)},
			}
		}
		put(t, s.broker, topic, "main", forged(group)...)
		put(t, s.broker, retryOf, "retry", forged("audit")...)
		after(2 * time.Hour)
		if diff := cmp.Diff(map[string]int{"main": 12, "retry": 12}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		s.stop()
	})
}

// Invariant 4: where a position is not known it is absent, not invented. A record
// that somebody wrote to the retry stream by hand has none on the topic.
func TestRecordWrittenToRetryHasNoSourcePosition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return failure.Permanent(errors.New("bad")) })
		s.start()
		put(t, s.broker, retryOf, "by hand")
		after(time.Minute)
		_, st := only(t, s.broker, dlqOf)
		if diff := cmp.Diff(envelope.Position{Topic: topic}, st.Source); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
		s.stop()
	})
}

// Two messages counted once is a loss.
func TestMessagesThatLookAlikeStayTwoDeadLetters(t *testing.T) {
	for name, records := range map[string][]adapters.Record{
		"no UUID":                            {{Payload: []byte("a")}, {Payload: []byte("a")}},
		"equal UUIDs and different payloads": {{ID: "1", Payload: []byte("a")}, {ID: "1", Payload: []byte("b")}},
		"equal in everything":                {{ID: "1", Payload: []byte("a")}, {ID: "1", Payload: []byte("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.consume(twiceThenForGood)
				s.start()
				if err := s.broker.Publish(topic, records...); err != nil {
					t.Fatal(err)
				}
				after(time.Minute)
				ids, payloads := map[string]bool{}, 0
				for _, rec := range s.broker.Records(dlqOf) {
					ids[envelope.Parse(rec.Headers, time.Now()).DeadLetterID] = true
					payloads += len(rec.Payload)
				}
				if len(ids) != 2 || ids[""] || payloads != 2 {
					t.Errorf("dead letter ids %v, %d bytes of payload", ids, payloads)
				}
				s.stop()
			})
		})
	}
}

// O19 and R14.
func TestHugeErrorTextIsCutOnARuneBoundaryEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error {
			return failure.Permanent(errors.New("x" + strings.Repeat("€", 1<<20/3)))
		})
		s.start()
		s.publish("body")
		after(0)
		_, st := only(t, s.broker, dlqOf)
		if n := utf8.RuneCountInString(st.Message); n > envelope.MaxErrorRunes || n < envelope.MaxErrorRunes/2 || !utf8.ValidString(st.Message) || !st.Truncated {
			t.Errorf("%d runes, valid %t, truncated %t", n, utf8.ValidString(st.Message), st.Truncated)
		}
		s.stop()
		if n := len(s.logs.String()); n > 64<<10 {
			t.Errorf("the log has %d bytes", n)
		}
	})
}

type panickyError struct{ in string }

func (e *panickyError) Error() string {
	if e.in == "Error" {
		panic("in Error")
	}
	return "broken error"
}

func (e *panickyError) Unwrap() error {
	if e.in == "Unwrap" {
		panic("in Unwrap")
	}
	return nil
}

// Whatever a handler does, its message is handed off once, the attempt counts,
// and the process lives on.
func TestHandlerMisbehaves(t *testing.T) {
	panicking := failure.ClassPanic
	for name, tc := range map[string]struct {
		handler func(*message.Message) error
		class   failure.Class
		text    string
	}{
		"panics with a text":                       {func(*message.Message) error { panic("boom") }, panicking, "panic: boom"},
		"panics with an error":                     {func(*message.Message) error { panic(errors.New("boom")) }, panicking, "panic: boom"},
		"panics with nil":                          {func(*message.Message) error { panic(nil) }, panicking, "nil"},
		"panics with a broken error":               {func(*message.Message) error { panic(&panickyError{"Error"}) }, panicking, "PANIC"},
		"dereferences nil":                         {func(*message.Message) error { var p *int; _ = *p; return nil }, panicking, "nil pointer"},
		"ends its goroutine":                       {func(*message.Message) error { runtime.Goexit(); return nil }, failure.ClassUnknown, "Goexit"},
		"returns joined errors":                    {func(*message.Message) error { return errors.Join(errors.New("a"), context.DeadlineExceeded) }, failure.ClassDependencyTimeout, "a\ncontext deadline exceeded"},
		"returns a typed nil":                      {func(*message.Message) error { var e *panickyError; return e }, failure.ClassPanic, ""},
		"returns a broken error":                   {func(*message.Message) error { return &panickyError{"Error"} }, failure.ClassUnknown, "panicked"},
		"returns an error that can't be unwrapped": {func(*message.Message) error { return &panickyError{"Unwrap"} }, "", ""},
		"returns an empty error":                   {func(*message.Message) error { return errors.New("") }, failure.ClassUnknown, "unknown"},
		"acknowledges and fails":                   {func(msg *message.Message) error { msg.Ack(); return errors.New("a") }, failure.ClassUnknown, "a"},
		"acknowledges, works on and fails": {func(msg *message.Message) error {
			msg.Ack()
			<-msg.Context().Done() // which is no shutdown
			return errors.New("a")
		}, failure.ClassUnknown, "a"},
		"acknowledges and panics": {func(msg *message.Message) error { msg.Ack(); panic("a") }, panicking, "a"},
		"replaces the message's context": {func(msg *message.Message) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			msg.SetContext(ctx)
			return errors.New("a")
		}, failure.ClassUnknown, "a"},
		"changes the message": {func(msg *message.Message) error {
			for i := range msg.Payload {
				msg.Payload[i] = 'X'
			}
			msg.Payload = append(msg.Payload, "more"...)
			msg.UUID = "other"
			clear(msg.Metadata)
			msg.Metadata.Set("mine", "too")
			return errors.New("a")
		}, failure.ClassUnknown, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.consume(func(msg *message.Message) error {
					if string(msg.Payload) != "body" || msg.Metadata.Get("tenant") != "a" || msg.UUID != "1" {
						t.Errorf("the handler sees %q, %q, %v", msg.UUID, msg.Payload, msg.Metadata)
					}
					return tc.handler(msg)
				})
				s.start()
				msg := message.NewMessage("1", []byte("body"))
				msg.Metadata.Set("tenant", "a")
				s.send(msg)
				after(0)
				rec, st := only(t, s.broker, retryOf)
				wantDepths(t, s.broker, map[string]int{retryOf: 1})
				if st.Attempt != 2 || tc.class != "" && st.Class != tc.class {
					t.Errorf("next attempt %d, class %s, want 2, %s", st.Attempt, st.Class, tc.class)
				}
				wantContains(t, st.Message, tc.text)
				if strings.Contains(st.Message, ".go:") {
					t.Errorf("a stack got into the message: %s", st.Message)
				}
				if rec.ID != "1" || string(rec.Payload) != "body" || rec.Headers[0].Key != "tenant" {
					t.Errorf("handed off as %+v", rec)
				}
				after(time.Hour)
				wantDepths(t, s.broker, map[string]int{dlqOf: 1})
				s.stop()
			})
		})
	}
}

// A handler that gives its message back by itself gets it again; a copy in the
// retry stream would be one too many.
func TestHandlerThatNacksGetsTheMessageAgain(t *testing.T) {
	for name, result := range map[string]error{"and returns nil": nil, "and returns an error": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				calls := 0
				s.consume(func(msg *message.Message) error {
					if calls++; calls == 3 {
						return nil
					}
					msg.Nack()
					return result
				})
				s.start()
				s.publish("body")
				after(0)
				s.stop()
				// The next delivery may be done with before this call has returned.
				got := slices.Sorted(slices.Values(s.outcomesNow()))
				if want := []middleware.Outcome{middleware.OutcomeProcessed, middleware.OutcomeReturned, middleware.OutcomeReturned}; !slices.Equal(got, want) {
					t.Errorf("outcomes %v, want %v", got, want)
				}
				wantDepths(t, s.broker, nil)
			})
		})
	}
}

func TestPanickingRuleOfTheUserIsNoRule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Rules: []failure.Rule{{Match: func(error) (failure.Failure, bool) { panic("in the rule") }}}})
		s.consume(func(*message.Message) error { return context.DeadlineExceeded })
		s.start()
		s.publish("body")
		after(0)
		if _, st := only(t, s.broker, retryOf); st.Class != failure.ClassDependencyTimeout {
			t.Errorf("class %s", st.Class)
		}
		s.stop()
	})
}

// Invariant 13.
func TestUndecodableRecordIsDeadLetteredWithItsBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { t.Error("the handler was called"); return nil })
		s.broker.Inject(memory.Fault{On: memory.Deliver, Stream: topic, Do: memory.Undecodable(errors.New("header 3 has no end"))})
		s.start()
		s.publish("\xffbody")
		after(0)
		rec, st := only(t, s.broker, dlqOf)
		if string(rec.Payload) != "\xffbody" || st.Class != failure.ClassUndecodable || st.Reason != string(policy.ReasonUndecodable) || st.Message != "header 3 has no end" {
			t.Errorf("dead letter %q, class %s, reason %s, %q", rec.Payload, st.Class, st.Reason, st.Message)
		}
		s.stop()
		wantNoFaultsLeft(t, s.broker)
	})
}

func TestManyMessagesAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 2000
		s := installed(t, spillway.Config{Concurrency: n})
		s.consume(func(msg *message.Message) error {
			work(time.Second)
			if d, _ := spillway.DeliveryFrom(msg.Context()); d.State.Attempt == 1 && len(msg.UUID)%2 == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		s.start()
		s.publish(make([]string, n)...)
		after(time.Minute)
		wantDepths(t, s.broker, nil)
		s.stop()
		if got := len(s.outcomesNow()); got <= n {
			t.Errorf("%d outcomes", got)
		}
	})
}

// Every problem is named, before anything is connected to.
func TestConfigNonsenseIsNamedAllAtOnceBeforeConnecting(t *testing.T) {
	t.Parallel()
	opened := false
	opener := adapters.Opener{Schemes: []string{"memory"}, Open: func(context.Context, adapters.OpenParams) (adapters.Broker, error) {
		opened = true
		return nil, errors.New("connected")
	}}
	_, err := spillway.Open(t.Context(), "memory://", spillway.Config{
		Concurrency:     -3,
		CloseGrace:      -time.Second,
		Retry:           "somewhere",
		Names:           adapters.Names{Retry: "retry"},
		Redaction:       poison.Redaction{Patterns: []poison.Pattern{{Name: "broken", Regexp: "("}}},
		Policy:          policy.Policy{Backoff: policy.Backoff{Factor: -1}},
		HandlerPolicies: map[string]policy.Policy{"charge": {Attempts: policy.Attempts{Transient: -5}}},
	}, opener)
	if err == nil {
		t.Fatal("it was accepted")
	}
	wantContains(t, err.Error(), "Concurrency", "-3", "CloseGrace", "somewhere", "{topic}", "broken", "backoff.factor", `"charge"`, "-5")
	if opened {
		t.Error("it connected first")
	}
}

func TestConcurrencyBeyondReasonIsRefused(t *testing.T) {
	t.Parallel()
	_, err := spillway.Open(t.Context(), "memory://", spillway.Config{Group: group, Concurrency: 1 << 30}, memory.Opener())
	if err == nil {
		t.Fatal("it was accepted")
	}
	wantContains(t, err.Error(), "Concurrency", fmt.Sprint(1<<30), fmt.Sprint(spillway.MaxConcurrency))
}
