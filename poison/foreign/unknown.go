package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/envelope"
)

// NoEvidence is the error text of a dead letter that nothing says an error of.
const NoEvidence = "no evidence of a failure"

// unknown makes a dead letter of a record that no format recognises. Its source
// is where it lay, because nothing tells of an earlier place. All of a stream
// without a text of an error have one text, so that they are one triage group.
func (in *input) unknown() envelope.DeadLetter {
	t := told{source: in.Position, failedAt: in.Position.Timestamp}
	if t.source.Topic == "" {
		t.source.Topic = in.Stream
	}
	t.message = in.errorText()
	if t.message == "" {
		t.message = NoEvidence
		if in.Stream != "" {
			t.message = fmt.Sprintf("%s: lay in stream %q", NoEvidence, in.Stream)
		}
	}
	return in.deadLetter(t)
}

// errorText is what headers say of an error, or else the body.
func (in *input) errorText() string {
	for _, name := range errorNames {
		for _, h := range slices.Backward(in.Headers) {
			if h.Type != typeSystem && bare(h.Key) == name && len(bytes.TrimSpace(h.Value)) > 0 {
				return string(h.Value)
			}
		}
	}
	return ErrorIn(in.Payload)
}

// errorNames are names that texts of errors have everywhere, without case and
// punctuation, the most telling first. What can be a name of the business too,
// as reason and status can, is not among them.
var errorNames = []string{
	"errormessage", "errordescription", "errortext", "errordetail", "exceptionmessage", "deadlettererrordescription", "failuremessage", "faultmessage",
	"errorreason", "failurereason", "deadletterreason", "dlqreason", "lasterror", "dlqerror", "error", "exception", "err",
}

// bare is a name without case, punctuation and the x- in front.
func bare(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(name), "x-"), "x_")
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_. ", r) {
			return -1
		}
		return r
	}, name)
}

// ErrorIn returns what a JSON object in no form that is known says of an error:
// the text of a field such as error or errorMessage, whose value is text, or an
// object with a message. It is empty if there is none. It is neither redacted
// nor cut.
func ErrorIn(body []byte) string {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 || body[0] != '{' || !mayTellAnError(body) {
		return ""
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	byName := make(map[string]string, len(fields))
	for field := range fields {
		if name := bare(field); byName[name] == "" || field < byName[name] { // always the same one of two
			byName[name] = field
		}
	}
	for _, name := range errorNames {
		if text := textOf(fields[byName[name]]); text != "" {
			return text
		}
	}
	return ""
}

// mayTellAnError spares nearly all bodies from being read.
func mayTellAnError(body []byte) bool {
	for _, part := range []string{"rr", "xception", "eason", "essage", "RR", "XCEPTION", "EASON", "ESSAGE"} {
		if bytes.Contains(body, []byte(part)) {
			return true
		}
	}
	return false
}

func textOf(value json.RawMessage) (text string) {
	var parts map[string]json.RawMessage
	if json.Unmarshal(value, &parts) == nil {
		for _, name := range []string{"message", "description", "detail"} {
			if json.Unmarshal(parts[name], &text) == nil && text != "" {
				return text
			}
		}
		return ""
	}
	if json.Unmarshal(value, &text) != nil {
		return ""
	}
	return strings.TrimSpace(text)
}
