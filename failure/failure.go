package failure

import (
	"time"
)

// Nature answers one question: will trying again help? Its values travel in
// message headers and are frozen.
type Nature string

const (
	// NatureUnknown means that no rule recognised the error.
	NatureUnknown Nature = "unknown"
	// NatureTransient means that the same message is expected to succeed later.
	NatureTransient Nature = "transient"
	// NaturePermanent means that the same message can never succeed.
	NaturePermanent Nature = "permanent"
	// NatureAmbiguous means that it depends on something outside, such as a
	// reference that may still arrive: tried again soon, then parked.
	NatureAmbiguous Nature = "ambiguous"
)

// Class is a short, stable, coarse cause of a failure. Any text is allowed;
// the constants are the classes that the built-in rules use. A Class is also
// an [Option]: failure.Permanent(err, failure.Class("validation")).
type Class string

// The classes of the built-in rules. Their values travel in message headers
// and are frozen.
const (
	ClassValidation            Class = "validation"
	ClassUndecodable           Class = "undecodable"
	ClassSerialization         Class = "serialization"
	ClassIncompatibleSchema    Class = "incompatible_schema"
	ClassDependencyTimeout     Class = "dependency_timeout"
	ClassDependencyUnavailable Class = "dependency_unavailable"
	ClassReferenceNotFound     Class = "reference_not_found"
	ClassUnauthorized          Class = "unauthorized"
	ClassPanic                 Class = "panic"
	ClassConsumerCrash         Class = "consumer_crash"
	ClassExpired               Class = "expired"
	ClassUnknown               Class = "unknown"
)

// Code is the fine part of a cause, shown beside its class: "http:503",
// "pg:40001", "INVALID_SCHEMA". A Code is also an [Option].
type Code string

// Option refines an error made by [Permanent], [Transient], [RetryAfter],
// [Missing] or [Waiting]. The options are [Class] and [Code].
type Option interface{ apply(*Failure) }

func (c Class) apply(f *Failure) { f.Class = c }
func (c Code) apply(f *Failure)  { f.Code = c }

// Failure is what a classifier makes of an error: everything that the
// decision needs to know about it. It is a value; copies are independent.
type Failure struct {
	// Nature says whether trying again will help.
	Nature Nature
	// Class is the coarse cause; never empty after classification.
	Class Class
	// Code is the fine cause; may be empty.
	Code Code
	// RetryAfter asks that the next attempt start no sooner than this from
	// now; zero means no wish.
	RetryAfter time.Duration
	// Reference names what the message waits for, as "kind/id" or free text;
	// empty when it waits for nothing that has a name.
	Reference string
	// Park asks that the message be parked at once, without retries first.
	Park bool
	// Err is the error that was classified, unchanged; nil for failures that
	// have none, such as a message found to have crashed its consumer.
	Err error
}
