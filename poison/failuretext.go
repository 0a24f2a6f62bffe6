package poison

import (
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/failure"
)

// Failure returns the error text of f as it may be kept and shown: redacted,
// valid UTF-8, with the lines of joined errors, and bounded like [Redactor.Text].
// Where f has no error, or one with an empty text, it says what is known
// instead, "consumer_crash" or "dependency_timeout (http:504)". It does not panic if the
// error's Error method does.
//
// The text is not yet cut to the length that fits into metadata: redaction
// must see the whole.
func (r *Redactor) Failure(f failure.Failure) string {
	text := errorText(f.Err)
	if text == "" {
		text = string(f.Class)
		if text == "" {
			text = string(failure.ClassUnknown)
		}
		if f.Code != "" {
			text += " (" + string(f.Code) + ")"
		}
	}
	return strings.ToValidUTF8(r.Text(text), "\uFFFD")
}

// errorText calls Error of an error that users wrote. A nil pointer in an
// error is the common way to have it panic.
func errorText(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("(the Error method of %T panicked)", err)
		}
	}()
	return err.Error()
}
