package spillway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
)

type order struct {
	Customer string `json:"customer"`
	Amount   int    `json:"amount"`
}

func parse(payload []byte) (o order, err error) {
	return o, json.Unmarshal(payload, &o)
}

func known(customer string) bool { return customer == "anna" }

func charge(_ context.Context, o order) error {
	fmt.Printf("charged %s %d\n", o.Customer, o.Amount)
	close(charged)
	return nil
}

var charged = make(chan struct{})

// bill is the whole of a program that consumes orders.
func bill(ctx context.Context) error {
	sw, err := spillway.Open(ctx, "memory://", spillway.Config{Group: "billing"}, memory.Opener())
	if err != nil {
		return err
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	sw.Install(router)

	router.AddConsumerHandler("charge", "orders", sw.Subscriber(), func(msg *message.Message) error {
		order, err := parse(msg.Payload)
		if err != nil {
			return failure.Permanent(err, failure.ClassValidation) // dead letter, at once
		}
		if !known(order.Customer) {
			return failure.Missing("customer", order.Customer) // soon again, then parked until it exists
		}
		return charge(msg.Context(), order) // a time-out, a 503, a deadlock: the classifier knows them
	})
	go publishOrders(sw.Publisher(), router)
	return errors.Join(router.Run(ctx), sw.Close(context.Background()))
}

func publishOrders(pub message.Publisher, router *message.Router) {
	<-router.Running()
	for _, body := range []string{`{"customer":"anna","amount":`, `{"customer":"anna","amount":3}`} {
		if err := pub.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte(body))); err != nil {
			panic(err)
		}
	}
	<-charged
	if err := router.Close(); err != nil {
		panic(err)
	}
}

func ExampleOpen() {
	if err := bill(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// charged anna 3
}
