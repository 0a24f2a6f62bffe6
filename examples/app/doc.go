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
// Reading back takes the records out of their streams, so that a second run on
// the same broker starts clean. The streams are those of the examples' own
// consumer groups.
//
// # Exit codes
//
//	0    every message is accounted for
//	1    a message was lost or changed, or the program could not run
//	2    the arguments or the input file were refused; nothing was published
//	130  interrupted, and every message is accounted for
package app
