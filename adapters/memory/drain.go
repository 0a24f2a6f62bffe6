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
	return v.DrainBatch(ctx, stream, 1, func(ctx context.Context, batch []adapters.Record) error { return fn(ctx, batch[0]) })
}

// DrainBatch implements adapters.BatchDrainer. What lay in the stream when it
// was called is cut into batches.
func (v *view) DrainBatch(ctx context.Context, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	s, entries, err := v.lying(stream)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(entries, max(most, 1)) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("memory: %s %s: %w", Drain, stream, err)
		}
		if err := v.drainSome(ctx, s, batch, fn); err != nil {
			return err
		}
	}
	return nil
}

// Count implements adapters.Counter.
func (v *view) Count(_ context.Context, stream string) (n int64, err error) {
	_, entries, err := v.lying(stream)
	if err != nil {
		return 0, err
	}
	v.b.mu.Lock()
	defer v.b.unlock()
	for _, e := range entries {
		if e.free() {
			n++
		}
	}
	return n, nil
}

// Peek implements adapters.Peeker. It shows what is in flight too.
func (v *view) Peek(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	_, entries, err := v.lying(stream)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("memory: peek %s: %w", stream, err)
		}
		v.b.mu.Lock()
		r, gone := e.record(), e.gone
		v.b.unlock()
		if gone {
			continue
		}
		if err := fn(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// lying returns what a stream holds; nothing if there is no such stream.
func (v *view) lying(name string) (*stream, []*entry, error) {
	b := v.b
	b.mu.Lock()
	defer b.unlock()
	if err := b.usable(v); err != nil {
		return nil, nil, err
	}
	s := b.streams[name]
	if s == nil {
		return nil, nil, nil
	}
	return s, b.entries(s), nil
}

// free reports whether a Drain may take e.
func (e *entry) free() bool { return !e.gone && !e.claimed && e.out == 0 }

// drainSome claims those of entries that are free and still in s, and removes
// them once fn has them.
func (v *view) drainSome(ctx context.Context, s *stream, entries []*entry, fn func(context.Context, []adapters.Record) error) (err error) {
	b := v.b
	var claimed []*entry
	var records []adapters.Record
	b.mu.Lock()
	for _, e := range entries {
		if e.free() && e.stream == s {
			e.claimed = true
			claimed, records = append(claimed, e), append(records, e.record())
		}
	}
	b.unlock()
	if len(claimed) == 0 {
		return nil
	}

	removed := false
	defer func() { // also when fn panics
		b.mu.Lock()
		defer b.unlock()
		for _, e := range claimed {
			b.unclaim(e, removed)
		}
	}()
	var late error // of a record that is removed all the same
	for _, r := range records {
		do, err := b.begin(ctx, v, Drain, s.name, "", r.ID)
		if err != nil {
			return err
		}
		if do.kind == failAfter && late == nil {
			late = fmt.Errorf("memory: %s %s: %w", Drain, s.name, do.err)
		}
	}
	if err := fn(ctx, records); err != nil {
		return err
	}
	b.mu.Lock()
	err = b.usable(v)
	b.unlock()
	if err != nil {
		return err
	}
	removed = true
	return late
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
