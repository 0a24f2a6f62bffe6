package adapters

// Windowed is a [Broker] that reads messages before they can be handled, such as
// those that wait for their retry, and keeps them in memory within bounds. What
// lies behind a full window is not read, and may be handled late.
type Windowed interface {
	// Windows returns the windows that this process has now, in no order. It
	// asks no broker.
	Windows() []Window
}

// Window is what was read ahead of one partition of a stream.
type Window struct {
	Consumer Consumer
	// Stream: main, retry, parking or suspect.
	Stream Stream
	// Name of the stream at the broker, as one of several of the consumer.
	Name      string
	Partition int32
	// Messages that were read and are not finished, in handlers or waiting.
	Messages int
	// Bytes of their keys, values and headers.
	Bytes int
	// Fill is how much of the bound that is the nearest is used, from 0 to 1. At 1
	// nothing more is read until one of them is finished.
	Fill float64
}
