package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/middleware"
)

// onMemory measures on the embedded broker.
type onMemory struct{ messages, rounds int }

// memoryWork is how long a handler takes that is compared with and without
// failures: as long as a call of a database. Then the slots are what is scarce,
// and the ratio says what failing messages take of them. With handlers that do
// nothing it is the processor, and the ratio says what a failure costs there.
const memoryWork = 5 * time.Millisecond

func (m onMemory) throughput(ctx context.Context, t *table) {
	run := func(s stack, messages, failEvery int, work time.Duration) func() (float64, error) {
		return func() (float64, error) {
			return trial{messages: messages, failEvery: failEvery, work: work}.run(ctx, s)
		}
	}
	n := m.messages
	all, err := inTurns(m.rounds,
		run(memorySpillway, n, 0, memoryWork), run(memorySpillway, n, 100, memoryWork),
		// A stack that blocks is measured on fewer messages.
		run(memoryWatermill, n, 0, memoryWork), run(memoryWatermill, n/2, 100, memoryWork),
		run(memorySpillway, 5*n, 0, 0), run(memorySpillway, 5*n, 100, 0),
		run(memoryWatermill, 5*n, 0, 0), run(memoryWatermill, n, 100, 0),
	)
	if err != nil {
		t.fail("memory: healthy throughput", err)
		return
	}
	t.kept("memory, Spillway", "1%", all, 1, 0, 95)
	t.kept("memory, Watermill's PoisonQueue + Retry", "1%", all, 3, 2, 0)
	t.kept("memory, Spillway, handlers that do nothing", "1%", all, 5, 4, 0)
	t.kept("memory, Watermill's, handlers that do nothing", "1%", all, 7, 6, 0)
}

func memorySpillway(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	sw, err := openMemory(ctx, middleware.Hooks{OnOutcome: onEnd(ended)})
	if err != nil {
		return nil, err
	}
	router := newRouter()
	sw.Install(router)
	return startMemory(ctx, t, sw, router, handle)
}

func memoryWatermill(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	sw, err := openMemory(ctx, middleware.Hooks{})
	if err != nil {
		return nil, err
	}
	sw.Middleware() // not used: its place is taken by what it is measured against
	router := newRouter()
	if err := addWatermillStack(router, sw.Publisher(), poisonTopic, ended); err != nil {
		return nil, err
	}
	return startMemory(ctx, t, sw, router, handle)
}

func openMemory(ctx context.Context, hooks middleware.Hooks) (*spillway.Spillway, error) {
	return spillway.Open(ctx, "memory://", benchConfig(hooks), memory.New(memory.Config{}).Opener())
}

func benchConfig(hooks middleware.Hooks) spillway.Config {
	return spillway.Config{
		Group: "bench", Concurrency: concurrency, Policy: samePolicy, Hooks: hooks,
		Logger: slog.New(slog.DiscardHandler), ConsumerVersion: "bench",
	}
}

func onEnd(ended func()) func(context.Context, *middleware.OutcomeInfo) {
	return func(_ context.Context, o *middleware.OutcomeInfo) {
		if o.Outcome == middleware.OutcomeProcessed || o.Outcome == middleware.OutcomeDeadLettered {
			ended()
		}
	}
}

func startMemory(ctx context.Context, t trial, sw *spillway.Spillway, router *message.Router, handle message.NoPublishHandlerFunc) (func() error, error) {
	const topic = "orders"
	if err := sw.Publisher().Publish(topic, t.batch()...); err != nil {
		return nil, err
	}
	router.AddConsumerHandler("charge", topic, sw.Subscriber(), handle)
	stop, err := runRouter(ctx, router)
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(stop(), sw.Close(context.WithoutCancel(ctx))) }, nil
}
