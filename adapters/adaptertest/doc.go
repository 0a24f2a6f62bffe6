// Package adaptertest is the contract of adapters in executable form: what
// Spillway promises, as tests that every adapter runs on its real broker.
//
//	func TestConformance(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Harness{
//			Start: func(tb testing.TB) adaptertest.Target {
//				return adaptertest.Target{URL: brokerURL(tb), Opener: rabbitmq.Opener()}
//			},
//		})
//	}
//
// # What it does
//
// Each subtest has a topic of its own and runs whole programs on it: the
// facade, a Watermill Router, handlers. Several of them play several processes.
// They get at the broker through a wrapped [adapters.Opener], which breaks what
// production breaks: it fails, delays and doubts hand-offs, loses
// acknowledgements, and kills processes between any two calls. It needs no help
// from the broker for that. Results are read with Broker.Drain, from hooks, and
// from a log of everything that happened, by the ids of messages.
//
// Subtests are named for behaviour; their comments name the invariants of the
// design and the rows of the list of faults that they answer.
//
// # What it proves of capabilities
//
// Each capability that is declared is proven. One that is not declared must be
// refused at start, where it can be asked for, and must not be invented where it
// is information, such as positions.
//
// # Time
//
// With [Harness].Bubble each subtest runs in a testing/synctest bubble: hours
// take no time and instants are exact. Real brokers run in real time with short
// delays; what only long delays show is left to the bubble.
//
// # Failure modes
//
// A subtest that fails prints the log of what happened. Every wait ends, after
// [Harness].Within. A fault that was planned and did not happen is a failure, so
// that no subtest passes without what it is about.
package adaptertest
