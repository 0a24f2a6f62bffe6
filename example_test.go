package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// What becomes of a message depends only on the error that its handler returns.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	left := 4
	sw, err := spillway.Open(ctx, "memory://", spillway.Config{
		Group:  "billing",
		Logger: slog.New(slog.DiscardHandler),
		Hooks: middleware.Hooks{OnOutcome: func(_ context.Context, o *middleware.OutcomeInfo) {
			fmt.Printf("%s: %s\n", o.MessageID, o.Outcome)
			if left--; left == 0 {
				stop()
			}
		}},
	}, memory.Opener())
	if err != nil {
		panic(err)
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	sw.Install(router)
	router.AddConsumerHandler("charge", "orders", sw.Subscriber(), func(msg *message.Message) error {
		switch msg.UUID {
		case "malformed":
			return failure.Permanent(errors.New("amount is not a number"), failure.ClassValidation)
		case "early":
			return failure.Missing("customer", "c-17")
		case "unlucky":
			return context.DeadlineExceeded
		}
		return nil
	})
	for _, id := range []string{"fine", "malformed", "early", "unlucky"} {
		if err := sw.Publisher().Publish("orders", message.NewMessage(id, []byte("{}"))); err != nil {
			panic(err)
		}
	}
	if err := errors.Join(router.Run(ctx), sw.Close(context.Background())); err != nil {
		panic(err)
	}
	// Output:
	// fine: processed
	// malformed: dead_lettered
	// early: retried
	// unlucky: retried
}
