package retrytopic

import (
	"container/heap"
	"slices"
	"time"
)

// Window holds items that were read ahead, and gives them out in the order of
// their due times, those without one first, and then in the order of their
// sequence numbers. It is bounded by count and bytes. Not safe for concurrent
// use.
type Window[T any] struct {
	count, size int // bounds
	bytes       int
	// What needs no sorting is apart: live messages come in the order of their
	// sequence numbers, and have no due time.
	queue []Item[T] // without due times, ascending; those before first are gone
	first int
	items items[T]
}

// Item is what a [Window] holds.
type Item[T any] struct {
	Due   time.Time // zero means at once
	Seq   int64
	Bytes int
	Value T
}

// NewWindow returns a window of at most so many items and bytes.
func NewWindow[T any](count, size int) *Window[T] {
	return &Window[T]{count: count, size: size}
}

// Len is how many items are held.
func (w *Window[T]) Len() int { return len(w.queue) - w.first + len(w.items) }

// Bytes is how many bytes they have.
func (w *Window[T]) Bytes() int { return w.bytes }

// Full reports that nothing more should be read. An item that comes all the
// same is held: one that is larger than the window must get through.
func (w *Window[T]) Full() bool {
	return w.Len() > 0 && (w.Len() >= w.count || w.bytes >= w.size)
}

// Push adds an item.
func (w *Window[T]) Push(i Item[T]) {
	w.bytes += i.Bytes
	if last := len(w.queue) - 1; i.Due.IsZero() && (last < w.first || w.queue[last].Seq < i.Seq) {
		w.queue = append(w.queue, i)
		return
	}
	heap.Push(&w.items, i)
}

// Next returns the item that is due first, and leaves it where it is.
func (w *Window[T]) Next() (i Item[T], ok bool) {
	switch {
	case w.queued():
		return w.queue[w.first], true
	case len(w.items) > 0:
		return w.items[0], true
	}
	return i, false
}

// queued reports whether the first item of the queue is before all others.
func (w *Window[T]) queued() bool {
	return w.first < len(w.queue) && (len(w.items) == 0 || w.queue[w.first].before(w.items[0]))
}

// Pop removes and returns the item that is due first, if it is due at now.
func (w *Window[T]) Pop(now time.Time) (i Item[T], ok bool) {
	switch {
	case w.queued():
		i = w.queue[w.first]
		w.queue[w.first] = Item[T]{}
		if w.first++; 2*w.first >= len(w.queue) {
			left := copy(w.queue, w.queue[w.first:])
			clear(w.queue[left:])
			w.queue, w.first = w.queue[:left], 0
		}
	case len(w.items) == 0 || w.items[0].Due.After(now):
		return i, false
	default:
		i = heap.Pop(&w.items).(Item[T])
	}
	w.bytes -= i.Bytes
	return i, true
}

// Remove removes the items that drop reports true for.
func (w *Window[T]) Remove(drop func(Item[T]) bool) {
	dropped := func(i Item[T]) bool {
		gone := drop(i)
		if gone {
			w.bytes -= i.Bytes
		}
		return gone
	}
	w.queue, w.first = slices.DeleteFunc(w.queue[w.first:], dropped), 0
	w.items = slices.DeleteFunc(w.items, dropped)
	heap.Init(&w.items)
}

func (i Item[T]) before(j Item[T]) bool {
	if c := i.Due.Compare(j.Due); c != 0 {
		return c < 0
	}
	return i.Seq < j.Seq
}

// items implements heap.Interface.
type items[T any] []Item[T]

func (h items[T]) Len() int { return len(h) }

func (h items[T]) Less(i, j int) bool { return h[i].before(h[j]) }

func (h items[T]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *items[T]) Push(x any) { *h = append(*h, x.(Item[T])) }

func (h *items[T]) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = Item[T]{}
	*h = (*h)[:last]
	return i
}
