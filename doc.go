// Package spillway handles the messages that a Watermill handler cannot
// process: it classifies the failure, retries later without blocking anything,
// parks what waits for a missing reference, and dead-letters what is poison
// together with its evidence.
//
// # Use
//
// Open a broker, install the chain in a Watermill Router, subscribe through
// Spillway, and let handlers steer by the error that they return:
//
//	sw, err := spillway.Open(ctx, "memory://", spillway.Config{Group: "billing"}, memory.Opener())
//	router := message.NewDefaultRouter(logger)
//	sw.Install(router)
//	router.AddConsumerHandler("charge", "orders", sw.Subscriber(), func(msg *message.Message) error {
//		return failure.Missing("customer", id) // or failure.Permanent(err), or just err
//	})
//
// # Delivery semantics
//
// At least once. A source message is acknowledged only after the broker has
// confirmed the write of its copy to a retry, parking or dead letter stream, so
// a crash at any moment leaves a duplicate at worst. Handlers that cannot bear
// duplicates use middleware.Once.
//
// # Ordering
//
// With Config.Concurrency 1, first attempts keep the broker's order. A retried
// message is overtaken by those behind it; that is the point.
//
// # Failure modes
//
// A broker that does not take a hand-off blocks the slot of that message, one of
// Config.Concurrency, until it does; the hook OnHandoffFailure and the log say so.
// A message that the broker will never take goes to Config.LastResort.
//
// A message that kills its consumer is found by the broker's delivery count,
// handled alone, and dead-lettered as consumer_crash if it does so again. While
// it is alone, the process begins nothing else, for a minute at most.
//
// # Defaults
//
// Transient failures are attempted 12 times over about 23 minutes, unknown ones
// 5 times, permanent ones once; ambiguous ones 3 times and then parked for up to
// 24 hours. See package policy.
package spillway
