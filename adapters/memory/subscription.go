package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/spillway-mq/spillway/adapters"
)

// subscription implements adapters.Subscription. It has no goroutine of its
// own: whoever makes a record available, or a place free, puts the delivery
// into out. What is in out has not been received, which makes counts exact.
type subscription struct {
	b        *Broker
	v        *view
	consumer adapters.Consumer
	out      chan *adapters.Delivery // has room for all that can be unsettled
	over     chan struct{}           // closed when deliveries must end
	held     sync.WaitGroup          // deliveries that wait by order of a fault

	// Guarded by Broker.mu.
	suspect   *group
	sources   [2]source
	turn      int
	open      int // unsettled deliveries from main and retry
	unsettled []*delivery
	queued    bool // in Broker.ready
	ended     bool // over is closed
	silent    bool // the process has crashed: it does not even see the end
	shut      bool // out is closed
}

type source struct {
	group  *group
	stream adapters.Stream
}

// delivery is one hand-out of an item; it settles itself.
type delivery struct {
	adapters.Delivery
	sub   *subscription
	item  *item
	place int  // in sub.unsettled
	open  bool // neither settled nor taken back
	held  bool // not yet in out, by order of a fault
	busy  bool // a call to settle it is waiting, by order of a fault
	err   error
}

func (s *subscription) Deliveries() <-chan *adapters.Delivery { return s.out }

// Stop waits for nothing that could take time; hence it has no use for ctx.
func (s *subscription) Stop(context.Context) error {
	s.b.mu.Lock()
	s.end()
	s.shutOut()
	s.b.unlock()
	s.held.Wait()
	return nil
}

func (s *subscription) Close(ctx context.Context) error {
	err := s.Stop(ctx)
	s.b.mu.Lock()
	defer s.b.unlock()
	s.takeBackAll()
	s.v.subs = slices.DeleteFunc(s.v.subs, func(other *subscription) bool { return other == s })
	return err
}

// All below is called with the lock held.

func (s *subscription) groups() [3]*group {
	return [3]*group{s.suspect, s.sources[0].group, s.sources[1].group}
}

// serves reports whether s is an open subscription of group on topic.
func (s *subscription) serves(topic, group string) bool {
	return !s.ended && s.consumer.Topic == topic && s.consumer.Group == group
}

// hungry reports whether s has a free place for a record of g.
func (s *subscription) hungry(g *group) bool {
	if g.solo {
		return g.inflight == 0
	}
	return s.open < s.consumer.Concurrency
}

// serve hands the next record to s, and reports whether there was one.
func (s *subscription) serve() bool {
	if s.ended {
		return false
	}
	if s.hungry(s.suspect) {
		if it := s.suspect.take(); it != nil {
			s.hand(it, adapters.StreamSuspect)
			return true
		}
	}
	for range s.sources {
		from := s.sources[s.turn]
		if !s.hungry(from.group) {
			break
		}
		s.turn = (s.turn + 1) % len(s.sources)
		if it := from.group.take(); it != nil {
			s.hand(it, from.stream)
			return true
		}
	}
	return false
}

func (s *subscription) hand(it *item, from adapters.Stream) {
	it.count++
	it.e.out++
	it.group.inflight++
	if !it.group.solo {
		s.open++
	}
	d := &delivery{sub: s, item: it, open: true, place: len(s.unsettled)}
	d.Delivery = adapters.Delivery{
		Record: it.e.record(), Consumer: s.consumer, Stream: from, Count: it.count, Settler: d,
	}
	s.unsettled = append(s.unsettled, d)

	do := s.b.match(Deliver, it.group.stream.name, it.group.name, it.e.rec.ID)
	switch do.kind {
	case crash:
		s.v.crash()
		return
	case disconnect:
		s.die()
		return
	case hold, delay:
		d.held = true
		s.held.Go(func() {
			err := do.wait(context.Background(), s.over)
			s.b.mu.Lock()
			defer s.b.unlock()
			if err != nil || s.ended {
				s.takeBack(d, false)
				return
			}
			d.held = false
			s.out <- &d.Delivery
		})
		return
	case twice:
		it.requeue()
	case undecodable:
		d.Undecodable = do.err
	}
	s.out <- &d.Delivery // has room: see hungry
}

// end ends the deliveries. Those not received go back, uncounted; those
// received can still be settled.
func (s *subscription) end() {
	if s.ended {
		return
	}
	s.ended = true
	close(s.over)
	for _, g := range s.groups() {
		g.subs = slices.DeleteFunc(g.subs, func(other *subscription) bool { return other == s })
	}
	for {
		select {
		case d := <-s.out:
			s.takeBack(d.Settler.(*delivery), false)
			continue
		default:
		}
		return
	}
}

// die breaks s: what is unsettled goes back too.
func (s *subscription) die() {
	s.end()
	s.takeBackAll()
	if !s.silent {
		s.shutOut()
	}
}

func (s *subscription) shutOut() {
	if !s.shut {
		s.shut = true
		close(s.out)
	}
}

func (s *subscription) takeBackAll() {
	for len(s.unsettled) > 0 {
		d := s.unsettled[len(s.unsettled)-1]
		s.takeBack(d, !d.held)
	}
}

// takeBack returns d to its group without its consumer's doing.
func (s *subscription) takeBack(d *delivery, counted bool) {
	if !d.open {
		return
	}
	d.err = fmt.Errorf("memory: the subscription that received the message is gone, the message is delivered again: %w", adapters.ErrClosed)
	if !counted {
		d.item.count--
	}
	s.forget(d)
	d.item.requeue()
}

// forget closes the books on d and frees its place.
func (s *subscription) forget(d *delivery) {
	d.open = false
	last := len(s.unsettled) - 1
	s.unsettled[d.place] = s.unsettled[last]
	s.unsettled[d.place].place = d.place
	s.unsettled[last] = nil
	s.unsettled = s.unsettled[:last]

	g := d.item.group
	g.inflight--
	d.item.e.out--
	if g.solo {
		g.wake()
		return
	}
	s.open--
	s.b.queue(s)
}

// Ack and Return make every delivery its own Settler: the record to settle is
// always at hand. They answer a repeated call as they answered the first.
func (d *delivery) Ack(ctx context.Context, _ *adapters.Delivery) error { return d.settle(ctx, Ack) }

func (d *delivery) Return(ctx context.Context, _ *adapters.Delivery) error {
	return d.settle(ctx, Return)
}

func (d *delivery) settle(ctx context.Context, op Op) error {
	s, it := d.sub, d.item
	s.b.mu.Lock()
	defer s.b.unlock()
	if !d.open || d.busy {
		return d.err
	}
	// A settlement that was never sent leaves the delivery unsettled, as it
	// would with a broker at the other end of a wire.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %s: %w", op, err)
	}
	do := s.b.match(op, it.group.stream.name, it.group.name, it.e.rec.ID)
	if do.waits() {
		d.busy = true
		s.b.unlock()
		err := do.wait(ctx, s.v.gone)
		s.b.mu.Lock()
		d.busy = false
		switch {
		case !d.open:
			return d.err
		case err != nil:
			return fmt.Errorf("memory: %s: %w", op, err)
		}
	}
	switch do.kind {
	case crash:
		s.v.crash()
		return d.err
	case disconnect:
		s.die()
		return d.err
	}
	s.forget(d)
	if op == Ack && do.kind != fail && do.kind != lose {
		it.ack(s.b.cfg.Retain)
	} else {
		it.requeue()
	}
	if do.kind == fail || do.kind == failAfter {
		d.err = fmt.Errorf("memory: %s: %w", op, do.err)
	}
	return d.err
}
