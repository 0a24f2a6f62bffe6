package failure

import (
	"fmt"
	"strings"
	"time"
)

// Error is what the explicit wrappers return: a cause, and what the handler
// says about it. Make it with [Permanent], [Transient], [RetryAfter],
// [Missing] or [Waiting]. It is immutable.
type Error struct {
	said Failure // Err is the cause
}

// Error returns the text of the cause, unchanged.
func (e *Error) Error() string {
	if e.said.Err == nil {
		return strings.TrimSpace(e.said.Reference + " not found")
	}
	return e.said.Err.Error()
}

// Unwrap returns the cause; nil for [Missing].
func (e *Error) Unwrap() error { return e.said.Err }

// Said returns what the wrapper says. What it leaves open is empty or zero;
// Err is the cause. A [Classifier] fills the rest.
func (e *Error) Said() Failure { return e.said }

// Permanent says that the message can never succeed: it is dead-lettered
// without another attempt. Permanent(nil) is nil.
func Permanent(err error, options ...Option) error {
	return wrap(err, Failure{Nature: NaturePermanent}, options)
}

// Transient says that the message is expected to succeed later, with the usual
// delays. Transient(nil) is nil.
func Transient(err error, options ...Option) error {
	return wrap(err, Failure{Nature: NatureTransient}, options)
}

// RetryAfter is [Transient] with the wish that the next attempt start no
// sooner than d from now. A longer backoff stays as it is, and the policy caps
// the wish. Zero or less means no wish. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration, options ...Option) error {
	return wrap(err, Failure{Nature: NatureTransient, RetryAfter: max(d, 0)}, options)
}

// Missing says that something the message refers to does not exist yet: the
// message is tried again soon, then parked until it exists or the deadline
// has passed. The reference is "kind/id"; an empty kind or id is left out. The
// class is [ClassReferenceNotFound] unless an option says otherwise. Missing
// has no cause and is never nil.
func Missing(kind, id string, options ...Option) error {
	reference := kind + "/" + id
	if kind == "" || id == "" {
		reference = kind + id
	}
	return newError(Failure{
		Nature:    NatureAmbiguous,
		Class:     ClassReferenceNotFound,
		Reference: reference,
	}, options)
}

// Waiting says that the message waits for what, some action outside: it is
// parked at once. Waiting(nil, what) is nil, which means success.
func Waiting(err error, what string, options ...Option) error {
	return wrap(err, Failure{Nature: NatureAmbiguous, Park: true, Reference: what}, options)
}

func wrap(cause error, said Failure, options []Option) error {
	if cause == nil {
		return nil
	}
	said.Err = cause
	return newError(said, options)
}

func newError(said Failure, options []Option) error {
	for _, o := range options {
		if o != nil {
			o.apply(&said)
		}
	}
	return &Error{said: said}
}

// PanicError is a recovered panic. Its class is [ClassPanic], its nature
// unknown, and its code names the type of Value: "panic:runtime.boundsError".
type PanicError struct {
	// Value that was given to panic.
	Value any
	// Stack of the panicking goroutine. It is for the log; it is not part of
	// the error's text, and so never reaches a message.
	Stack []byte
}

// Panic makes an error of what recover returned. Panic(nil, stack) is nil.
func Panic(value any, stack []byte) error {
	if value == nil {
		return nil
	}
	return &PanicError{Value: value, Stack: stack}
}

// Error returns "panic: " and the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
