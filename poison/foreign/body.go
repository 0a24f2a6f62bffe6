package foreign

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
)

// KeyBody is the header in which a dead letter that was found in a body has the
// rest of that body: its JSON without the message. Being Spillway's own, it is
// not sent with a replay.
const KeyBody = envelope.Prefix + "foreign-body"

// body decodes a body that is a dead letter in one of the forms that
// [envelope.DecodeDeadLetter] reads. A body of the application may have a
// payload too, so an error must be there beside it.
func (in *input) body() (envelope.DeadLetter, bool) {
	none := envelope.DeadLetter{}
	if !mayBeDeadLetter(in.Payload) {
		return none, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(in.Payload, &fields) != nil || !isDeadLetter(fields) {
		return none, false
	}
	d, err := envelope.DecodeDeadLetter(in.Payload)
	if err != nil {
		return none, false
	}

	// The body can be from anywhere: bounded and redacted as headers are, and
	// without a say in which dead letter it is.
	s := envelope.State{Broker: in.Broker, DeadLetteredAt: d.Failure.FailedAt, ConsumerGroup: d.Consumer.Group, Source: d.Source.Position, TraceID: d.TraceID, MessageType: d.FailedMessage.Type, Aggregate: d.FailedMessage.Aggregate}
	envelope.Keys{}.Describe(&s, in.Headers)
	d.ID = idOf(in.Record, in.Stream, s)
	d.TraceID, d.FailedMessage.Type, d.FailedMessage.Aggregate = name(s.TraceID), name(s.MessageType), name(s.Aggregate)
	d.Producer.Version, d.Producer.SchemaVersion = name(cmp.Or(d.Producer.Version, s.ProducerVersion)), name(cmp.Or(d.Producer.SchemaVersion, s.SchemaVersion))
	d.Consumer = envelope.ConsumerInfo{Group: name(d.Consumer.Group), Handler: name(d.Consumer.Handler), Version: name(d.Consumer.Version)}
	d.Source.Broker, d.Source.Topic = name(cmp.Or(d.Source.Broker, in.Broker)), name(d.Source.Topic)

	f := &d.Failure
	text, cut := envelope.ErrorText(in.Redactor.Text(f.Message))
	f.Message, f.Truncated = text, f.Truncated || cut
	f.Class, f.Nature = failure.Class(name(string(f.Class))), failure.Nature(name(string(f.Nature)))
	f.Code, f.Reason = failure.Code(name(string(f.Code))), name(f.Reason)
	if f.FailedAt.IsZero() {
		f.FailedAt = in.Position.Timestamp
	}
	if f.FirstAttemptAt.IsZero() {
		f.FirstAttemptAt = f.FailedAt
	}

	m := &d.FailedMessage
	m.ID = cmp.Or(m.ID, in.ID)
	if m.Key == nil {
		m.Key = in.Key
	}
	m.Headers = slices.Concat(envelope.StripHeaders(m.Headers), envelope.StripHeaders(in.Headers), []envelope.Header{{Key: KeyBody, Value: without(fields)}})
	return d, true
}

// mayBeDeadLetter spares nearly all bodies from being read.
func mayBeDeadLetter(body []byte) bool {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 || body[0] != '{' {
		return false
	}
	return bytes.Contains(body, []byte(`"failedMessage"`)) || bytes.Contains(body, []byte(`"error`))
}

// isDeadLetter reports whether both a message and its failure are there.
func isDeadLetter(fields map[string]json.RawMessage) bool {
	has := func(in map[string]json.RawMessage, names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return len(in[n]) > 0 && string(in[n]) != "null" })
	}
	if has(fields, "failedMessage") {
		var f map[string]json.RawMessage
		return json.Unmarshal(fields["failure"], &f) == nil && has(f, "class", "code", "message")
	}
	return has(fields, "payload", "payloadBase64") && has(fields, "errorClass", "errorMessage")
}

// without is the body as it came, but for the message itself.
func without(fields map[string]json.RawMessage) []byte {
	for _, key := range []string{"payload", "payloadBase64", "failedMessage"} {
		delete(fields, key)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(fields) // what was read encodes
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
