package rabbitmq

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

// errUnroutable means that no queue took a publish.
var errUnroutable = errors.New("no queue takes it: the queue or its binding is gone")

// TopologyError means that a queue or exchange on the broker is not what this
// configuration needs.
type TopologyError struct {
	Kind     string // "queue" or "exchange"
	Name     string
	Argument string // that differs; empty when the whole thing is missing
	Want     string // by this configuration
	Have     string // on the broker
	Hint     string // the way out
}

func (e *TopologyError) Error() string {
	if e.Argument == "" {
		return fmt.Sprintf("%s %q does not exist: %s", e.Kind, e.Name, e.Hint)
	}
	return fmt.Sprintf("%s %q differs: argument %q is %s on the broker, and %s here: %s",
		e.Kind, e.Name, e.Argument, e.Have, e.Want, e.Hint)
}

var inequivalent = regexp.MustCompile(`inequivalent arg '([^']*)' for (queue|exchange) '(.*)' in vhost '.*': received (.*) but current is (.*)$`)

// The broker writes "the value '1' of type 'signedint'", "none" or "'true'".
var valueOfType = regexp.MustCompile(`^(?:the value )?'(.*?)'(?: of type '.*')?$`)

// topologyError explains what the broker says about a declaration or a check.
func topologyError(kind, name string, verifying bool, err error) error {
	var ae *amqp.Error
	if err == nil || !errors.As(err, &ae) {
		return err
	}
	switch ae.Code {
	case amqp.PreconditionFailed:
		m := inequivalent.FindStringSubmatch(ae.Reason)
		if m == nil {
			break
		}
		hint := "delete it when it is empty, so that it is declared anew, or set Config.VerifyOnly to use it as it is"
		if m[2] == "queue" && m[1] != "x-message-ttl" {
			hint += "; for a topic's own queue or exchange, set Existing in Config.Topics"
		}
		return &TopologyError{Kind: m[2], Name: m[3], Argument: m[1], Want: value(m[4]), Have: value(m[5]), Hint: hint}
	case amqp.NotFound:
		hint := "it is declared anew when its consumer starts"
		if verifying {
			hint = "declare it, for example by a run with Config.WholeLadder and without VerifyOnly, or correct Config.Topics"
		}
		return &TopologyError{Kind: kind, Name: name, Hint: hint}
	case amqp.AccessRefused:
		return fmt.Errorf("%s %q: the user lacks a permission, see the package documentation: %w", kind, name, err)
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}

func value(text string) string {
	if m := valueOfType.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

// publishError turns what closed a channel into what the seam knows.
func publishError(err error) error {
	var ae *amqp.Error
	if !errors.As(err, &ae) || ae.Code != amqp.PreconditionFailed {
		return err
	}
	if strings.Contains(ae.Reason, "message size") {
		return fmt.Errorf("%w: %w", adapters.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", adapters.ErrRefused, err)
}

// isGone reports that a publish failed because of an exchange or queue that is
// missing.
func isGone(err error) bool {
	var ae *amqp.Error
	return errors.Is(err, errUnroutable) || errors.As(err, &ae) && ae.Code == amqp.NotFound
}
