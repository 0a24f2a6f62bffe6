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
	turns turns

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
		// With room for all that can be out, and for a suspect, nobody waits for a receiver.
		b: b, c: c, out: make(chan *adapters.Delivery, c.Concurrency+1), turns: turns{free: c.Concurrency},
		stop: make(chan struct{}), closing: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, r := range s.newReaders() {
		s.readers.Go(func() {
			b.readers.add(r)
			defer b.readers.remove(r)
			r.run()
		})
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

// handOut hands out what is due, as slots allow. Whoever has made that possible
// calls it: the reader of a partition, and whoever has settled a delivery, so that
// nobody must be woken to hand out the next one.
func (s *subscription) handOut() {
	for p := s.turns.next(); p != nil; p = s.turns.next() {
		if !p.handOutNext() {
			s.turns.release()
		}
		s.turns.busy.Done()
	}
}

// Stop ends the hand-outs, and takes back what nobody has received. The groups are
// not left before Close, so that what was handed out can be settled.
func (s *subscription) Stop(context.Context) error {
	first := s.turns.stop()
	if first {
		close(s.stop)
	}
	s.turns.busy.Wait()
	if first {
		for len(s.out) > 0 {
			select {
			case d := <-s.out:
				d.Settler.(*settler).takeBack()
			default: // received after all
			}
		}
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
	p    *partition
	e    *entry
	end  func() // of its being alone; nil if it has a slot
	done atomic.Bool
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

// takeBack undoes the hand-out of what nobody has received.
func (x *settler) takeBack() {
	if !x.done.Swap(true) {
		x.p.putBack(x.e)
		x.release()
	}
}

func (x *settler) release() {
	if x.end != nil {
		x.end()
		return
	}
	s := x.p.r.s
	s.turns.release()
	s.handOut()
}
