package adaptertest

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Bench is for an adapter's own tests: what they do with a broker, step by
// step. Whatever goes wrong fails the test.
type Bench struct {
	*testing.T
	Broker adapters.Broker
	// Patience is how long it waits for anything: within a testing/synctest
	// bubble it may be a day.
	Patience time.Duration
}

// context is for what may also be done while the test is cleaned up.
func (b Bench) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), b.Patience)
}

// Ensure makes the streams of c.
func (b Bench) Ensure(c adapters.Consumer) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := b.Broker.Ensure(ctx, c); err != nil {
		b.Fatal(err)
	}
}

// Subscribe opens a subscription of c, whose streams it makes, and closes it at
// the end of the test.
func (b Bench) Subscribe(c adapters.Consumer) adapters.Subscription {
	b.Helper()
	b.Ensure(c)
	return b.SubscribeOn(b.Broker, c)
}

// SubscribeOn is Subscribe of another process, and makes no streams.
func (b Bench) SubscribeOn(process adapters.Broker, c adapters.Consumer) adapters.Subscription {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	s, err := process.Subscribe(ctx, c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { b.Close(s) })
	return s
}

// Close closes a subscription.
func (b Bench) Close(s adapters.Subscription) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := s.Close(ctx); err != nil {
		b.Errorf("close subscription: %v", err)
	}
}

// Next returns the next delivery.
func (b Bench) Next(s adapters.Subscription) *adapters.Delivery {
	b.Helper()
	select {
	case d, ok := <-s.Deliveries():
		if !ok {
			b.Fatal("the subscription ended")
		}
		return d
	case <-time.After(b.Patience):
		b.Fatal("nothing was delivered")
	}
	return nil
}

// Quiet checks that nothing is delivered for a while.
func (b Bench) Quiet(s adapters.Subscription, d time.Duration) {
	b.Helper()
	select {
	case got, ok := <-s.Deliveries():
		if ok {
			b.Fatalf("delivered %q from %s", got.ID, got.Stream)
		}
	case <-time.After(d):
	}
}

// Ack settles a delivery that is done.
func (b Bench) Ack(d *adapters.Delivery) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := d.Settler.Ack(ctx, d); err != nil {
		b.Fatal(err)
	}
}

// Return gives a delivery back to the broker.
func (b Bench) Return(d *adapters.Delivery) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := d.Settler.Return(ctx, d); err != nil {
		b.Fatal(err)
	}
}

// Handoff writes a message to a stream, confirmed.
func (b Bench) Handoff(h adapters.Handoff) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	if err := b.Broker.Handoff(ctx, h); err != nil {
		b.Fatal(err)
	}
}

// Drain removes and returns all records of a stream.
func (b Bench) Drain(stream string) (records []adapters.Record) {
	b.Helper()
	ctx, cancel := b.context()
	defer cancel()
	err := b.Broker.Drain(ctx, stream, func(_ context.Context, r adapters.Record) error {
		records = append(records, r)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return records
}

// Eventually asks until ok.
func (b Bench) Eventually(what string, ok func() bool) {
	b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(b.Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("not within %s: %s", b.Patience, what)
		}
	}
}
