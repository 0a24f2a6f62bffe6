package sqs_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

func letters(n int) []byte { return bytes.Repeat([]byte("x"), n) }

// resize changes the limit of a queue, as its owner does.
func (b *bench) resize(queue, limit string) {
	b.Helper()
	url := b.url(queue)
	if _, err := b.client.SetQueueAttributes(b.Context(), &awssqs.SetQueueAttributesInput{
		QueueUrl: &url, Attributes: map[string]string{"MaximumMessageSize": limit},
	}); err != nil {
		b.Fatal(err)
	}
}

// deny forbids everybody to read attributes.
func (b *bench) deny() {
	b.fake.Inject(sqsfake.Fault{Action: "GetQueueAttributes", Times: sqsfake.Always, Do: sqsfake.Fail("AccessDenied")})
}

// Who may not read a queue's limit finds it out by sending: what fits arrives,
// and what does not is too large, so that the chain trims its evidence.
func TestUnknownLimitIsFoundOutBySending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.deny()
		b.Ensure(orders)
		h := adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "a", Payload: letters(300 << 10)}}
		b.Handoff(h)
		if err := b.Broker.Publisher().Publish("orders", message.NewMessage("a", letters(300<<10))); err != nil {
			t.Error(err)
		}
		b.resize("orders_billing_dlq", "262144")
		if err := b.Broker.Handoff(t.Context(), h); !errors.Is(err, adapters.ErrTooLarge) {
			t.Errorf("after the limit was lowered: %v, want ErrTooLarge", err)
		}
		h.Record.Payload = letters(200 << 10)
		b.Handoff(h)
		h.Record.Payload = letters(1<<20 + 1)
		if err := b.Broker.Handoff(t.Context(), h); !errors.Is(err, adapters.ErrTooLarge) {
			t.Errorf("beyond what any queue takes: %v, want ErrTooLarge", err)
		}
		if n := len(b.fake.Messages("orders_billing_dlq")); n != 2 {
			t.Errorf("%d dead letters, want 2", n)
		}
	})
}

// A limit that changes while the process runs is noticed: raised, before a
// message is refused for the old one; lowered, when SQS refuses one.
func TestLimitsMayChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		b.resize("orders_billing_dlq", "262144")
		h := adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "a", Payload: letters(300 << 10)}}
		for range 2 {
			err := b.Broker.Handoff(t.Context(), h)
			if !errors.Is(err, adapters.ErrTooLarge) || errors.Is(err, adapters.ErrRefused) || !strings.Contains(err.Error(), "262144") {
				t.Errorf("after the limit was lowered: %v, want ErrTooLarge with the limit", err)
			}
		}
		if n := len(b.fake.Calls("SendMessage")); n != 1 {
			t.Errorf("%d messages were sent, want 1: the second is known to be too large", n)
		}
		b.resize("orders_billing_dlq", "1048576")
		b.Handoff(h)
		if n := len(b.fake.Messages("orders_billing_dlq")); n != 1 {
			t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// What is no refusal for the size does not become one.
func TestRefusalOfSmallMessageIsNotAboutItsSize(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]bool{"limit known": false, "limit unknown": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				if denied {
					b.deny()
				}
				b.Ensure(orders)
				b.fake.Inject(sqsfake.Fault{Action: "SendMessage", Do: sqsfake.Fail("InvalidParameterValue")})
				err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "a", Payload: letters(100)}})
				if !errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrTooLarge) {
					t.Errorf("%v, want ErrRefused", err)
				}
			})
		})
	}
}

// S27: whoever lowers the limit of a dead letter queue under a running consumer,
// whether or not it may ask, gets the message with less evidence, not a slot that
// is blocked for ever.
func TestLoweredLimitTrimsTheEvidence(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]bool{"limit known": false, "limit unknown": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				if denied {
					b.deny()
				}
				b.Ensure(orders)
				b.run(spillway.Config{Policy: policy.Policy{Attempts: policy.Attempts{Transient: 1}}}, func(*message.Message) error {
					return failure.Transient(errors.New(strings.Repeat("why ", 100)))
				})
				b.resize("orders_billing_dlq", "10240")
				b.publish("orders", string(letters(10240-1100)), nil) // room for the evidence without its text
				time.Sleep(10 * time.Minute)
				var dead []adapters.Record
				b.fake.ClearFaults()
				if err := b.Broker.Drain(t.Context(), "orders.billing.dlq", func(_ context.Context, r adapters.Record) error {
					dead = append(dead, r)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if len(dead) != 1 || len(dead[0].Payload) != 10240-1100 {
					t.Errorf("%d dead letters, want the message with trimmed evidence", len(dead))
				}
			})
		})
	}
}
