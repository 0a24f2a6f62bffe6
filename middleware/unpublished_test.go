package middleware_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
)

// A storm on RabbitMQ dead-lettered messages because the broker was away for as
// long as an unknown error may be tried again, which is not long.
func TestOutputsOutliveAnOutageOfTheirBroker(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		fault   memory.Fault
		outputs int
		reason  string // of a dead letter; empty: there is none
	}{
		{"an error that nobody knows", memory.Fault{Times: 11, Do: memory.Fail(nil)}, 1, ""},
		{"what the broker will never take", memory.Fault{Times: memory.Always, Do: memory.Fail(adapters.ErrTooLarge)}, 0, "permanent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				broker := memory.New(memory.Config{})
				test.fault.On, test.fault.Stream = memory.Publish, "receipts"
				broker.Inject(test.fault)
				sw, err := spillway.Open(t.Context(), "memory://", spillway.Config{
					Group: "billing", ConsumerVersion: "v1", Logger: slog.New(slog.DiscardHandler),
				}, broker.Opener())
				if err != nil {
					t.Fatal(err)
				}
				router := message.NewDefaultRouter(watermill.NopLogger{})
				sw.Install(router)
				router.AddHandler("charge", "orders", sw.Subscriber(), "receipts", sw.Publisher(), func(msg *message.Message) ([]*message.Message, error) {
					return []*message.Message{message.NewMessage("receipt", nil)}, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				var runErr error
				ran := make(chan struct{})
				go func() { defer close(ran); runErr = router.Run(ctx) }()
				<-router.Running()
				if err := sw.Publisher().Publish("orders", message.NewMessage("order", nil)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)

				if n := broker.Depth("receipts"); n != test.outputs {
					t.Errorf("%d outputs, want %d", n, test.outputs)
				}
				reason := ""
				for _, r := range broker.Records("orders.billing.dlq") {
					reason = envelope.Parse(r.Headers, time.Now()).Reason
				}
				if reason != test.reason {
					t.Errorf("dead letter with the reason %q, want %q", reason, test.reason)
				}
				cancel()
				<-ran
				if runErr != nil {
					t.Error(runErr)
				}
				if err := sw.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
