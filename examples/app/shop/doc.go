// Package shop is the consumer of the examples: it bills orders. It knows
// nothing of brokers, and nothing of Spillway but the words of package failure,
// by which [Shop.Bill] says what a failure means.
//
// The rest plays the world around it: customers who are registered after their
// first order, a payment gateway with an outage, and producers that send what
// they should not.
package shop
