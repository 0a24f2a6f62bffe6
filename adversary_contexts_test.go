package spillway_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
)

// Two brokers, one Router with the chain of the first. A message of the second
// must never be handed off to the first, where nobody reads its retry stream.
func TestAdversaryDeliveryOfAnotherSpillwayIsNotStranded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b1, b2 := memory.New(memory.Config{}), memory.New(memory.Config{})
		a1, a2 := advOpen(t, b1, spillway.Config{}), advOpen(t, b2, spillway.Config{})
		calls := 0
		a1.router.AddConsumerHandler("h", "orders", a2.sw.Subscriber(), func(*message.Message) error {
			if calls++; calls == 1 {
				return failure.Transient(errors.New("once"))
			}
			return nil
		})
		a1.run()
		advPublish(t, b2, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls < 2 {
			t.Errorf("%d call; the first broker holds %v, the second %v", calls, b1.Depth("orders.g.retry"), b2.Depth("orders.g.retry"))
		}
		a1.close()
		if err := a2.sw.Close(t.Context()); err != nil {
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
func TestAdversaryMappedTopicKeepsTheChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		calls := 0
		a.router.AddConsumerHandler("h", "orders", prefixed{a.sw.Subscriber()}, func(*message.Message) error {
			if calls++; calls > 1000 {
				return nil // or virtual time would never move on
			}
			return failure.Permanent(errors.New("bad"))
		})
		a.run()
		advPublish(t, b, "test.orders", "m")
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls != 1 || b.Depth("test.orders.g.dlq") != 1 {
			t.Errorf("%d calls at once, %d dead letters; want 1, 1", calls, b.Depth("test.orders.g.dlq"))
		}
		a.close()
	})
}

// An attempt is finished by its own outputs, never by those of a message that
// inherited their context. Here a later stage fails to publish; that must not
// be decided about as a failure of the first stage.
func TestAdversaryInheritedContextDoesNotFinishAnotherAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		local := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true, BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		first, second := 0, 0
		a.router.AddHandler("first", "orders", a.sw.Subscriber(), "local", local, func(msg *message.Message) ([]*message.Message, error) {
			first++
			return message.Messages{message.NewMessage("o", nil)}, nil
		})
		a.router.AddHandler("second", "local", local, "out", &flakyPublisher{Publisher: a.sw.Publisher()}, func(msg *message.Message) ([]*message.Message, error) {
			second++
			return message.Messages{message.NewMessageWithContext(msg.Context(), "p", nil)}, nil
		})
		a.run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if first != 1 || second != 2 || b.Depth("out") != 1 {
			t.Errorf("first stage ran %d times, second %d times, %d outputs; want 1, 2 (its own retry by the local broker), 1; outcomes: %v", first, second, b.Depth("out"), a.told())
		}
		a.close()
		local.Close()
	})
}
