// Package failuretest tests the built-in rules of package failure against the
// error types of the libraries that they recognise without importing them. It
// is a module of its own, so that those libraries stay out of Spillway's
// go.mod. It exports nothing.
package failuretest
