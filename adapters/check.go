package adapters

import "context"

// Checker is a [Broker] that can look at what it would work with: do the
// streams of the consumers exist, are they as they should be, does anything
// lie where nobody looks? It is what `spillway check` prints.
type Checker interface {
	// Check changes nothing, and consumes nothing. What it finds is no error;
	// an error means that it could not look.
	Check(ctx context.Context, consumers []Consumer) ([]Finding, error)
}

// Severity of a [Finding].
type Severity string

// The severities. Their values are frozen.
const (
	// SeverityError: messages are lost, stuck, or will be.
	SeverityError Severity = "error"
	// SeverityWarning: it works, but not as it should.
	SeverityWarning Severity = "warning"
	// SeverityInfo: worth knowing.
	SeverityInfo Severity = "info"
)

// Finding is one thing that a [Checker] found. Its texts contain no secrets and
// no payloads.
type Finding struct {
	// Rule names the rule for machines: lower case, with dashes, frozen.
	Rule     string
	Severity Severity
	// Consumer whose stream it is; zero if it concerns all of them.
	Consumer Consumer
	// Stream is the stream's name at the broker; may be empty.
	Stream string
	// Message says what is wrong, with the values seen and those expected.
	Message string
	// Fix says what to do; may be empty.
	Fix string
}
