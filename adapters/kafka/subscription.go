package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/adapters"
)

// subscription merges what the readers of one consumer deliver: its topic, its
// retry tiers, its parking lot, its suspects.
type subscription struct {
	b     *broker
	c     adapters.Consumer
	out   chan *adapters.Delivery
	slots chan struct{} // one for each unsettled delivery, without suspects

	mu      sync.Mutex
	stopped bool
	sending sync.WaitGroup // hand-outs

	stop      chan struct{} // hand out nothing more
	closing   chan struct{} // leave the groups
	closeOnce sync.Once
	readers   sync.WaitGroup
	gone      chan struct{} // the groups are left
}

func (b *broker) Subscribe(_ context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	if err := b.supports(c); err != nil {
		return nil, err
	}
	if c.Concurrency < 1 {
		return nil, fmt.Errorf("kafka: subscribe to %q: the concurrency is %d, and must be positive", c.Topic, c.Concurrency)
	}
	s := &subscription{
		b: b, c: c, out: make(chan *adapters.Delivery), slots: make(chan struct{}, c.Concurrency),
		stop: make(chan struct{}), closing: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, r := range s.newReaders() {
		s.readers.Go(r.run)
	}
	go func() { s.readers.Wait(); close(s.gone) }()
	return s, nil
}

func (s *subscription) newReaders() []*reader {
	retry := make([]string, len(s.b.tiers))
	for i, tier := range s.b.tiers {
		retry[i] = s.b.tierName(s.c, tier)
	}
	of := func(stream adapters.Stream) string { return s.b.names.Of(stream, s.c) }
	return []*reader{
		newReader(s, adapters.StreamMain, s.b.mainGroup(s.c), []string{s.c.Topic}),
		newReader(s, adapters.StreamRetry, of(adapters.StreamRetry), retry),
		newReader(s, adapters.StreamParking, of(adapters.StreamParking), []string{of(adapters.StreamParking)}),
		newReader(s, adapters.StreamSuspect, of(adapters.StreamSuspect), []string{of(adapters.StreamSuspect)}),
	}
}

func (s *subscription) Deliveries() <-chan *adapters.Delivery { return s.out }

// begin starts a hand-out, unless the subscription has stopped.
func (s *subscription) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.sending.Add(1)
	return true
}

// Stop ends the hand-outs. The groups are not left before Close, so that what
// was handed out can be settled.
func (s *subscription) Stop(context.Context) error {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	s.sending.Wait()
	if first {
		close(s.out)
	}
	return nil
}

// Close leaves the groups, after a last commit.
func (s *subscription) Close(ctx context.Context) error {
	err := s.Stop(ctx)
	s.closeOnce.Do(func() { close(s.closing) })
	select {
	case <-s.gone:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("kafka: leave the groups of topic %q: %w", s.c.Topic, ctx.Err()))
	}
}

// settler settles one delivery.
type settler struct {
	p       *partition
	e       *entry
	release func() // its slot, or its being alone
	done    atomic.Bool
}

func (x *settler) Ack(ctx context.Context, d *adapters.Delivery) error {
	return x.settle(ctx, "acknowledge", d, true)
}

func (x *settler) Return(ctx context.Context, d *adapters.Delivery) error {
	return x.settle(ctx, "return", d, false)
}

func (x *settler) settle(ctx context.Context, what string, d *adapters.Delivery, finished bool) error {
	if x.done.Swap(true) {
		return nil
	}
	err := x.p.settle(ctx, x.e, finished)
	x.release()
	if err != nil {
		return fmt.Errorf("kafka: %s message %q of topic %q, partition %d, offset %d: %w",
			what, d.ID, x.p.topic, x.p.partition, x.e.msg.Offset, err)
	}
	return nil
}
