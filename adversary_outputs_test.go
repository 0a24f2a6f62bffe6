package spillway_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/middleware"
)

// A handler that acknowledges by itself and fails is handed off: fail says that
// this is the only copy. The same must hold when its outputs can't be published.
func TestAdversarySelfAckedOutputsAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		a.router.AddHandler("h", "orders", a.sw.Subscriber(), "out", &flakyPublisher{Publisher: a.sw.Publisher()}, func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			time.Sleep(time.Second)
			return message.Messages{message.NewMessage("o", []byte("x"))}, nil
		})
		a.run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := b.Depth("out"); n != 1 {
			t.Errorf("%d outputs after an hour, want 1; outcomes: %v", n, a.told())
		}
		a.close()
	})
}

// A nil among the outputs is a fault of the handler, and is decided about like
// any other. The Router panics on it, after the chain.
func TestAdversaryNilOutputIsAFailureOfTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		a.router.AddHandler("h", "orders", a.sw.Subscriber(), "out", a.sw.Publisher(), func(msg *message.Message) ([]*message.Message, error) {
			return message.Messages{nil}, nil
		})
		a.run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if slices.Contains(a.told(), middleware.OutcomeReturned) {
			t.Errorf("outcomes: %v, want retries and a dead letter: a returned message loops", a.told())
		}
		for _, r := range b.Records("orders.g.dlq") {
			if class := advHeader(r, "spillway-error-class"); class == "consumer_crash" {
				t.Errorf("dead-lettered as %s after %s, though the handler has just returned a nil message", class, advHeader(r, "spillway-attempt"))
			}
		}
		a.close()
	})
}

// A publisher that ends its goroutine must not block the slot for ever.
func TestAdversaryGoexitInPublisherSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		calls := 0
		a.router.AddHandler("h", "orders", a.sw.Subscriber(), "out", goexitPublisher{}, func(msg *message.Message) ([]*message.Message, error) {
			calls++
			return message.Messages{message.NewMessage("o", []byte("x"))}, nil
		})
		a.run()
		advPublish(t, b, "orders", "m")
		advPublish(t, b, "orders", "n")
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls < 3 || b.InFlight("orders", "g") != 0 {
			t.Errorf("%d calls, %d in flight after an hour; outcomes: %v", calls, b.InFlight("orders", "g"), a.told())
		}
		a.close()
	})
}

// flakyPublisher fails once, after a while.
type flakyPublisher struct {
	message.Publisher
	failed bool
}

func (f *flakyPublisher) Publish(topic string, msgs ...*message.Message) error {
	if !f.failed {
		f.failed = true
		time.Sleep(time.Second)
		return errors.New("broker is away")
	}
	return f.Publisher.Publish(topic, msgs...)
}
