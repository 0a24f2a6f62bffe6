package middleware_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/spillway-mq/spillway/middleware"
)

// The key tells copies of one message, which are dropped, from equal messages,
// which are not. Retries and replays differ by what the chain knows of them.
func ExampleDedupKey() {
	dedup := &watermillmiddleware.Deduplicator{KeyFactory: middleware.DedupKey}
	h := dedup.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("handled", msg.UUID)
		return nil, nil
	})
	for _, id := range []string{"m-1", "m-1", "m-2"} {
		if _, err := h(message.NewMessage(id, []byte(`{"pay":10}`))); err != nil {
			panic(err)
		}
	}
	// Output:
	// handled m-1
	// handled m-2
}
