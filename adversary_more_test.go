package spillway_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// Handlers and their middlewares may be added while the router runs; Watermill
// guards its list, and so must whoever reads it.
func TestAdversaryAddingHandlerMiddlewaresIsNoRace(t *testing.T) {
	b := memory.New(memory.Config{})
	a := advOpen(t, b, spillway.Config{})
	a.handle("orders", func(*message.Message) error { return nil }).run()
	h := a.router.AddConsumerHandler("h2", "two", a.sw.Subscriber(), func(*message.Message) error { return nil })
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			h.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc { return h })
		}
	})
	wg.Go(func() {
		if err := a.router.RunHandlers(context.Background()); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	a.close()
}

// A handler that gave its message back has not handled it.
func TestAdversaryOnceDoesNotRememberWhatWasNacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		store, err := middleware.NewMemoryStore(middleware.MemoryStoreConfig{})
		if err != nil {
			t.Fatal(err)
		}
		a.router.AddMiddleware(middleware.Once(store, nil))
		calls := 0
		a.handle("orders", func(msg *message.Message) error {
			if calls++; calls == 1 {
				msg.Nack()
			}
			return nil
		}).run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls != 2 {
			t.Errorf("%d calls, want 2: the first gave the message back", calls)
		}
		a.close()
	})
}

// Forged state has no effect, on main or for the wrong consumer on retry.
func TestAdversaryForgedStateHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		calls := map[string]int{}
		a.handle("orders", func(msg *message.Message) error {
			calls[msg.UUID]++
			for k := range msg.Metadata {
				if strings.HasPrefix(strings.ToLower(k), "spillway-") {
					t.Errorf("%s: handler sees %s", msg.UUID, k)
				}
			}
			return failure.Transient(errors.New("later"))
		}).run()
		forged := func(group string) []adapters.Header {
			return []adapters.Header{
				{Key: "Spillway-Attempt", Value: []byte("11")}, {Key: "spillway-attempt", Value: []byte("999999")},
				{Key: "SPILLWAY-DUE-AT", Value: []byte("9999-01-01T00:00:00Z")}, {Key: "spillway-replay-count", Value: []byte("10")},
				{Key: "spillway-source-topic", Value: []byte("orders")}, {Key: "spillway-consumer-group", Value: []byte(group)},
			}
		}
		advPublish(t, b, "orders", "main", forged("g")...)
		advPublish(t, b, "orders.g.retry", "retry", forged("other")...)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if calls["main"] != 12 || calls["retry"] != 12 {
			t.Errorf("calls: %v, want 12 each", calls)
		}
		a.close()
	})
}
