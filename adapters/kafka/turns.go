package kafka

import (
	"slices"
	"sync"
)

// turns are the slots of a subscription, one for each delivery that is not
// settled, without suspects. Partitions that have something to hand out queue for
// them, and get one in turn. Safe for concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int
	queue   []*partition // each once: see partition.queued
	stopped bool
	busy    sync.WaitGroup // hand-outs
}

// queueUp lets a partition wait for its turn. It reports false if it does already.
func (t *turns) queueUp(p *partition) bool {
	if p.queued.Swap(true) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, p)
	return true
}

// next takes a slot for the partition whose turn it is, and begins a hand-out. It
// returns nil if there is no slot, or nobody who wants it.
func (t *turns) next() *partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == 0 || t.stopped || len(t.queue) == 0 {
		return nil
	}
	p := t.queue[0]
	t.queue = slices.Delete(t.queue, 0, 1)
	t.free--
	t.busy.Add(1)
	return p
}

// acquire takes a slot out of turn, if there is one.
func (t *turns) acquire() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == 0 {
		return false
	}
	t.free--
	return true
}

func (t *turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
}

// left is how many slots are free.
func (t *turns) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.free
}

// begin begins a hand-out, unless there are to be no more.
func (t *turns) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.busy.Add(1)
	return true
}

// stop ends the hand-outs, and reports whether this was the first call.
func (t *turns) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.stopped
	t.stopped = true
	return first
}
