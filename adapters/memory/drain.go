package memory

import (
	"container/heap"
	"context"
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/adapters"
)

// Drain takes what lay in the stream when it was called, whether it can be
// delivered or waits for its due time. What is in flight to a group stays, and
// so does what another Drain has in hand. A record that fn has in hand is not
// delivered meanwhile.
func (v *view) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	b := v.b
	b.mu.Lock()
	if err := b.usable(v); err != nil {
		b.unlock()
		return err
	}
	s := b.streams[stream]
	if s == nil {
		b.unlock()
		return nil
	}
	entries := b.entries(s)
	b.unlock()
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("memory: %s %s: %w", Drain, stream, err)
		}
		if err := v.drainOne(ctx, s, e, fn); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) drainOne(ctx context.Context, s *stream, e *entry, fn func(context.Context, adapters.Record) error) (err error) {
	b := v.b
	b.mu.Lock()
	if e.gone || e.claimed || e.out > 0 || e.stream != s {
		b.unlock()
		return nil
	}
	e.claimed = true
	r := e.record()
	b.unlock()

	removed := false
	defer func() { // also when fn panics
		b.mu.Lock()
		defer b.unlock()
		b.unclaim(e, removed)
	}()
	do, err := b.begin(ctx, v, Drain, s.name, "", r.ID)
	if err != nil {
		return err
	}
	if err := fn(ctx, r); err != nil {
		return err
	}
	b.mu.Lock()
	err = b.usable(v)
	b.unlock()
	if err != nil {
		return err
	}
	removed = true
	if do.kind == failAfter {
		return fmt.Errorf("memory: %s %s: %w", Drain, s.name, do.err)
	}
	return nil
}

// unclaim ends a Drain's hold on e, by removing it or by giving it back.
func (b *Broker) unclaim(e *entry, removed bool) {
	e.claimed = false
	s, shelved := e.stream, e.shelved
	e.shelved = nil
	if e.offset < 0 {
		ripe := slices.Index(b.ripe, e)
		if ripe >= 0 {
			b.ripe = slices.Delete(b.ripe, ripe, ripe+1)
		}
		switch {
		case removed:
			if ripe < 0 {
				heap.Remove(&b.delayed, e.waiting)
			}
			e.gone = true
			s.delayed--
		case ripe >= 0:
			s.delayed--
			b.land(e, wallTime())
		}
		return
	}
	if removed {
		for _, g := range s.groups {
			if !slices.Contains(e.ackedBy, g) {
				g.lag--
			}
		}
		s.remove(e)
		return
	}
	for _, it := range shelved {
		it.queued = false
		it.requeue()
	}
}
