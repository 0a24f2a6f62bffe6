package memory

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
)

// KeyMetadata is the metadata key whose value a publisher of this broker uses
// as the record's key. It stays in the metadata.
const KeyMetadata = "partition-key"

// Broker is the broker itself: the data, and the handles by which a test looks
// at it and breaks it. What Spillway works with are the views that
// [Broker.Opener] opens. All methods are safe for concurrent use; those that
// look work after Close too.
type Broker struct {
	cfg   Config
	names adapters.NameRegistry
	gone  chan struct{} // closed by Close

	mu      sync.Mutex // never held while waiting for anything
	streams map[string]*stream
	views   []*view
	faults  []*scripted
	delayed delayHeap
	ripe    []*entry        // became due while a Drain had them in hand
	timer   *time.Timer     // rings when the first of delayed is due
	ready   []*subscription // may have a record to take and a place for it
	seq     uint64
	closed  bool
}

// New makes an empty broker. It panics where [Config.Validate] returns an
// error.
func New(cfg Config) *Broker {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	return &Broker{cfg: cfg.withDefaults(), streams: map[string]*stream{}, gone: make(chan struct{})}
}

// Opener opens views of b under the scheme "memory". Each view is a process of
// its own to [Broker.Crash]. The URL may be nil, and has no options: b is
// configured already.
func (b *Broker) Opener() adapters.Opener {
	return adapters.Opener{Schemes: []string{"memory"}, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
		if p.URL != nil {
			if err := checkBare(p.URL); err != nil {
				return nil, err
			}
			if p.URL.RawQuery != "" {
				return nil, errors.New("memory: a shared broker takes no options in its URL: set them in memory.Config")
			}
		}
		return b.open(ctx, p, false)
	}}
}

// Opener makes a new broker for each Open, which is gone when that is closed.
// The package comment says which options the URL takes.
func Opener() adapters.Opener {
	return adapters.Opener{Schemes: []string{"memory"}, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
		var cfg Config
		if p.URL != nil {
			var err error
			if cfg, err = parseOptions(p.URL); err != nil {
				return nil, err
			}
		}
		return New(cfg).open(ctx, p, true)
	}}
}

func (b *Broker) open(ctx context.Context, p adapters.OpenParams, private bool) (adapters.Broker, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: open: %w", err)
	}
	if err := p.Names.Validate(); err != nil {
		return nil, fmt.Errorf("memory: open: %w", err)
	}
	b.mu.Lock()
	defer b.unlock()
	if err := b.usable(nil); err != nil {
		return nil, err
	}
	v := &view{b: b, names: p.Names.WithDefaults(), private: private, gone: make(chan struct{})}
	b.views = append(b.views, v)
	return v, nil
}

// Close closes all views and stops all waiting. Records stay where they are,
// to be looked at.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.unlock()
		return nil
	}
	b.closed = true
	close(b.gone)
	if b.timer != nil {
		b.timer.Stop()
	}
	views := slices.Clone(b.views)
	b.unlock()
	var errs []error
	for _, v := range views {
		errs = append(errs, v.shut(ctx))
	}
	return errors.Join(errs...)
}

// Publish writes records to a topic, whole: with their keys, and with headers
// that repeat or have a type. Positions are ignored. It stops at the first
// error; the records before it are written.
func (b *Broker) Publish(topic string, records ...adapters.Record) error {
	for _, r := range records {
		if err := b.publish(context.Background(), nil, topic, r); err != nil {
			return err
		}
	}
	return nil
}

// Publisher publishes Watermill messages, as a service without Spillway does.
// See [KeyMetadata]. Metadata become headers in the order of their names. Its
// Close does nothing.
func (b *Broker) Publisher() message.Publisher { return publisher{b: b} }

// Crash kills every process that has a subscription of group on topic, and
// returns how many died. A process that was killed sees nothing more: its
// subscriptions fall silent, and everything it calls fails with ErrClosed. What
// it had received and not settled is delivered again, counted. Stop and Close
// of what is left of it work and do nothing else.
func (b *Broker) Crash(topic, group string) int {
	b.mu.Lock()
	defer b.unlock()
	n := 0
	for _, v := range b.views {
		if slices.ContainsFunc(v.subs, func(s *subscription) bool { return s.serves(topic, group) }) {
			v.crash()
			n++
		}
	}
	return n
}

// Disconnect breaks every subscription of group on topic for good, and returns
// how many broke. Their Deliveries are closed, what was received and not
// settled is delivered again, counted, and settling it fails with ErrClosed.
// The processes live on and may subscribe again.
func (b *Broker) Disconnect(topic, group string) int {
	b.mu.Lock()
	defer b.unlock()
	n := 0
	for _, v := range b.views {
		for _, s := range v.subs {
			if s.serves(topic, group) {
				s.die()
				n++
			}
		}
	}
	return n
}

// Streams returns the names of all topics and streams, sorted.
func (b *Broker) Streams() []string {
	b.mu.Lock()
	defer b.unlock()
	return sortedKeys(b.streams)
}

// Groups returns the names of the consumer groups of a topic, sorted.
func (b *Broker) Groups(topic string) []string {
	b.mu.Lock()
	defer b.unlock()
	var names []string
	if s := b.streams[topic]; s != nil {
		for _, g := range s.groups {
			names = append(names, g.name)
		}
	}
	slices.Sort(names)
	return names
}

// Records returns copies of the records in a stream: those that can be
// delivered, or have been and are not removed yet, in the order in which they
// became visible, then those that wait for their due time, in that order and
// without an offset.
func (b *Broker) Records(stream string) []adapters.Record {
	b.mu.Lock()
	defer b.unlock()
	s := b.streams[stream]
	if s == nil {
		return nil
	}
	var records []adapters.Record
	for _, e := range b.entries(s) {
		records = append(records, e.record())
	}
	return records
}

// Depth returns how many records a stream holds: those that can be delivered,
// those in flight, and those that wait for their due time.
func (b *Broker) Depth(stream string) int {
	b.mu.Lock()
	defer b.unlock()
	if s := b.streams[stream]; s != nil {
		return s.lying + s.delayed
	}
	return 0
}

// Lag returns how many records of a stream that can be delivered, or are in
// flight, group has not acknowledged yet.
func (b *Broker) Lag(stream, group string) int {
	b.mu.Lock()
	defer b.unlock()
	if s := b.streams[stream]; s != nil {
		if g := s.group(group); g != nil {
			return g.lag
		}
	}
	return 0
}

// InFlight returns how many deliveries of a stream group has not settled yet,
// including those that are offered to a subscription and not received.
func (b *Broker) InFlight(stream, group string) int {
	b.mu.Lock()
	defer b.unlock()
	if s := b.streams[stream]; s != nil {
		if g := s.group(group); g != nil {
			return g.inflight
		}
	}
	return 0
}

// unlock hands out what can be handed out, and releases the lock.
func (b *Broker) unlock() {
	for i := 0; i < len(b.ready); i++ { // grows as it goes
		s := b.ready[i]
		s.queued = false
		if s.serve() {
			b.queue(s) // again, but behind its competitors
		}
	}
	clear(b.ready) // lets go of closed subscriptions
	b.ready = b.ready[:0]
	b.mu.Unlock()
}

// queue has s served before the lock is released.
func (b *Broker) queue(s *subscription) {
	if !s.queued && !s.ended {
		s.queued = true
		b.ready = append(b.ready, s)
	}
}

// usable reports ErrClosed when the broker, or the view of it, is closed.
func (b *Broker) usable(v *view) error {
	switch {
	case b.closed:
		return fmt.Errorf("memory: broker: %w", adapters.ErrClosed)
	case v != nil && v.over:
		return fmt.Errorf("memory: this process's view of the broker: %w", adapters.ErrClosed)
	}
	return nil
}

// begin plays what the script has for the start of an operation. On nil the
// operation goes on, with the effect on its end.
func (b *Broker) begin(ctx context.Context, v *view, op Op, stream, group, id string) (Effect, error) {
	gone := b.gone
	if v != nil {
		gone = v.gone
	}
	b.mu.Lock()
	if err := b.usable(v); err != nil {
		b.unlock()
		return Effect{}, err
	}
	do := b.match(op, stream, group, id)
	if do.kind == crash && v != nil {
		v.crash()
	}
	b.unlock()
	var err error
	switch do.kind {
	case fail:
		err = do.err
	case crash:
		err = adapters.ErrClosed
	default:
		err = do.wait(ctx, gone)
	}
	if err != nil {
		return do, fmt.Errorf("memory: %s %s: %w", op, stream, err)
	}
	return do, nil
}

func (b *Broker) publish(ctx context.Context, v *view, topic string, r adapters.Record) error {
	if topic == "" {
		return errors.New("memory: publish: the topic has no name")
	}
	do, err := b.begin(ctx, v, Publish, topic, "", r.ID)
	if err != nil {
		return err
	}
	r = clone(r)
	b.mu.Lock()
	defer b.unlock()
	return b.commit(v, Publish, do, b.stream(topic, false), r, time.Time{}, nil)
}

// commit ends a publish or hand-off: it writes r, unless the broker refuses it.
func (b *Broker) commit(v *view, op Op, do Effect, to *stream, r adapters.Record, due time.Time, moveTo *stream) error {
	if err := b.usable(v); err != nil {
		return err
	}
	if err := b.checkSize(to, r); err != nil {
		return fmt.Errorf("memory: %s %s: %w", op, to.name, err)
	}
	b.write(to, r, due, moveTo)
	switch do.kind {
	case twice:
		b.write(to, r, due, moveTo)
	case failAfter:
		return fmt.Errorf("memory: %s %s: %w", op, to.name, do.err)
	}
	return nil
}

func (b *Broker) checkSize(s *stream, r adapters.Record) error {
	metadata := metadataBytes(r)
	if limit := b.cfg.MaxMetadataBytes; limit > 0 && metadata > limit {
		return fmt.Errorf("%d bytes of metadata, limit %d: %w", metadata, limit, adapters.ErrTooLarge)
	}
	room := 0
	if s.own {
		room = b.cfg.HeadRoom
	}
	size := len(r.Payload) + metadata
	// The sum of limit and head-room may be more than an int holds.
	if limit := b.cfg.MaxMessageBytes; limit > 0 && size-room > limit {
		return fmt.Errorf("%d bytes, limit %d and head-room %d: %w", size, limit, room, adapters.ErrTooLarge)
	}
	return nil
}

// stream returns the stream of that name, and makes it if there is none.
func (b *Broker) stream(name string, own bool) *stream {
	s := b.streams[name]
	if s == nil {
		s = newStream(name, own, b.cfg.Partitions)
		b.streams[name] = s
	}
	s.own = s.own || own
	return s
}

// write puts r, which the broker owns from now on, into a stream.
func (b *Broker) write(to *stream, r adapters.Record, due time.Time, moveTo *stream) {
	now := wallTime()
	// What fell due before this moment lies before it, though the timer may
	// not have rung yet.
	b.release(now)
	b.seq++
	e := &entry{
		rec: r, stream: to, part: to.choose(r.Key), offset: -1, at: now,
		seq: b.seq, due: due, moveTo: moveTo, waiting: -1,
	}
	if !due.After(now) {
		b.land(e, now)
		return
	}
	to.delayed++
	heap.Push(&b.delayed, e)
	if e.waiting == 0 {
		b.arm(now)
	}
}

// wallTime is free of the monotonic clock: due times come out of headers.
func wallTime() time.Time { return time.Now().UTC().Round(0) }

// land makes e visible, where it is or where it was to go.
func (b *Broker) land(e *entry, now time.Time) {
	if e.moveTo != nil {
		e.stream, e.moveTo = e.moveTo, nil
		e.part, e.at = e.stream.choose(e.rec.Key), now
	}
	b.seq++
	e.seq = b.seq
	e.stream.add(e)
}

// release makes everything visible that is due.
func (b *Broker) release(now time.Time) {
	for len(b.delayed) > 0 && !b.delayed[0].due.After(now) {
		e := heap.Pop(&b.delayed).(*entry)
		if e.claimed {
			b.ripe = append(b.ripe, e)
			continue
		}
		e.stream.delayed--
		b.land(e, now)
	}
}

func (b *Broker) arm(now time.Time) {
	if b.closed || len(b.delayed) == 0 {
		return
	}
	wait := b.delayed[0].due.Sub(now)
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, b.ring)
	} else {
		b.timer.Reset(wait)
	}
}

func (b *Broker) ring() {
	b.mu.Lock()
	defer b.unlock()
	if b.closed {
		return
	}
	now := wallTime()
	b.release(now)
	b.arm(now)
}

// entries returns what lies in s, in the order that Records promises.
func (b *Broker) entries(s *stream) []*entry {
	lying := make([]*entry, 0, s.lying+s.delayed)
	for _, p := range s.parts {
		for _, e := range p.log {
			if e != nil {
				lying = append(lying, e)
			}
		}
	}
	slices.SortFunc(lying, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	if s.delayed == 0 {
		return lying
	}
	var delayed delayHeap
	for _, e := range slices.Concat(b.ripe, b.delayed) {
		if e.stream == s {
			delayed = append(delayed, e)
		}
	}
	slices.SortFunc(delayed, func(a, b *entry) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
	})
	return append(lying, delayed...)
}
