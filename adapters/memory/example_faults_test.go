package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// The dead letter stream is out of order from the third hand-off on, and comes
// back after two failures. Then the process dies between a hand-off and its
// ack, so that a message is both dead-lettered and delivered again.
func ExampleBroker_Inject() {
	ctx := context.Background()
	broker := memory.New(memory.Config{})
	defer broker.Close(ctx)

	broker.Inject(
		memory.Fault{
			On: memory.Handoff, Stream: "orders.billing.dlq",
			Skip: 2, Times: 2,
			Do: memory.Fail(errors.New("no quorum")),
		},
		memory.Fault{On: memory.Ack, ID: "order-3", Do: memory.Crash()},
	)

	// Spillway does all of this; here the broker is used directly.
	billing := adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}
	work := func() {
		process, err := broker.Opener().Open(ctx, adapters.OpenParams{})
		if err != nil {
			panic(err)
		}
		if err := process.Ensure(ctx, billing); err != nil {
			panic(err)
		}
		sub, err := process.Subscribe(ctx, billing)
		if err != nil {
			panic(err)
		}
		for broker.Lag("orders", "billing") > 0 {
			d := <-sub.Deliveries()
			fmt.Printf("%s, delivery %d\n", d.ID, d.Count)
			h := adapters.Handoff{Consumer: billing, Stream: adapters.StreamDeadLetter, Record: d.Record}
			for err := process.Handoff(ctx, h); err != nil; err = process.Handoff(ctx, h) {
				fmt.Println(" ", err)
			}
			if err := d.Settler.Ack(ctx, d); err != nil {
				fmt.Println("  the process has crashed:", errors.Is(err, adapters.ErrClosed))
				return
			}
		}
	}
	for i := range 3 {
		if err := broker.Publish("orders", adapters.Record{ID: fmt.Sprint("order-", i+1)}); err != nil {
			panic(err)
		}
	}
	work()
	work()

	fmt.Println("dead letters:", broker.Depth("orders.billing.dlq"))
	fmt.Println("faults left:", broker.FaultsLeft())
	// Output:
	// order-1, delivery 1
	// order-2, delivery 1
	// order-3, delivery 1
	//   memory: hand-off orders.billing.dlq: no quorum
	//   memory: hand-off orders.billing.dlq: no quorum
	//   the process has crashed: true
	// order-3, delivery 2
	// dead letters: 4
	// faults left: []
}
