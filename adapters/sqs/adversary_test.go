package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// where lists the queues that hold a body, sorted, one for each copy.
func (b *bench) where(body string) (queues []string) {
	for _, q := range b.fake.Queues() {
		for _, m := range b.fake.Messages(q) {
			if m.Body == body {
				queues = append(queues, q)
			}
		}
	}
	return queues
}

// The lease is lost while a hand-off is on its way. If the hand-off succeeds its
// source is deleted, although the lease is gone, and there is one copy; if it does
// not, the message stays where it is, and comes again.
func TestLeaseLostDuringAHandoff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		send  sqsfake.Effect
		times int
		want  string // where the message is when the hand-off is over
	}{
		"slow, and then confirmed": {sqsfake.Delay(15 * time.Second), 1, "orders_billing_retry"},
		"refused all the time":     {sqsfake.Fail("ServiceUnavailable"), sqsfake.Always, "orders"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, sqs.Config{RequestTimeout: 20 * time.Second})
				b.Ensure(orders)
				calls := 0
				p := b.run(spillway.Config{Policy: policy.Policy{Backoff: constantly(time.Hour)}}, func(*message.Message) error {
					calls++
					return failure.Transient(errors.New("down"))
				})
				b.fake.Inject(
					sqsfake.Fault{Action: "SendMessage", Queue: "orders_billing_retry", Times: tc.times, Do: tc.send},
					sqsfake.Fault{Action: "ChangeMessageVisibility", Do: sqsfake.Fail("ReceiptHandleIsInvalid")}, // after 10 s
				)
				b.publish("orders", "a", nil)
				time.Sleep(18 * time.Second)
				synctest.Wait()
				if got := b.where("a"); calls != 1 || strings.Join(got, " ") != tc.want {
					t.Errorf("after %d calls it is in %v, want %s", calls, got, tc.want)
				}
				b.fake.ClearFaults()
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				if got := b.where("a"); len(got) != 1 || got[0] != "orders_billing_retry" {
					t.Errorf("in the end it is in %v", got)
				}
				p.stop()
			})
		})
	}
}

// Close that cannot reach SQS leaves the message to its visibility: it is in one
// place, and another process has it then.
func TestCloseThatCannotGiveBackLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		b.publish("orders", "a", nil)
		s, err := b.Broker.Subscribe(t.Context(), orders)
		if err != nil {
			t.Fatal(err)
		}
		b.Next(s)
		b.fake.Inject(sqsfake.Fault{Action: "ChangeMessageVisibility", Times: sqsfake.Always, Do: sqsfake.Refuse()})
		from := time.Now()
		if err := s.Close(t.Context()); err == nil {
			t.Error("Close could not give the message back, and says nothing")
		}
		b.fake.ClearFaults()
		d := b.Next(b.Subscribe(orders))
		if waited := time.Since(from); d.Count != 2 || waited > 30*time.Second {
			t.Errorf("it came after %s with count %d", waited, d.Count)
		}
		b.Ack(d)
		if got := b.where("a"); len(got) != 0 {
			t.Errorf("it is also in %v", got)
		}
	})
}

// A retry of a host whose clock is an hour ahead waits that hour, by hops that are
// no attempts; of one that is behind it is due at once. Neither goes round for
// ever, and neither is lost.
func TestClocksThatAreAnHourApart(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.Ensure(orders)
				start := time.Now()
				var at []time.Duration
				b.run(spillway.Config{}, func(msg *message.Message) error {
					at = append(at, time.Since(start))
					if d, _ := spillway.DeliveryFrom(msg.Context()); d.State.Attempt != 2 {
						t.Errorf("attempt %d, want 2", d.State.Attempt)
					}
					return nil
				})
				due := start.Add(time.Minute) // as the other host sees it: SQS's clock is ours
				pairs, _ := envelope.State{Attempt: 2, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}, DueAt: due.Add(skew)}.Pairs(0)
				b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "a", Payload: []byte("a")}, State: pairs, Due: due})
				time.Sleep(5 * time.Hour)
				synctest.Wait()
				want := time.Minute + max(0, skew)
				if len(at) != 1 || at[0] != want {
					t.Errorf("handled after %v, want once after %s", at, want)
				}
				if n := len(b.fake.Calls("SendMessage")); n > 7 {
					t.Errorf("%d messages were sent, want 5 hops or so", n)
				}
				if got := b.where("a"); len(got) != 0 {
					t.Errorf("it is left in %v", got)
				}
			})
		})
	}
}

// A message with as many attributes as SQS takes, of all types, is in every stream
// what it was, and its copies leave room for what agents add.
func TestTenForeignAttributes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		attributes := map[string]types.MessageAttributeValue{
			"number": {DataType: aws.String("Number"), StringValue: aws.String("42")},
			"binary": {DataType: aws.String("Binary.png"), BinaryValue: []byte{0xff, 0}},
			"custom": {DataType: aws.String("String.uuid"), StringValue: aws.String("7")},
		}
		for i := range 7 {
			attributes[fmt.Sprintf("tag-%d", i)] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(strings.Repeat("x", i+1))}
		}
		b.publish("orders", "body", attributes)
		first := b.Next(s)
		if len(first.Headers) != 10 {
			t.Fatalf("%d headers", len(first.Headers))
		}
		same := func(where string, r adapters.Record) {
			t.Helper()
			r.Headers = slices.DeleteFunc(envelope.StripHeaders(r.Headers), func(h adapters.Header) bool { return h.Type == adapters.TypeSystem })
			byKey := cmpopts.SortSlices(func(a, b adapters.Header) bool { return a.Key < b.Key })
			if diff := cmp.Diff(first.Headers, r.Headers, byKey); diff != "" || string(r.Payload) != "body" || r.ID != first.ID {
				t.Errorf("%s: %q %q, headers (-want +got):\n%s", where, r.ID, r.Payload, diff)
			}
		}
		pairs, _ := envelope.State{Attempt: 2, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}}.Pairs(0)
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: first.Record, State: pairs})
		b.Ack(first)
		second := b.Next(s)
		same("retry", second.Record)
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: second.Record, State: pairs})
		b.Ack(second)
		for _, m := range b.fake.Messages("orders_billing_dlq") {
			if len(m.Attributes) > 7 {
				t.Errorf("the dead letter has %d attributes", len(m.Attributes))
			}
		}
		var dead []adapters.Record
		if err := b.Broker.Drain(t.Context(), "orders.billing.dlq", func(_ context.Context, r adapters.Record) error {
			dead = append(dead, r)
			return nil
		}); err != nil || len(dead) != 1 {
			t.Fatalf("%d dead letters, %v", len(dead), err)
		}
		same("dead letter", dead[0])
		dead[0].Native = nil // as from an inventory
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: dead[0], State: pairs})
		third := b.Next(s)
		same("replay", third.Record)
		b.Ack(third)
	})
}

// Handlers copy metadata. Outputs that are made of one message with a
// deduplication id must not all have it: a FIFO queue would accept them, and drop
// all but the first.
func TestOutputsDoNotInheritADeduplicationID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.create("out.fifo", map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
		s := b.Subscribe(adapters.Consumer{Topic: "orders.fifo", Group: "billing", Concurrency: 1, Retry: adapters.RetryInPlace})
		in := message.NewMessage("in", []byte("order"))
		in.Metadata.Set("MessageGroupId", "g")
		in.Metadata.Set("MessageDeduplicationId", "order-1")
		p := b.Broker.Publisher()
		if err := p.Publish("orders.fifo", in, in); err != nil {
			t.Fatal(err)
		}
		if n := len(b.fake.Messages("orders.fifo")); n != 1 {
			t.Errorf("%d messages with one deduplication id, want 1", n)
		}
		d := b.Next(s)
		for i := range 2 {
			out := message.NewMessage(fmt.Sprint(i), []byte("same"))
			for _, h := range d.Headers {
				out.Metadata.Set(h.Key, string(h.Value))
			}
			if err := p.Publish("out.fifo", out); err != nil {
				t.Fatal(err)
			}
		}
		b.Ack(d)
		if n := len(b.fake.Messages("out.fifo")); n != 2 {
			t.Errorf("%d outputs arrived, want 2", n)
		}
	})
}

// A FIFO dead letter queue that deduplicates by content keeps two dead letters
// with one body, and that of a message that failed again after it was moved back,
// all within five minutes.
func TestContentDeduplicationDropsNoDeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.topic = "orders.fifo"
		b.create("orders_billing_dlq.fifo", map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true", "MessageRetentionPeriod": "1209600"})
		calls := 0
		b.run(spillway.Config{Retry: adapters.RetryInPlace}, func(*message.Message) error {
			calls++
			time.Sleep(5 * time.Second) // so that the task below has ended: it would move what comes back
			return failure.Permanent(errors.New("no"))
		})
		for _, id := range []string{"a", "b"} {
			msg := message.NewMessage(id, []byte("same"))
			msg.Metadata.Set("MessageGroupId", id)
			if err := b.Broker.Publisher().Publish(b.topic, msg); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(b.fake.Messages("orders_billing_dlq.fifo")); calls != 2 || n != 2 {
			t.Fatalf("%d calls, %d dead letters; want 2 and 2", calls, n)
		}
		dlq, main := b.attributes("orders_billing_dlq.fifo")["QueueArn"], b.attributes(b.topic)["QueueArn"]
		if _, err := b.client.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{SourceArn: &dlq, DestinationArn: &main}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(b.fake.Messages("orders_billing_dlq.fifo")); calls != 4 || n != 2 {
			t.Errorf("after they were moved back: %d calls, %d dead letters; want 4 and 2", calls, n)
		}
	})
}

// What SQS itself moved to the dead letter queue has no state, and its count says
// why. Brought back, it is as new: attempt 1 of no replay.
func TestWhatSQSMovedAndSomebodyBroughtBackIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		b.publish("orders", "a", nil)
		url := b.url("orders")
		for range 11 {
			if _, err := b.client.ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{QueueUrl: &url, VisibilityTimeout: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if m := b.fake.Messages("orders_billing_dlq"); len(m) != 1 || m[0].ReceiveCount != 10 {
			t.Fatalf("the dead letter queue holds %+v, want it with count 10", m)
		}
		dlq, main := b.attributes("orders_billing_dlq")["QueueArn"], b.attributes("orders")["QueueArn"]
		if _, err := b.client.StartMessageMoveTask(t.Context(), &awssqs.StartMessageMoveTaskInput{SourceArn: &dlq, DestinationArn: &main}); err != nil {
			t.Fatal(err)
		}
		var seen []adapters.Delivery
		b.run(spillway.Config{}, func(msg *message.Message) error {
			d, _ := spillway.DeliveryFrom(msg.Context())
			seen = append(seen, *d)
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(seen) != 1 || seen[0].State.Attempt != 1 || seen[0].State.ReplayCount != 0 || seen[0].Stream != adapters.StreamMain || seen[0].Count != 1 {
			t.Errorf("handled %+v", seen)
		}
	})
}

// A key that is no MessageGroupId, as one of Kafka in an inventory, or one that is
// too long, makes no message that SQS refuses: equal keys stay one group.
func TestKeysOfOtherBrokers(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{
		"binary": "\xff\x00", "blank": "a b", "long": strings.Repeat("k", 200), "umlaut": "ü", "newline": "a\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, sqs.Config{RelaxedFIFO: true})
				fifo := adapters.Consumer{Topic: "orders.fifo", Group: "billing", Concurrency: 1}
				b.Ensure(orders)
				b.Ensure(fifo)
				for _, id := range []string{"1", "2"} {
					r := adapters.Record{ID: id, Key: []byte(key), Payload: []byte(id), Headers: []adapters.Header{
						{Key: "sqs:AWSTraceHeader", Value: []byte("\x01"), Type: adapters.TypeSystem},
					}}
					b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: r})
					b.Handoff(adapters.Handoff{Consumer: fifo, Stream: adapters.StreamDeadLetter, Record: r})
				}
				dead := b.fake.Messages("orders_billing_dlq.fifo")
				if len(dead) != 2 || dead[0].GroupID != dead[1].GroupID || dead[0].GroupID == "" {
					t.Errorf("dead letters: %+v", dead)
				}
				if n := len(b.fake.Messages("orders_billing_retry")); n != 2 {
					t.Errorf("%d retries, want 2", n)
				}
				// Without a key the id is the group, and may be anything too.
				b.Handoff(adapters.Handoff{Consumer: fifo, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: key, Payload: []byte("x")}})
			})
		})
	}
}

// Bodies that a queue cannot hold go through every stream unchanged: none, and
// what is no text.
func TestOddBodiesGoThroughTheChain(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{"empty": {}, "not UTF-8": []byte("\xff\xfe"), "the mark of an empty one": []byte("empty")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.Ensure(orders)
				var seen [][]byte
				b.run(spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Transient: 3}, Backoff: constantly(20 * time.Minute)}}, func(msg *message.Message) error {
					seen = append(seen, bytes.Clone(msg.Payload))
					return failure.Transient(errors.New("down"))
				})
				if err := b.Broker.Publisher().Publish("orders", message.NewMessage("a", body)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if err := b.Broker.Drain(t.Context(), "orders.billing.dlq", func(_ context.Context, r adapters.Record) error {
					seen = append(seen, r.Payload)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if len(seen) != 4 {
					t.Fatalf("seen %d times, want three attempts and a dead letter", len(seen))
				}
				for _, got := range seen {
					if !bytes.Equal(got, body) {
						t.Errorf("got %q", got)
					}
				}
			})
		})
	}
}

// A hand-off that got no answer may have been carried out. It is sent once: the
// SDK's own repeats would make copies of which nobody hears, and the chain's are
// told to the hooks. Publishing has the SDK's repeats, for its caller may have none.
func TestHandoffWithoutAnswerIsRepeatedByTheChainOnly(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]sqsfake.Effect{"dropped": sqsfake.Drop(), "failed after": sqsfake.FailAfter("InternalError")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.Ensure(orders)
				told := 0
				b.run(spillway.Config{
					Policy: policy.Policy{Backoff: constantly(time.Hour)},
					Hooks:  middleware.Hooks{OnHandoffFailure: func(context.Context, *middleware.HandoffFailureInfo) { told++ }},
				}, func(*message.Message) error { return failure.Transient(errors.New("down")) })
				b.fake.Inject(sqsfake.Fault{Action: "SendMessage", Queue: "orders_billing_retry", Do: lost})
				b.publish("orders", "a", nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := b.where("a"); told != 1 || len(got) != 1+told {
					t.Errorf("copies in %v, and %d repeats were told", got, told)
				}

				b.fake.Inject(sqsfake.Fault{Action: "SendMessage", Queue: "jobs", Do: sqsfake.Fail("ServiceUnavailable")})
				if err := b.Broker.Publisher().Publish("jobs", message.NewMessage("j", []byte("j"))); err != nil {
					t.Errorf("publish: %v", err)
				}
			})
		})
	}
}

// A message that SQS does not hide until its next attempt in place, for whatever
// reason, is not lost, and that it comes early is said.
func TestPostponementThatIsRefusedIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var logs bytes.Buffer
		b.topic = "orders.fifo"
		calls := 0
		p := b.run(spillway.Config{Retry: adapters.RetryInPlace, Policy: policy.Policy{Backoff: constantly(time.Hour)}, Logger: slog.New(slog.NewTextHandler(&logs, nil))},
			func(*message.Message) error {
				if calls++; calls == 1 {
					return failure.Transient(errors.New("down"))
				}
				return nil
			})
		b.fake.Inject(sqsfake.Fault{Action: "ChangeMessageVisibility", Do: sqsfake.Fail("InvalidParameterValue")})
		b.publish(b.topic, "a", nil)
		time.Sleep(2 * time.Minute)
		p.stop()
		if calls != 2 || len(b.where("a")) != 0 {
			t.Errorf("%d calls, and it is in %v", calls, b.where("a"))
		}
		if !strings.Contains(logs.String(), "comes again before it is due") {
			t.Errorf("nobody says that it came early:\n%s", logs.String())
		}
	})
}
