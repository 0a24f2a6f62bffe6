package memory_test

import (
	"context"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// BenchmarkDeliver settles a backlog as fast as one consumer can.
func BenchmarkDeliver(b *testing.B) {
	for _, bench := range []struct {
		name        string
		concurrency int
		headers     int
	}{{"concurrency=1", 1, 0}, {"concurrency=16", 16, 0}, {"headers", 1, 8}} {
		b.Run(bench.name, func(b *testing.B) {
			ctx := context.Background()
			broker := memory.New(memory.Config{})
			defer broker.Close(ctx)
			view, err := broker.Opener().Open(ctx, adapters.OpenParams{})
			if err != nil {
				b.Fatal(err)
			}
			c := adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: bench.concurrency}
			if err := view.Ensure(ctx, c); err != nil {
				b.Fatal(err)
			}
			r := adapters.Record{ID: "1", Payload: make([]byte, 256)}
			for range bench.headers {
				r.Headers = append(r.Headers, adapters.Header{Key: "key", Value: []byte("some value")})
			}
			for range b.N {
				if err := broker.Publish("orders", r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			sub, err := view.Subscribe(ctx, c)
			if err != nil {
				b.Fatal(err)
			}
			for range b.N {
				d := <-sub.Deliveries()
				if err := d.Settler.Ack(ctx, d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}

// BenchmarkReturn redelivers in front of a large backlog, which must not cost
// more than in front of a small one.
func BenchmarkReturn(b *testing.B) {
	for _, bench := range []struct {
		name    string
		backlog int
	}{{"backlog=100", 100}, {"backlog=100000", 100_000}} {
		b.Run(bench.name, func(b *testing.B) {
			ctx := context.Background()
			broker := memory.New(memory.Config{})
			defer broker.Close(ctx)
			view, err := broker.Opener().Open(ctx, adapters.OpenParams{})
			if err != nil {
				b.Fatal(err)
			}
			c := adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 16}
			if err := view.Ensure(ctx, c); err != nil {
				b.Fatal(err)
			}
			for range bench.backlog {
				if err := broker.Publish("orders", adapters.Record{Payload: make([]byte, 16)}); err != nil {
					b.Fatal(err)
				}
			}
			sub, err := view.Subscribe(ctx, c)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				d := <-sub.Deliveries()
				if err := d.Settler.Return(ctx, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
