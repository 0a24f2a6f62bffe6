package triage

import (
	"cmp"
	"time"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/triage/signature"
)

// Entry is what triage needs to know of one dead letter. [EntryOf] makes it.
type Entry struct {
	ID        string // deadLetterId; empty where there is none
	Class     string // empty means unknown
	Code      string // may be empty
	Consumer  string // the consumer group; may be empty
	Version   string // the consumer's version; empty means unknown
	Text      string // of the error, redacted or not: both sign alike
	Topic     string // of the source; may be empty
	Aggregate string // what the message is about; may be empty
	TraceID   string // may be empty

	// FirstAttemptAt is when the first attempt failed. Where it is zero,
	// FailedAt stands in; where both are zero, the time is not known.
	FirstAttemptAt time.Time
	FailedAt       time.Time
}

// EntryOf returns what triage needs to know of d.
func EntryOf(d envelope.DeadLetter) Entry {
	return Entry{
		ID:             d.ID,
		Class:          string(d.Failure.Class),
		Code:           string(d.Failure.Code),
		Consumer:       d.Consumer.Group,
		Version:        d.Consumer.Version,
		Text:           d.Failure.Message,
		Topic:          d.Source.Topic,
		Aggregate:      d.FailedMessage.Aggregate,
		TraceID:        d.TraceID,
		FirstAttemptAt: d.Failure.FirstAttemptAt,
		FailedAt:       d.Failure.FailedAt,
	}
}

// Unknown stands for a class or a version that is not known.
const Unknown = "unknown"

// Key is what makes a triage group.
type Key struct {
	Class       string
	Version     string // of the consumer
	SignatureID string
}

// Key returns the key of the group that e, with the signature of its text,
// belongs to.
func (e Entry) Key(s signature.Signature) Key {
	return Key{
		Class:       cmp.Or(e.Class, string(failure.ClassUnknown)),
		Version:     cmp.Or(e.Version, Unknown),
		SignatureID: s.ID,
	}
}

// at is the time of the first attempt, or what stands in for it.
func (e Entry) at() time.Time {
	if e.FirstAttemptAt.IsZero() {
		return e.FailedAt
	}
	return e.FirstAttemptAt
}
