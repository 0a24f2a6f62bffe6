package poison_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
)

type nilPointerError struct{ text string }

func (e *nilPointerError) Error() string { return e.text }

type panickingError struct{}

func (panickingError) Error() string { panic("no text today") }

// K28: a failure without an error must not panic where its text is needed.
func TestFailureText(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{})
	for name, tt := range map[string]struct {
		f    failure.Failure
		want string
	}{
		"redacted":       {failure.Failure{Err: errors.New("dial amqp://u:hunter2@mq: EOF")}, "dial amqp://u:<q>@mq: EOF"},
		"joined":         {failure.Failure{Err: errors.Join(errors.New("order 5 missing"), errors.New("no mail to a@b.example"))}, "order 5 missing\nno mail to <email>"},
		"wrapped":        {failure.Failure{Err: fmt.Errorf("load: %w", errors.New("password=x1"))}, "load: password=<q>"},
		"no error":       {failure.Failure{Class: failure.ClassConsumerCrash}, "consumer_crash"},
		"no error, code": {failure.Failure{Class: failure.ClassDependencyTimeout, Code: "http:504"}, "dependency_timeout (http:504)"},
		"nothing":        {failure.Failure{}, "unknown"},
		"empty text":     {failure.Failure{Class: "validation", Err: errors.New("")}, "validation"},
		"nil pointer":    {failure.Failure{Err: (*nilPointerError)(nil)}, "(the Error method of *poison_test.nilPointerError panicked)"},
		"panic":          {failure.Failure{Err: panickingError{}}, "(the Error method of poison_test.panickingError panicked)"},
		"panic below":    {failure.Failure{Err: errors.Join(panickingError{})}, "(the Error method of *errors.joinError panicked)"},
		"invalid UTF-8":  {failure.Failure{Err: errors.New("bad \xff byte")}, "bad \uFFFD byte"},
	} {
		if got := r.Failure(tt.f); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// K3, R14, O19: an error text of 1 MiB in multi-byte runes.
func TestFailureTextIsBounded(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{})
	got := r.Failure(failure.Failure{Err: errors.New(strings.Repeat("ошибка 李 ", 1<<16))})
	if len(got) > poison.MaxText || utf8.RuneCountInString(got) < 500 || !utf8.ValidString(got) || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes, %d runes, ends in %q", len(got), utf8.RuneCountInString(got), got[len(got)-20:])
	}
}
