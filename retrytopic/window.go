package retrytopic

import (
	"container/heap"
	"time"
)

// Window holds items that were read ahead, and gives them out in the order of
// their due times, those without one first, and then in the order of their
// sequence numbers. It is bounded by count and bytes. Not safe for concurrent
// use.
type Window[T any] struct {
	count, size int // bounds
	bytes       int
	items       items[T]
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
func (w *Window[T]) Len() int { return len(w.items) }

// Bytes is how many bytes they have.
func (w *Window[T]) Bytes() int { return w.bytes }

// Full reports that nothing more should be read. An item that comes all the
// same is held: one that is larger than the window must get through.
func (w *Window[T]) Full() bool {
	return len(w.items) > 0 && (len(w.items) >= w.count || w.bytes >= w.size)
}

// Push adds an item.
func (w *Window[T]) Push(i Item[T]) {
	w.bytes += i.Bytes
	heap.Push(&w.items, i)
}

// Next returns the item that is due first, and leaves it where it is.
func (w *Window[T]) Next() (i Item[T], ok bool) {
	if len(w.items) == 0 {
		return i, false
	}
	return w.items[0], true
}

// Pop removes and returns the item that is due first, if it is due at now.
func (w *Window[T]) Pop(now time.Time) (i Item[T], ok bool) {
	if len(w.items) == 0 || w.items[0].Due.After(now) {
		return i, false
	}
	i = heap.Pop(&w.items).(Item[T])
	w.bytes -= i.Bytes
	return i, true
}

// Remove removes the items that drop reports true for.
func (w *Window[T]) Remove(drop func(Item[T]) bool) {
	kept := w.items[:0]
	for _, i := range w.items {
		if drop(i) {
			w.bytes -= i.Bytes
		} else {
			kept = append(kept, i)
		}
	}
	clear(w.items[len(kept):])
	w.items = kept
	heap.Init(&w.items)
}

// items implements heap.Interface.
type items[T any] []Item[T]

func (h items[T]) Len() int { return len(h) }

func (h items[T]) Less(i, j int) bool {
	if c := h[i].Due.Compare(h[j].Due); c != 0 {
		return c < 0
	}
	return h[i].Seq < h[j].Seq
}

func (h items[T]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *items[T]) Push(x any) { *h = append(*h, x.(Item[T])) }

func (h *items[T]) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = Item[T]{}
	*h = (*h)[:last]
	return i
}
