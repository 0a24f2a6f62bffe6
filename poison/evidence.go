package poison

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// Evidence says what is written to a dead letter beside the record itself. The
// zero value redacts with the shipped rules and finds a message's type and
// versions in the default keys. It is safe for concurrent use.
type Evidence struct {
	Redactor *Redactor
	Keys     envelope.Keys
}

var shipped = sync.OnceValue(func() *Redactor {
	r, err := NewRedactor(Redaction{})
	if err != nil {
		panic(err) // the shipped rules are tested
	}
	return r
})

func (e Evidence) redactor() *Redactor {
	if e.Redactor == nil {
		return shipped()
	}
	return e.Redactor
}

// Text redacts a text, such as a stack, and bounds it like [Redactor.Text].
func (e Evidence) Text(s string) string { return e.redactor().Text(s) }

// Error returns the text of a failure as it is stored, logged and shown:
// redacted, then cut, in that order, because half of a secret is not
// recognised. It says whether it was cut.
func (e Evidence) Error(f failure.Failure) (text string, truncated bool) {
	return envelope.ErrorText(e.redactor().Failure(f))
}

// Bury turns the state of a failed message into that of its dead letter.
func (e Evidence) Bury(s envelope.State, r adapters.Record, reason policy.Reason, now time.Time) envelope.State {
	s.Reason = string(reason)
	s.DeadLetteredAt = now
	s.DueAt = time.Time{}
	s.Hops = 0
	s.DroppedHeaders = e.redactor().DroppedHeaders(r.Headers)
	e.Keys.Describe(&s, without(r.Headers, s.DroppedHeaders))
	s.DeadLetterID = envelope.DeadLetterID(s, r.ID, r.Payload)
	return s
}

// Letter is the state of a dead letter and its record as one value, for the
// last resort.
func Letter(s envelope.State, r adapters.Record) envelope.DeadLetter {
	return envelope.FromState(s, r.ID, r.Key, without(r.Headers, s.DroppedHeaders), r.Payload)
}

// without returns headers but those named.
func without(headers []adapters.Header, names []string) []adapters.Header {
	return slices.DeleteFunc(slices.Clone(headers), func(h adapters.Header) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, h.Key) })
	})
}
