// Package app is the program that the examples share. They differ in the broker
// that they give to [Run], and in nothing else: nothing in here knows which one
// it is.
//
// # What it does
//
// It publishes a stream of messages, consumes them with a handler that fails in
// every way that there is, shows what happens, and ends by itself. Without
// -input the messages are orders, billed by package shop; with -input they are
// webhooks, projected by package auditlog. To see how Spillway is used, read
// [shop.Shop.Bill], then consume in this package: that is all of it.
//
// # The account
//
// When nothing moves any more, every message that was published is looked for
// by its id: among those that were processed, and in what is read back from the
// dead letter stream, the parking lot and the last resort. Each must be in one
// of them, with the body that it was published with. Counters alone would not
// notice a message that is lost while another one is counted twice.
//
// A broker may keep what waits for its next attempt where nothing can read it,
// as RabbitMQ does. Such messages are looked for until they have been due for a
// while.
//
// Reading back takes the records out of their streams, so that a second run on
// the same broker starts clean. What a run left that was killed is taken out
// too, and reported. On a broker that others may use, topics have names that
// nobody else's have, so that no real message is ever handled or taken out. Two
// runs at a time would handle each other's messages.
//
// # Exit codes
//
//	0    every message is accounted for
//	1    a message was lost or changed, or the program could not run
//	2    the arguments or the input file were refused; nothing was published
//	130  interrupted, and every message is accounted for
package app
