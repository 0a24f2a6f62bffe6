// Package retrytopic is what brokers without delays of their own need to keep
// them: it knows no broker, and has no goroutines and no clock.
//
// # What it does
//
// A delayed message is written to one of a few retry topics, the tiers, and
// held by whoever reads them until it is due. [Tiers] chooses the topic.
// [Window] holds what was read ahead, in the order of due times, within bounds
// of count and bytes. [Offsets] knows which records of a partition are finished,
// although those before them are not. [Progress] is that and more as a short
// text, to be stored with a consumer's position.
//
// # Ordering
//
// A tier holds delays that differ by a factor of two at most. In the order of
// the topic, FIFO, 94 of 100 jittered messages would leave at the same instant
// as the one before; so they leave in the order in which they are due.
//
// # Capacity
//
// A tier is on time while what arrives within the difference between its
// longest and its shortest delay fits the window. Beyond that messages come
// late, and are not lost: the window is filled from the oldest on.
//
// # Failure modes
//
// Text that is not a [Progress], such as the metadata of another client, is an
// error of decoding; its reader starts from the position without it.
package retrytopic
