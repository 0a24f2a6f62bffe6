package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
)

// chainCost measures what the chain adds to the call of a handler that
// succeeds, with the log hooks that every Spillway has.
func chainCost() []row {
	broker, err := memory.Opener().Open(context.Background(), adapters.OpenParams{URL: &url.URL{Scheme: "memory"}})
	must(err)
	evidence := poison.Evidence{}
	chain, err := middleware.NewChain(middleware.ChainConfig{
		Broker: broker,
		Hooks:  middleware.SlogHooks(slog.New(slog.DiscardHandler), evidence),
	})
	must(err)
	handler := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	chained := chain.Middleware(handler)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d := &adapters.Delivery{Consumer: adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}, Stream: adapters.StreamMain, State: envelope.State{Attempt: 1}}
	d.ID = "8f14e45f-ceea-467f-9f0c-5f2b5f6f7f6e"
	ctx = adapters.WithDelivery(ctx, d)
	for i := range 5 { // as many values as the Router puts on top
		ctx = context.WithValue(ctx, routerKey(i), "value")
	}
	msg := message.NewMessage(d.ID, []byte("{}"))
	msg.SetContext(ctx)

	bare := fastest(func() { _, _ = handler(msg) })
	full := fastest(func() { _, _ = chained(msg) })
	ns := float64(full-bare) / batchSize
	allocs := testing.AllocsPerRun(1000, func() { _, _ = chained(msg) })
	return []row{
		{"chain on the success path, time", fmt.Sprintf("+%.0f ns", ns), "at most 300 ns", ns <= 300},
		{"chain on the success path, allocations", fmt.Sprintf("+%.0f", allocs), "at most 2", allocs <= 2},
	}
}

type routerKey int

const batchSize = 20_000

// fastest returns the time of the fastest of many batches of calls: what the
// code costs, and not what else the machine was doing.
func fastest(f func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for range 50 {
		start := time.Now()
		for range batchSize {
			f()
		}
		best = min(best, time.Since(start))
	}
	return best
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
