package rabbitmq_test

import (
	"context"
	"log"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

// A service whose orders come through an exchange and a queue that another team
// declares, and whose jobs are published straight into a queue.
func ExampleOpenerWith() {
	ctx := context.Background()
	sw, err := spillway.Open(ctx, "amqp://guest:guest@localhost:5672/", spillway.Config{Group: "billing"},
		rabbitmq.OpenerWith(rabbitmq.Config{
			Topics: map[string]rabbitmq.Topic{
				"orders": {Exchange: "shop.events", Kind: "topic", Queue: "billing-orders", BindKey: "order.*", Existing: true},
				"jobs":   {Kind: rabbitmq.KindQueue},
			},
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer sw.Close(ctx)
	// Install the chain in a Router, and subscribe with sw.Subscriber().
}
