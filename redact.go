package spillway

import (
	"errors"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
)

// redact returns err with a text in which no secret is left. Adapters should
// make no errors with secrets, but the clients below them do.
func redact(r *poison.Redactor, err error) error {
	if err == nil {
		return nil
	}
	text := r.Failure(failure.Failure{Err: err})
	if text == err.Error() {
		return err
	}
	return &redactedError{text: text, err: err}
}

// redactedError can be matched like the error that it hides, also by the rules of
// package failure, but has no Unwrap: what prints the whole tree would print the
// secret.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }

func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }

func (e *redactedError) As(target any) bool { return errors.As(e.err, target) }
