package spillway_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/failure"
)

// Two brokers, one Router with the chain of the first. A message of the second
// must never be handed off to the first, where nobody reads its retry stream.
func TestDeliveryOfAnotherSpillwayIsHandedOffToItsOwnBroker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := installed(t, spillway.Config{}), installed(t, spillway.Config{})
		calls := 0
		first.router.AddConsumerHandler("charge", topic, second.sw.Subscriber(), func(*message.Message) error {
			if calls++; calls == 1 {
				return failure.Transient(errors.New("once"))
			}
			return nil
		})
		first.start()
		second.publish("body")
		after(time.Hour)
		if calls != 2 {
			t.Errorf("%d calls, want 2; the first broker holds %v, the second %v", calls, depths(first.broker), depths(second.broker))
		}
		first.stop()
		if err := second.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// prefixed maps topics, as programs do that share a broker between stages.
type prefixed struct{ message.Subscriber }

func (p prefixed) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return p.Subscriber.Subscribe(ctx, "test."+topic)
}

// A subscriber that maps topics must not switch the chain off in silence.
func TestMappedTopicKeepsTheChain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		calls := 0
		s.router.AddConsumerHandler("charge", topic, prefixed{s.sw.Subscriber()}, func(*message.Message) error {
			if calls++; calls > 1000 {
				return nil // or virtual time would never move on
			}
			return failure.Permanent(errors.New("bad"))
		})
		s.start()
		put(t, s.broker, "test."+topic, "m")
		after(time.Minute)
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
		wantDepths(t, s.broker, map[string]int{"test." + dlqOf: 1})
		s.stop()
	})
}

// A subscription that the broker broke ends a consumer for good, while the
// others go on. Somebody must be told.
func TestBrokenSubscriptionIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return nil })
		s.router.AddConsumerHandler("refund", "refunds", s.sw.Subscriber(), func(*message.Message) error { return nil })
		s.start()
		s.broker.Disconnect(topic, group)
		after(time.Minute)
		wantContains(t, s.logs.String(), "the broker ended the subscription", "topic="+topic, "group="+group)
		s.stop()
	})
}
