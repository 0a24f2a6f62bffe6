// Package signals turns what happens to messages into Prometheus metrics.
//
// # What it does
//
// A [Signals] is a set of [middleware.Hooks] on one side and a
// [prometheus.Collector] on the other:
//
//	sig, err := signals.New(signals.Config{})
//	prometheus.MustRegister(sig)
//	spillway.Open(ctx, url, spillway.Config{Hooks: sig.Hooks()}, ...)
//
// docs/metrics.md lists every metric with its type and labels, the query for
// the success rate, and alert rules. Those expressions are run by the tests.
//
// # Meaning of success
//
// Success means processed. Counters move when a decision has been carried out,
// so a dead letter is counted as one and never as a success, even though its
// hand-off succeeded and the broker saw an ack.
//
// # Labels
//
// Topics, consumers and handlers are named in code and are not capped. Classes
// may be made up at run time, so after Config.MaxClasses of them the rest share
// the label "(other)". Codes, error texts, message ids and offsets never become
// labels. Every value is cut at 256 bytes, and what is not UTF-8 in it is
// replaced.
//
// # What is in flight
//
// Gauges about messages in flight are computed while Prometheus scrapes, so the
// age of the oldest message grows while its handler hangs and nothing else
// happens. Nothing is kept of a message after its outcome.
//
// Deliveries are told apart by consumer, stream, partition, offset and message
// id. Where all of these are equal, as on a broker without positions whose
// producers set no id, the one that started first is taken to have ended first.
// Counts stay exact then, and the oldest age may be too small, never too large.
//
// # Failure modes
//
// Hooks cannot fail and never block on I/O. An outcome or a failed hand-off of
// a delivery whose start was not seen is counted but moves no gauge.
//
// Dead letters that a broker makes by itself pass no hook; they are counted
// where they are collected.
package signals
