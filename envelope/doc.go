// Package envelope is the one place where Spillway's knowledge of a message is
// written and read: as headers of the message while it travels ([State]), and
// as JSON once it is a dead letter ([DeadLetter]).
//
// # Written form
//
// Headers are named spillway-*, hold text, and occur once each. Times are RFC
// 3339 in UTC with nine decimals, so that they sort as text; any RFC 3339 time
// is read. Names and forms are frozen: messages wait for hours in retry
// streams while services are upgraded around them.
//
// Nothing grows with the number of hops, except the digits of a counter.
//
// # Trust
//
// A producer can write any header. [Parse] therefore returns for every input a
// state that is safe to act on: counters and due times are clamped, texts are
// cut and repaired. [Strip] and [StripHeaders] remove the state where it must
// not be believed at all, and [State.BelongsTo] finds state that leaked from
// another consumer.
//
// # Size
//
// [State.Pairs] fits the headers into the broker's limit. What gives way, and
// in which order, is one table in state.go; the order is:
//
//  1. the error text, down to 64 bytes
//  2. schema version, producer version, aggregate, message type, trace id,
//     which can be read again from the message's own headers
//  3. broker, park checks, handler, names of dropped headers, error code,
//     error nature, consumer version, time of dead-lettering, reference
//  4. the rest of the error text
//
// Everything else is essential. A message whose state was cut says so with
// spillway-truncated.
//
// # Failure modes
//
//   - The essential keys alone are over the budget: Pairs returns them with ok
//     false. Its names and texts are bounded, so this takes a broker with less
//     than a few KiB for headers, or names of hundreds of characters.
//   - A header is garbled on the way: its field is zero. A garbled attempt
//     starts again at 1, due now: the message is tried more often, not lost.
//   - JSON is not a dead letter: [DecodeDeadLetter] names each wrong field and
//     the forms that it accepts.
//
// The package imports the failure vocabulary and the standard library only.
// All functions are safe for concurrent use.
package envelope
