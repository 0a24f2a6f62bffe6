// Package middleware holds the chain that decides what becomes of a message
// whose handler failed, and the smaller pieces that stand beside it: guards for
// producers, an idempotence guard, hooks.
//
// Most programs need none of it by name: spillway.Install puts the chain where
// it belongs. Read on to place it yourself, to add a guard, or to see what
// happens to a message.
//
// # What the chain does
//
// For each delivery, in this order:
//
//  1. A delivery that the adapter could not decode is dead-lettered.
//  2. A delivery that came before its due time is handed off for the rest of
//     the delay. This is a hop, not an attempt.
//  3. A delivery that was handed out too often without an outcome is handed off
//     to the suspect stream; one from there, which was alone in its handler each
//     time, is dead-lettered: it kills its consumer.
//  4. The handler is called. A panic is a failure like any other.
//  5. After a success the outputs, if any, are published; then the delivery is
//     processed.
//  6. A failure, of the handler or of publishing its outputs, is classified
//     (package failure) and decided (package policy), and the record, as the
//     broker delivered it, is handed off. Only a confirmed hand-off lets the
//     Router acknowledge the source.
//
// # Shutdown
//
// Shutdown is the cancellation of the context that the message had when it
// entered the chain. A failure during shutdown is not counted: the message goes
// back to the broker. A success during shutdown counts, and a hand-off that has
// begun is finished.
//
// # A hand-off that fails
//
// It is repeated with the decision already taken, after 100 ms at first and
// 30 s at last, and the handler is not called again. See [ChainConfig].LastResort
// for what no stream will ever take.
//
// # Companions
//
// Inside the chain work Watermill's CorrelationID, Timeout, Throttle,
// CircuitBreaker, Recoverer and Duplicator, and Deduplicator with [DedupKey].
// Retry, PoisonQueue, IgnoreErrors, InstantAck and DelayOnError change or hide
// outcomes before the chain sees them; [Forbidden] finds them in a Router. It
// can't see AckCommandHandlingErrors of the cqrs package, which hides failures
// as well.
package middleware
