package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// program is a Router with the chain on the bench's fake.
type program struct {
	b    *bench
	stop func()
}

// run starts a program that handles orders.
func (b *bench) run(cfg spillway.Config, handle message.NoPublishHandlerFunc) *program {
	b.Helper()
	cfg.Group, cfg.ConsumerVersion = "billing", "v1"
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	sw, err := spillway.Open(b.Context(), fakeURL, cfg, sqs.OpenerWith(b.cfg))
	if err != nil {
		b.Fatal(err)
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	sw.Install(router)
	router.AddConsumerHandler("handler", b.topic, sw.Subscriber(), handle)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- router.Run(ctx) }()
	<-router.Running()
	p := &program{b: b}
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-ran, sw.Close(context.Background())); err != nil {
			b.Errorf("close: %v", err)
		}
	}
	b.Cleanup(p.stop)
	return p
}

func constantly(d time.Duration) policy.Backoff {
	return policy.Backoff{Base: d, Factor: 1, Max: d, Jitter: policy.JitterNone}
}

// S19: two hours are eight hops of 900 seconds. They are no attempts, the due time
// stays, and each costs three calls: receive, send, delete.
func TestTwoHoursAreEightHops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		var at []time.Time
		b.run(spillway.Config{Policy: policy.Policy{Backoff: constantly(2 * time.Hour)}}, func(msg *message.Message) error {
			at = append(at, time.Now())
			if d, _ := spillway.DeliveryFrom(msg.Context()); d.State.Attempt != len(at) {
				t.Errorf("call %d is attempt %d", len(at), d.State.Attempt)
			}
			if len(at) == 1 {
				return failure.Transient(errors.New("down"))
			}
			return nil
		})
		b.publish("orders", "a", nil)
		time.Sleep(3 * time.Hour)
		if len(at) != 2 || at[1].Sub(at[0]) != 2*time.Hour {
			t.Fatalf("handled at %v, want twice, two hours apart", at)
		}
		sends, deletes := 0, 0
		for _, c := range b.fake.Calls("") {
			switch {
			case c.Action == "SendMessage" && c.Queue == "orders_billing_retry":
				sends++
				if !strings.Contains(string(c.Input), `"DelaySeconds":900`) {
					t.Errorf("hop %d has not 900 seconds: %s", sends, c.Input)
				}
			case c.Action == "DeleteMessage":
				deletes++
			}
		}
		if sends != 8 || deletes != 9 {
			t.Errorf("%d hops and %d deletions, want 8 and 9", sends, deletes)
		}
		for _, q := range b.fake.Queues() {
			if n := len(b.fake.Messages(q)); n != 0 { // S37
				t.Errorf("%d messages are left in %s", n, q)
			}
		}
	})
}

// S18: a delay longer than the visibility is one execution by one of several
// processes, because nobody holds the message meanwhile.
func TestWaitingIsNotHolding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		calls := make(chan string, 100)
		for range 3 {
			b.run(spillway.Config{Policy: policy.Policy{Backoff: constantly(time.Minute)}}, func(msg *message.Message) error {
				d, _ := spillway.DeliveryFrom(msg.Context())
				calls <- fmt.Sprint(d.State.Attempt)
				if d.State.Attempt == 1 {
					return failure.Transient(errors.New("down"))
				}
				return nil
			})
		}
		b.publish("orders", "a", nil)
		time.Sleep(30 * time.Second)
		if left := b.fake.Messages("orders_billing_retry"); len(left) != 1 || left[0].InFlight {
			t.Errorf("while it waits: %+v", left)
		}
		time.Sleep(time.Hour)
		if len(calls) != 2 {
			t.Errorf("%d calls, want 2", len(calls))
		}
	})
}

// S30, S37: five attempts are counted by us: SQS counts one receive of each copy.
// There is one copy at any time.
func TestAttemptsAreOursAndCopiesAreOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		attempts := 0
		depth := func() (n int) {
			for _, q := range b.fake.Queues() {
				n += len(b.fake.Messages(q))
			}
			return n
		}
		b.run(spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Transient: 5}, Backoff: constantly(10 * time.Second)}}, func(msg *message.Message) error {
			attempts++
			if d, _ := spillway.DeliveryFrom(msg.Context()); d.Count != 1 {
				t.Errorf("attempt %d has receive count %d", attempts, d.Count)
			}
			if n := depth(); n != 1 {
				t.Errorf("attempt %d: there are %d copies", attempts, n)
			}
			return failure.Transient(errors.New("down"))
		})
		b.publish("orders", "a", nil)
		time.Sleep(time.Hour)
		dead := b.fake.Messages("orders_billing_dlq")
		if attempts != 5 || len(dead) != 1 || depth() != 1 {
			t.Errorf("%d attempts, %d dead letters, %d messages", attempts, len(dead), depth())
		}
	})
}

// A dead letter that the console, or a move task, brings back to its queue has a
// fresh budget, and is a replay. One that SQS itself had moved is as new.
func TestDeadLetterThatIsMovedBackIsAReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		var seen []envelope.State
		b.run(spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Transient: 2}, Backoff: constantly(time.Second)}}, func(msg *message.Message) error {
			d, _ := spillway.DeliveryFrom(msg.Context())
			seen = append(seen, d.State)
			return failure.Transient(errors.New("down"))
		})
		b.publish("orders", "a", nil)
		time.Sleep(time.Minute)
		first := b.dead()
		if len(first) != 1 {
			t.Fatalf("%d dead letters", len(first))
		}
		// S35: without a destination SQS would not know where to.
		dlq, main := b.attributes("orders_billing_dlq")["QueueArn"], b.attributes("orders")["QueueArn"]
		if _, err := b.client.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{SourceArn: &dlq, DestinationArn: &main}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		second := b.dead()
		if len(seen) != 4 || len(second) != 1 {
			t.Fatalf("%d calls, %d dead letters; want 4 and 1", len(seen), len(second))
		}
		if s := seen[2]; s.Attempt != 1 || s.ReplayCount != 1 || s.ReplayOf != first[0].DeadLetterID {
			t.Errorf("after the move: %+v", s)
		}
		s := second[0]
		if s.ReplayCount != 1 || s.ReplayOf != first[0].DeadLetterID || s.DeadLetterID == first[0].DeadLetterID || s.Attempt != 2 || s.Source != first[0].Source {
			t.Errorf("the second dead letter is %+v, after %+v", s, first[0])
		}
	})
}

// dead are the states of the dead letters.
func (b *bench) dead() (states []envelope.State) {
	b.Helper()
	for _, m := range b.fake.Messages("orders_billing_dlq") {
		packed := m.Attributes["spillway-metadata"].String
		r, err := sqs.Unpack(packed)
		if err != nil {
			b.Fatal(err)
		}
		states = append(states, envelope.Parse(r, time.Now()))
	}
	return states
}

// S24: a message whose lease is lost every time has no outcome; the handler's
// context says why, nothing is handed off, and after so many receives it is found
// alone, and then dead-lettered.
func TestLostLeasesAreNoOutcomeAndFoundOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		var logs bytes.Buffer
		calls := 0
		p := b.run(spillway.Config{Logger: slog.New(slog.NewTextHandler(&logs, nil))}, func(msg *message.Message) error {
			calls++
			b.fake.Inject(sqsfake.Fault{Action: "ChangeMessageVisibility", Do: sqsfake.Fail("ReceiptHandleIsInvalid")})
			<-msg.Context().Done()
			if cause := context.Cause(msg.Context()); !errors.Is(cause, adapters.ErrLeaseLost) {
				t.Errorf("the context ended with %v", cause)
			}
			return failure.Transient(errors.New("cut off"))
		})
		b.publish("orders", "a", nil)
		time.Sleep(time.Hour)
		dead := b.dead()
		if len(dead) != 1 || dead[0].Reason != string(policy.ReasonConsumerCrash) {
			t.Fatalf("dead letters: %+v", dead)
		}
		if calls != 6 {
			t.Errorf("%d calls, want 3 beside others and 3 alone", calls)
		}
		if n := len(b.fake.Messages("orders_billing_retry")); n != 0 {
			t.Errorf("%d retries were handed off without a lease", n)
		}
		p.stop()
		if text := logs.String(); !strings.Contains(text, "delivery_count=4") || !strings.Contains(text, "message_uuid=") {
			t.Errorf("the log has no delivery count or id:\n%s", text)
		}
	})
}

// S20: what SQS will never take is said to be final, and what it may take is not.
func TestErrorsOfHandoffs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		h := adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "a", Payload: []byte("a")}}
		for code, want := range map[string]error{
			"InvalidMessageContents": adapters.ErrRefused, "InvalidParameterValue": adapters.ErrRefused,
			"RequestThrottled": nil, "ServiceUnavailable": nil, "AccessDenied": nil,
		} {
			b.fake.Inject(sqsfake.Fault{Action: "SendMessage", Times: sqsfake.Always, Do: sqsfake.Fail(code)})
			err := b.Broker.Handoff(t.Context(), h)
			if err == nil || errors.Is(err, adapters.ErrRefused) != (want != nil) {
				t.Errorf("%s: %v", code, err)
			}
			b.fake.ClearFaults()
		}
		h.Record.Payload = bytes.Repeat([]byte("x"), 1<<20)
		if err := b.Broker.Handoff(t.Context(), h); !errors.Is(err, adapters.ErrTooLarge) { // S27
			t.Errorf("a message beyond the limit: %v", err)
		}
		if n := len(b.fake.Messages("orders_billing_retry")); n != 0 {
			t.Errorf("%d were stored", n)
		}
	})
}

// S27: twenty failures with fifty KiB of text each make no message grow.
func TestFailuresDoNotMakeMessagesGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		largest := 0
		b.run(spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Transient: 20}, Backoff: constantly(time.Second)}}, func(msg *message.Message) error {
			d, _ := spillway.DeliveryFrom(msg.Context())
			size := 0
			for _, h := range d.Headers {
				size += len(h.Key) + len(h.Value)
			}
			largest = max(largest, size)
			return failure.Transient(errors.New(strings.Repeat("stack ", 50<<10/6)))
		})
		b.publish("orders", "a", nil)
		time.Sleep(time.Hour)
		if n := len(b.dead()); n != 1 {
			t.Fatalf("%d dead letters", n)
		}
		if largest == 0 || largest > 4<<10 {
			t.Errorf("the metadata had up to %d bytes", largest)
		}
	})
}

// A queue that is deleted under a consumer is there again, and read.
func TestDeletedQueueComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		handled := 0
		b.run(spillway.Config{}, func(*message.Message) error { handled++; return nil })
		url := b.url("orders")
		if _, err := b.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		b.publish("orders", "a", nil)
		time.Sleep(5 * time.Minute)
		if handled != 1 {
			t.Errorf("%d messages were handled, want 1", handled)
		}
	})
}

// Intervals of parking, of any length, are kept to the second; a drain sees what
// waits.
func TestParkingHopsToItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		from := time.Now()
		pairs, _ := envelope.State{Attempt: 2, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}, DueAt: from.Add(2 * time.Hour)}.Pairs(0)
		h := adapters.Handoff{
			Consumer: orders, Stream: adapters.StreamParking, Record: adapters.Record{ID: "a", Payload: []byte("\xff")},
			State: pairs, Due: from.Add(2 * time.Hour),
		}
		b.Handoff(h)
		d := b.Next(s)
		if waited := time.Since(from); waited != 2*time.Hour || d.Stream != adapters.StreamRetry || !bytes.Equal(d.Payload, []byte("\xff")) {
			t.Errorf("after %s from %s: %q", waited, d.Stream, d.Payload)
		}
		b.Ack(d)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.Due = time.Now().Add(10 * time.Minute)
		b.Handoff(h)
		n := 0
		err := b.Broker.Drain(t.Context(), "orders.billing.parking", func(_ context.Context, r adapters.Record) error { n++; return nil })
		if err != nil || n != 1 {
			t.Errorf("drained %d: %v", n, err)
		}
	})
}

// Drain shows what SQS says of a record, for what SQS moved by itself.
func TestDrainShowsWhatTheBrokerSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		b.publish("orders", "poison", nil)
		url := b.url("orders")
		for range 11 {
			if _, err := b.client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &url, VisibilityTimeout: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		var got []adapters.Record
		err := b.Broker.Drain(t.Context(), "orders.billing.dlq", func(_ context.Context, r adapters.Record) error {
			got = append(got, r)
			return nil
		})
		if err != nil || len(got) != 1 {
			t.Fatalf("%d records, %v", len(got), err)
		}
		says := map[string]string{}
		for _, h := range got[0].Headers {
			if h.Type == adapters.TypeSystem {
				says[h.Key] = string(h.Value)
			}
		}
		if says["sqs:DeadLetterQueueSourceArn"] != b.attributes("orders")["QueueArn"] || says["sqs:ApproximateReceiveCount"] == "" {
			t.Errorf("the broker says %v", says)
		}
	})
}

func TestHopsAreLongFirst(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ left, want time.Duration }{
		{-time.Second, 0}, {0, 0}, {time.Millisecond, time.Second}, {time.Second, time.Second}, {900 * time.Second, 900 * time.Second},
		{900*time.Second + 1, 898 * time.Second}, {901 * time.Second, 898 * time.Second}, {903 * time.Second, 900 * time.Second},
		{7200 * time.Second, 900 * time.Second}, {7 * 24 * time.Hour, 900 * time.Second},
	} {
		if got := sqs.Hop(tc.left, 15*time.Minute); got != tc.want {
			t.Errorf("with %s left the hop is %s, want %s", tc.left, got, tc.want)
		}
	}
}

// FIFO, in order: visibility is the clock. What is behind a failed message in its
// group waits for it; other groups do not. Nothing is handed off, and the attempt
// is SQS's count.
func TestFIFORetriesInPlaceInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.topic = "orders.fifo"
		fifo := adapters.Consumer{Topic: b.topic, Group: "billing", Concurrency: 4, Retry: adapters.RetryInPlace}
		b.Ensure(fifo)
		var mu sync.Mutex
		var log []string
		start := time.Now()
		b.run(spillway.Config{
			Retry: adapters.RetryInPlace, Concurrency: 4,
			Policy: policy.Policy{Attempts: policy.Attempts{Transient: 4}, Backoff: constantly(20 * time.Minute)},
		}, func(msg *message.Message) error {
			d, _ := spillway.DeliveryFrom(msg.Context())
			mu.Lock()
			log = append(log, fmt.Sprintf("%s attempt %d after %s", msg.Payload, d.State.Attempt, time.Since(start)))
			mu.Unlock()
			if string(msg.Payload) == "a1" && d.State.Attempt < 3 || string(msg.Payload) == "b1" {
				return failure.Transient(errors.New("down"))
			}
			return nil
		})
		for _, body := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
			msg := message.NewMessage(body, []byte(body))
			msg.Metadata.Set("MessageGroupId", body[:1])
			if err := b.Broker.Publisher().Publish(b.topic, msg); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Hour)
		slices.Sort(log)
		want := []string{
			"a1 attempt 1 after 0s", "a1 attempt 2 after 20m0s", "a1 attempt 3 after 40m0s", "a2 attempt 1 after 40m0s", "a3 attempt 1 after 40m0s",
			"b1 attempt 1 after 0s", "b1 attempt 2 after 20m0s", "b1 attempt 3 after 40m0s", "b1 attempt 4 after 1h0m0s", "b2 attempt 1 after 1h0m0s",
			"c1 attempt 1 after 0s",
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if dead := b.fake.Messages("orders_billing_dlq.fifo"); len(dead) != 1 || dead[0].Body != "b1" || dead[0].GroupID != "b" {
			t.Errorf("dead letters: %+v", dead)
		}
		if n := len(b.fake.Calls("SendMessage")); n != 7 {
			t.Errorf("%d messages were sent, want six and a dead letter", n)
		}
		if p := b.attributes(b.topic)["RedrivePolicy"]; !strings.Contains(p, `"maxReceiveCount":50`) {
			t.Errorf("the redrive policy is %s: it would end the attempts", p)
		}
	})
}

// In place the delay ends with the 12 hours of SQS's visibility, which count from
// the receive. A policy that may ask for more, jitter and RetryAfter included,
// would have its attempts come early: it is refused at start, with the limit.
func TestDelaysInPlaceAreWithinTheTwelveHours(t *testing.T) {
	t.Parallel()
	slow := policy.Policy{Attempts: policy.Attempts{Transient: 3}, Backoff: constantly(11*time.Hour + time.Second)}
	for name, cfg := range map[string]spillway.Config{
		"policy":      {Policy: slow},
		"a handler's": {HandlerPolicies: map[string]policy.Policy{"handler": slow}},
		"retry after": {Policy: policy.Policy{MaxRetryAfter: 8 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				cfg.Group, cfg.ConsumerVersion, cfg.Retry = "billing", "v1", adapters.RetryInPlace
				_, err := spillway.Open(t.Context(), fakeURL, cfg, sqs.OpenerWith(b.cfg))
				if !errors.Is(err, adapters.ErrUnsupported) || !strings.Contains(err.Error(), "11h0m0s") {
					t.Errorf("%v, want ErrUnsupported with the limit", err)
				}
				cfg.Retry = adapters.RetryTopic // where the delay is one of hops
				sw, err := spillway.Open(t.Context(), fakeURL, cfg, sqs.OpenerWith(b.cfg))
				if err != nil {
					t.Fatal(err)
				}
				if err := sw.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The longest delay that is allowed in place is kept to the second, although the
// handler took most of an hour; one that took longer is said to come early.
func TestLongestDelayInPlaceIsKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handling, want time.Duration
		warns          bool
	}{
		"handled in time":  {58 * time.Minute, 11 * time.Hour, false},
		"handled too long": {2 * time.Hour, 9*time.Hour + 59*time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				var logs bytes.Buffer
				b.topic = "orders.fifo"
				var failed time.Time
				p := b.run(spillway.Config{
					Retry: adapters.RetryInPlace, Policy: policy.Policy{Backoff: constantly(11 * time.Hour)},
					Logger: slog.New(slog.NewTextHandler(&logs, nil)),
				}, func(*message.Message) error {
					time.Sleep(tc.handling)
					failed = time.Now()
					return failure.Transient(errors.New("down"))
				})
				b.publish(b.topic, "a", nil)
				time.Sleep(tc.handling + time.Minute)
				p.stop()
				left := b.fake.Messages(b.topic)
				if len(left) != 1 || left[0].Visible.Sub(failed) != tc.want {
					t.Errorf("the queue holds %+v, want one message that is hidden until %s", left, failed.Add(tc.want))
				}
				if warned := strings.Contains(logs.String(), "comes again before it is due"); warned != tc.warns {
					t.Errorf("warned: %v, log:\n%s", warned, logs.String())
				}
			})
		})
	}
}
