package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// printer is a publisher that shows what it is given.
type printer struct{}

func (printer) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		fmt.Printf("%s: %s %v\n", topic, m.Payload, map[string]string(m.Metadata))
	}
	return nil
}

func (printer) Close() error { return nil }

func ExampleStripControlCharacters() {
	strip := middleware.StripControlCharacters(middleware.StripConfig{
		OnStrip: func(_ context.Context, info middleware.StripInfo) {
			fmt.Printf("cleaned message %s: %d characters\n", info.MessageID, info.Removed)
		},
	})
	pub, err := strip(printer{}) // or router.AddPublisherDecorators(strip)
	if err != nil {
		panic(err)
	}
	// A customer has pasted an escape character into a free text field.
	err = pub.Publish("invoices", message.NewMessage("m-1", []byte(`{"total": 10.50, "note": "ring twice\u001b"}`)))
	fmt.Println(err)
	// Output:
	// cleaned message m-1: 1 characters
	// invoices: {"total": 10.50, "note": "ring twice"} map[]
	// <nil>
}

func ExampleStripControlCharacters_refuse() {
	pub, err := middleware.StripControlCharacters(middleware.StripConfig{Action: middleware.StripRefuse})(printer{})
	if err != nil {
		panic(err)
	}
	err = pub.Publish("invoices", message.NewMessage("m-1", []byte(`{"note": "ring twice\u001b"}`)))
	fmt.Println(err)
	fmt.Println(failure.Classifier{}.Classify(err).Class)
	// Output:
	// strip: message "m-1" for topic "invoices" refused: character U+001B at byte 20 of the payload
	// serialization
}

func ExampleValidate() {
	validate := middleware.Validate(func(_ context.Context, p middleware.ValidateParams) error {
		var order struct{ Customer string }
		if err := json.Unmarshal(p.Message.Payload, &order); err != nil {
			return err
		}
		if order.Customer == "" {
			return errors.New("customer is missing")
		}
		return nil
	})
	pub, err := validate(printer{})
	if err != nil {
		panic(err)
	}
	err = pub.Publish("orders",
		message.NewMessage("m-1", []byte(`{"customer":"c-7"}`)),
		message.NewMessage("m-2", []byte(`{}`)))
	fmt.Println(err) // and m-1 was not published either
	f := failure.Classifier{}.Classify(err)
	fmt.Println(f.Nature, f.Class)
	// Output:
	// validate: message "m-2" for topic "orders" refused: customer is missing
	// permanent validation
}

func ExampleStamp() {
	pub, err := middleware.Stamp(middleware.StampConfig{
		ProducerVersion: "v1.4.0",
		SchemaVersion:   func(context.Context, middleware.StampParams) string { return "3" },
	})(printer{})
	if err != nil {
		panic(err)
	}
	if err := pub.Publish("orders", message.NewMessage("m-1", []byte(`{}`))); err != nil {
		panic(err)
	}
	// Output:
	// orders: {} map[producer-version:v1.4.0 schema-version:3]
}
