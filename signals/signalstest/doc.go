// Package signalstest runs the queries and alert rules of docs/metrics.md in
// Prometheus' own engine, over what a registry shows of a [signals.Signals].
// It is a module of its own, so that nobody who imports Spillway inherits
// Prometheus. It has tests only.
//
// [signals.Signals]: https://pkg.go.dev/github.com/spillway-mq/spillway/signals#Signals
package signalstest
