// Package adapters is the seam between Spillway and message brokers: what a
// broker must do, and the records, deliveries and hand-offs that cross.
//
// Users pass an adapter's Opener to spillway.Open and are done with this
// package, except for [Delivery], which their handlers can get at. To write an
// adapter, read docs/ADAPTERS.md; the comments of [Broker], [Subscription] and
// [Settler] are the contract, and adaptertest is the contract as tests.
//
// # Terms
//
// A consumer is a consumer group on a topic. It has five streams: main, which
// is the topic itself, and its own retry, parking, dead letter and suspect
// streams. A delivery is a record that the broker has handed out and that is
// to be settled. A hand-off is the confirmed write of a record, with state, to
// one of its consumer's own streams.
package adapters
