package memory

import (
	"container/heap"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Everything in this file is guarded by Broker.mu.

// stream is a topic, or one of a consumer's own streams. Both are logs of the
// same kind; they differ in their limits.
type stream struct {
	name    string
	own     bool // one of Spillway's
	parts   []partition
	groups  []*group // in the order of their making
	turn    int      // partition of the next record without a key
	lying   int      // records in the log
	delayed int      // records that wait for their due time
}

// partition is a log. Places of removed records are nil until all before them
// are removed too.
type partition struct {
	base int64 // offset of log[0]
	log  []*entry
}

// entry is a record in a stream.
type entry struct {
	rec     adapters.Record // never changed, nor shared with anybody
	stream  *stream
	part    int32
	offset  int64     // -1 until visible
	at      time.Time // of the write
	seq     uint64    // order of becoming visible; while delayed, of the write
	due     time.Time
	moveTo  *stream  // where it goes at due; nil to become visible in place
	waiting int      // place in the heap of delayed entries, or -1
	ackedBy []*group // while others are not done with it
	out     int      // unsettled deliveries, of all groups
	claimed bool     // by a Drain
	gone    bool
	shelved []*item // met by their groups while claimed
}

// item is an entry as one group sees it, from its first delivery on.
type item struct {
	e      *entry
	group  *group
	count  int // deliveries
	done   bool
	queued bool // in cursor.again, or shelved
}

// group is a consumer group on one stream.
type group struct {
	name     string
	stream   *stream
	solo     bool // one delivery at a time
	cursors  []cursor
	turn     int // partition to look at next
	inflight int
	lag      int
	subs     []*subscription
	first    int // of subs, at the next wake
}

// cursor is a group's place in a partition.
type cursor struct {
	next  int64    // first offset never handed out
	again itemHeap // what came back; all offsets lie below next
}

func newStream(name string, own bool, partitions int) *stream {
	return &stream{name: name, own: own, parts: make([]partition, partitions)}
}

func (s *stream) group(name string) *group {
	for _, g := range s.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// ensureGroup returns the group of that name. A new one starts at the oldest
// record that is still there.
func (s *stream) ensureGroup(name string, solo bool) *group {
	if g := s.group(name); g != nil {
		return g
	}
	g := &group{name: name, stream: s, solo: solo, cursors: make([]cursor, len(s.parts)), lag: s.lying}
	for i := range s.parts {
		g.cursors[i].next = s.parts[i].base
	}
	s.groups = append(s.groups, g)
	return g
}

func (s *stream) choose(key []byte) int32 {
	if len(s.parts) == 1 {
		return 0
	}
	if key == nil {
		i := s.turn
		s.turn = (s.turn + 1) % len(s.parts)
		return int32(i)
	}
	// FNV-1a. It decides about order, not about safety.
	h := uint32(2166136261)
	for _, c := range key {
		h = (h ^ uint32(c)) * 16777619
	}
	return int32(h % uint32(len(s.parts)))
}

// add makes e visible.
func (s *stream) add(e *entry) {
	p := &s.parts[e.part]
	e.offset = p.base + int64(len(p.log))
	p.log = append(p.log, e)
	s.lying++
	for _, g := range s.groups {
		g.lag++
		g.wake()
	}
}

// remove takes a visible entry out of its stream.
func (s *stream) remove(e *entry) {
	p := &s.parts[e.part]
	e.gone = true
	s.lying--
	p.log[e.offset-p.base] = nil
	n := 0
	for n < len(p.log) && p.log[n] == nil {
		n++
	}
	p.log, p.base = p.log[n:], p.base+int64(n)
}

// take returns the next record for g, or nil. The partitions take turns.
func (g *group) take() *item {
	for range g.cursors {
		i := g.turn
		g.turn = (g.turn + 1) % len(g.cursors)
		if it := g.takeFrom(&g.cursors[i], &g.stream.parts[i]); it != nil {
			return it
		}
	}
	return nil
}

func (g *group) takeFrom(c *cursor, p *partition) *item {
	for len(c.again) > 0 {
		it := heap.Pop(&c.again).(*item)
		it.queued = false
		switch {
		case it.done || it.e.gone:
		case it.e.claimed:
			it.shelve()
		default:
			return it
		}
	}
	// The head of the log may have been removed by a Drain.
	c.next = max(c.next, p.base)
	for c.next < p.base+int64(len(p.log)) {
		e := p.log[c.next-p.base]
		c.next++
		if e == nil {
			continue
		}
		it := &item{e: e, group: g}
		if e.claimed {
			it.shelve()
			continue
		}
		return it
	}
	return nil
}

func (it *item) shelve() {
	it.queued = true
	it.e.shelved = append(it.e.shelved, it)
}

// requeue offers it again, at its place.
func (it *item) requeue() {
	if it.done || it.queued || it.e.gone {
		return
	}
	it.queued = true
	heap.Push(&it.group.cursors[it.e.part].again, it)
	it.group.wake()
}

// wake queues the subscriptions that could take a record of g. They take turns
// at being the first, so that competing consumers share a trickle too.
func (g *group) wake() {
	if len(g.subs) == 0 {
		return
	}
	first := g.first % len(g.subs)
	g.first = first + 1
	for i := range g.subs {
		s := g.subs[(first+i)%len(g.subs)]
		if s.hungry(g) {
			s.b.queue(s)
		}
	}
}

// ack notes that the item's group is done with it.
func (it *item) ack(retain bool) {
	if it.done || it.e.gone {
		return
	}
	it.done = true
	it.group.lag--
	e, s := it.e, it.group.stream
	if len(e.ackedBy)+1 == len(s.groups) && (!retain || s.own) {
		s.remove(e)
		return
	}
	e.ackedBy = append(e.ackedBy, it.group)
}

// itemHeap orders items by offset.
type itemHeap []*item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].e.offset < h[j].e.offset }
func (h itemHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *itemHeap) Push(x any)        { *h = append(*h, x.(*item)) }
func (h *itemHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}

// delayHeap orders entries by due time, and by age where that is equal.
type delayHeap []*entry

func (h delayHeap) Len() int { return len(h) }
func (h delayHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].seq < h[j].seq
	}
	return h[i].due.Before(h[j].due)
}
func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].waiting, h[j].waiting = i, j
}
func (h *delayHeap) Push(x any) {
	e := x.(*entry)
	e.waiting = len(*h)
	*h = append(*h, e)
}
func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.waiting = -1
	return e
}
