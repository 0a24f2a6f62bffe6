package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// A handler that fails once. The fake stands for AWS: with the zero Config and
// the URL sqs://?region=eu-west-1 it would be that.
func ExampleOpenerWith() {
	fake := sqsfake.New(sqsfake.Config{})
	defer fake.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	sw, err := spillway.Open(ctx, "sqs://localhost", spillway.Config{
		Group: "billing", ConsumerVersion: "v1", Logger: slog.New(slog.DiscardHandler),
		Policy: policy.Policy{Backoff: policy.Backoff{Base: time.Second, Factor: 1, Max: time.Second}},
	}, sqs.OpenerWith(sqs.Config{HTTPClient: fake.Client()}))
	if err != nil {
		fmt.Println(err)
		return
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	sw.Install(router)
	router.AddConsumerHandler("charge", "orders", sw.Subscriber(), func(msg *message.Message) error {
		d, _ := spillway.DeliveryFrom(msg.Context())
		fmt.Printf("attempt %d of %s, from the %s queue, received %d time\n", d.State.Attempt, msg.UUID, d.Stream, d.Count)
		if d.State.Attempt == 1 {
			return failure.Transient(errors.New("the gateway is down"))
		}
		cancel()
		return nil
	})
	ran := make(chan error, 1)
	go func() { ran <- router.Run(ctx) }()
	<-router.Running()
	if err := sw.Publisher().Publish("orders", message.NewMessage("order-1", []byte(`{"total":7}`))); err != nil {
		fmt.Println(err)
	}
	if err := errors.Join(<-ran, sw.Close(context.Background())); err != nil {
		fmt.Println(err)
	}
	fmt.Println(fake.Queues())
	// Output:
	// attempt 1 of order-1, from the main queue, received 1 time
	// attempt 2 of order-1, from the retry queue, received 1 time
	// [orders orders_billing_dlq orders_billing_parking orders_billing_retry orders_billing_suspect]
}
