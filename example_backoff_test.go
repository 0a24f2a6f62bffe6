package spillway_test

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
)

// How to test the failure path of a handler: in a synctest bubble the Router,
// Spillway and the embedded broker run on the bubble's clock, so the twenty
// minutes until the message is given up take no time.
func TestExampleTwentyMinutesOfBackoffTakeNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memory.New(memory.Config{})
		sw, err := spillway.Open(t.Context(), "memory://", spillway.Config{
			Group: "billing", Logger: slog.New(slog.DiscardHandler),
		}, broker.Opener())
		if err != nil {
			t.Fatal(err)
		}
		router := message.NewDefaultRouter(watermill.NopLogger{})
		sw.Install(router)
		calls := 0
		router.AddConsumerHandler("charge", "orders", sw.Subscriber(), func(*message.Message) error {
			calls++
			return failure.Transient(errors.New("the gateway is down"))
		})
		running := make(chan error)
		go func() { running <- router.Run(t.Context()) }()
		<-router.Running()

		start := time.Now()
		if err := sw.Publisher().Publish("orders", message.NewMessage("1", []byte("an order"))); err != nil {
			t.Fatal(err)
		}
		for broker.Depth("orders.billing.dlq") == 0 && time.Since(start) < time.Hour {
			time.Sleep(time.Minute)
		}
		if calls != 12 {
			t.Errorf("the handler was called %d times, want 12", calls)
		}
		if gaveUp := time.Since(start); gaveUp < 15*time.Minute || gaveUp > 30*time.Minute {
			t.Errorf("given up after %s, want about 20 minutes", gaveUp)
		}
		if err := errors.Join(router.Close(), <-running, sw.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
