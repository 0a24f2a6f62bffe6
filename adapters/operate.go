package adapters

import "context"

// BatchDrainer is a [Broker] that can drain many records at a time. Whoever
// stores records needs it: a commit costs about the same for one as for a
// thousand.
type BatchDrainer interface {
	// DrainBatch is Drain for batches: it removes the records of a batch after
	// fn returned nil for it, and no record before. A batch has from one to most
	// records, and no more than lie in the stream at the time; the broker does
	// not wait long for it to fill. fn may keep the records. While fn runs, the
	// broker may hold another batch ready, and no more: fn sets the pace. When
	// DrainBatch ends with an error, what was not removed is back in the stream.
	DrainBatch(ctx context.Context, stream string, most int, fn func(context.Context, []Record) error) error
}

// Counter is a [Broker] that can say how much lies in a stream.
type Counter interface {
	// Count returns how many records Drain would find in a stream at this
	// moment. It takes none, and what other readers have in hand does not count.
	Count(ctx context.Context, stream string) (int64, error)
}

// Peeker is a [Broker] that can look at records without taking them: nothing
// is removed, claimed, or counted as handed out, and no consumer group exists
// afterwards that did not before.
type Peeker interface {
	// Peek calls fn for each record that lies in a stream when it is called,
	// waiting ones included, and ends with the first error of fn. It returns
	// ErrUnsupported for a stream that it cannot look into.
	Peek(ctx context.Context, stream string, fn func(context.Context, Record) error) error
}
