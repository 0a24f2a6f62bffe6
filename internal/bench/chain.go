package main

import (
	"context"
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
func chainCost(ctx context.Context, t *table) {
	chained, err := newChain(ctx)
	if err != nil {
		t.fail("chain on the success path", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &adapters.Delivery{Consumer: adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}, Stream: adapters.StreamMain, State: envelope.State{Attempt: 1}}
	d.ID = "8f14e45f-ceea-467f-9f0c-5f2b5f6f7f6e"
	ctx = adapters.WithDelivery(ctx, d)
	for i := range 5 { // as many values as the Router puts on top
		ctx = context.WithValue(ctx, routerKey(i), "value")
	}
	msg := message.NewMessage(d.ID, []byte("{}"))
	msg.SetContext(ctx)

	bare := fastest(func() { _, _ = succeed(msg) })
	full := fastest(func() { _, _ = chained(msg) })
	ns := float64(full-bare) / batchSize
	allocs := testing.AllocsPerRun(1000, func() { _, _ = chained(msg) })
	t.check("chain on the success path, time", ns <= 300, "at most 300 ns", "+%.0f ns", ns)
	t.check("chain on the success path, allocations", allocs <= 2, "at most 2", "+%.0f", allocs)
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

// newChain is the chain around succeed.
func newChain(ctx context.Context) (message.HandlerFunc, error) {
	broker, err := memory.Opener().Open(ctx, adapters.OpenParams{URL: &url.URL{Scheme: "memory"}})
	if err != nil {
		return nil, err
	}
	chain, err := middleware.NewChain(middleware.ChainConfig{
		Broker: broker,
		Hooks:  []middleware.Hooks{middleware.SlogHooks(slog.New(slog.DiscardHandler), poison.Evidence{})},
	})
	if err != nil {
		return nil, err
	}
	return chain.Middleware(succeed), nil
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
