package envelope

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// ErrUnknownForm says that what [DecodeDeadLetter] got is a JSON object, but a
// dead letter in none of its forms.
var ErrUnknownForm = errors.New("dead letter: neither failedMessage nor payload, errorClass or errorMessage: want " +
	"{deadLetterId, failedMessage{...}, failure{...}, ...}, " +
	"{payload, errorClass, errorMessage, consumerVersion, traceId, attempts, firstAttemptAt, deadLetteredAt} or " +
	"{failedMessage, failure{code, message, attempts, failedAt}, source}")

// DecodeDeadLetter reads one dead letter from JSON, in any of these forms:
//
//   - Spillway's own, which has deadLetterId and failedMessage, as
//     [DeadLetter.MarshalJSON] writes it. Its headers may also be an object.
//   - {payload, errorClass, errorMessage, consumerVersion, traceId, attempts,
//     firstAttemptAt, deadLetteredAt}. Also payloadBase64 and deadLetterId.
//   - {failedMessage, failure{code, message, attempts, failedAt}, source},
//     without deadLetterId, in which failedMessage is the payload, and source
//     is an object or the name of a topic.
//
// A payload that is a JSON string is its text; any other value is kept as the
// exact text that stands there. Where the first attempt is not known, the time
// of the failure stands in. A flat form that has no class gets class and
// nature unknown; no id is made up for it.
//
// Numbers may be given as text, and text as numbers. Fields that are not known
// are ignored. The error is [ErrUnknownForm], or names every field that is wrong, never its value.
// Texts are neither cut nor redacted: redact first, and then use [ErrorText].
func DecodeDeadLetter(data []byte) (DeadLetter, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return DeadLetter{}, fmt.Errorf("dead letter: %s, want an object", kindOf(data))
		}
		return DeadLetter{}, fmt.Errorf("dead letter: %w", err)
	}
	var errs []error
	o := object{fields: fields, errs: &errs}

	var d DeadLetter
	switch {
	case o.has("deadLetterId") && o.has("failedMessage"):
		d = o.own()
	case o.has("failedMessage"):
		d = o.nested()
	case o.has("payload"), o.has("payloadBase64"), o.has("errorClass"), o.has("errorMessage"):
		d = o.flat()
	default:
		return DeadLetter{}, ErrUnknownForm
	}
	if len(errs) > 0 {
		return DeadLetter{}, fmt.Errorf("dead letter: %w", errors.Join(errs...))
	}
	d.fillFirstAttempt()
	return d, nil
}

// UnmarshalJSON reads any form that [DecodeDeadLetter] does. By the convention
// of encoding/json, null changes nothing.
func (d *DeadLetter) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	read, err := DecodeDeadLetter(data)
	if err != nil {
		return err
	}
	*d = read
	return nil
}

func (o object) own() DeadLetter {
	m, f, c, p, r := o.object("failedMessage"), o.object("failure"), o.object("consumer"), o.object("producer"), o.object("replay")
	return DeadLetter{
		ID: o.text("deadLetterId"),
		FailedMessage: FailedMessage{
			ID:             m.text("id"),
			Type:           m.text("type"),
			Aggregate:      m.text("aggregate"),
			Key:            m.bytes("key"),
			Headers:        m.headers("headers"),
			DroppedHeaders: m.texts("droppedHeaders"),
			Payload:        m.bytes("payload"),
		},
		Failure:   f.failure(),
		Source:    o.source(),
		Consumer:  ConsumerInfo{Group: c.text("group"), Handler: c.text("handler"), Version: c.text("version")},
		Producer:  ProducerInfo{Version: p.text("version"), SchemaVersion: p.text("schemaVersion")},
		TraceID:   o.text("traceId"),
		Reference: o.text("reference"),
		Replay:    ReplayInfo{ID: r.text("id"), Of: r.text("of"), Reason: r.text("reason"), Count: r.count("count")},
	}
}

func (o object) flat() DeadLetter {
	return withClass(DeadLetter{
		ID:            o.text("deadLetterId"),
		FailedMessage: FailedMessage{Payload: o.bytes("payload")},
		Failure: FailureInfo{
			Class:          failure.Class(o.text("errorClass")),
			Message:        o.text("errorMessage"),
			Attempts:       o.count("attempts"),
			FirstAttemptAt: o.time("firstAttemptAt"),
			FailedAt:       o.time("deadLetteredAt"),
		},
		Consumer: ConsumerInfo{Version: o.text("consumerVersion")},
		TraceID:  o.text("traceId"),
	})
}

func (o object) nested() DeadLetter {
	return withClass(DeadLetter{
		FailedMessage: FailedMessage{Payload: o.bytes("failedMessage")},
		Failure:       o.object("failure").failure(),
		Source:        o.source(),
		TraceID:       o.text("traceId"),
	})
}

func withClass(d DeadLetter) DeadLetter {
	if d.Failure.Class == "" {
		d.Failure.Class = failure.ClassUnknown
	}
	if d.Failure.Nature == "" {
		d.Failure.Nature = failure.NatureUnknown
	}
	return d
}

func (o object) failure() FailureInfo {
	return FailureInfo{
		Class:          failure.Class(o.text("class")),
		Nature:         failure.Nature(o.text("nature")),
		Code:           failure.Code(o.text("code")),
		Message:        o.text("message"),
		Truncated:      o.bool("truncated"),
		Reason:         o.text("reason"),
		Attempts:       o.count("attempts"),
		FirstAttemptAt: o.time("firstAttemptAt"),
		FailedAt:       o.time("failedAt"),
	}
}

func (o object) source() SourceInfo {
	if kindOf(o.fields["source"]) == kindString {
		return SourceInfo{Position: Position{Topic: o.text("source")}}
	}
	s := o.object("source")
	info := SourceInfo{
		Broker:   s.text("broker"),
		Position: Position{Topic: s.text("topic"), Timestamp: s.time("timestamp")},
	}
	if n, ok := s.number("partition", math.MaxInt32); ok {
		info.Partition = new(int32(n))
	}
	if n, ok := s.number("offset", math.MaxInt64); ok {
		info.Offset = &n
	}
	return info
}

// object is a JSON object that is being read. Its readers return the zero
// value for a field that is absent or null, and report what they cannot read.
type object struct {
	path   string // with a dot at its end, or empty
	fields map[string]json.RawMessage
	errs   *[]error
}

func (o object) has(field string) bool {
	_, ok := o.fields[field]
	return ok
}

// wrong reports a field. The value stays out of it: it may be a secret.
func (o object) wrong(field, want string) {
	*o.errs = append(*o.errs, fmt.Errorf("%s%s: %s, want %s", o.path, field, kindOf(o.fields[field]), want))
}

func (o object) object(field string) object {
	sub := object{path: o.path + field + ".", errs: o.errs}
	raw := o.fields[field]
	switch kindOf(raw) {
	case kindNone:
	case kindObject:
		_ = json.Unmarshal(raw, &sub.fields) // valid, as all of data is
	default:
		o.wrong(field, "an object")
	}
	return sub
}

func (o object) text(field string) string {
	s, ok := scalar(o.fields[field])
	if !ok {
		o.wrong(field, "text")
	}
	return s
}

func (o object) texts(field string) []string {
	raw := o.fields[field]
	var list []json.RawMessage
	if kindOf(raw) == kindNone {
		return nil
	}
	if json.Unmarshal(raw, &list) != nil {
		o.wrong(field, "a list of texts")
		return nil
	}
	var texts []string
	for _, raw := range list {
		s, ok := scalar(raw)
		if !ok {
			o.wrong(field, "a list of texts")
			return nil
		}
		texts = append(texts, s)
	}
	return texts
}

func (o object) bool(field string) bool {
	if o.empty(field) {
		return false
	}
	s, _ := scalar(o.fields[field])
	b, err := strconv.ParseBool(s)
	if err != nil {
		o.wrong(field, "true or false")
	}
	return b
}

func (o object) time(field string) time.Time {
	if o.empty(field) {
		return time.Time{}
	}
	if kindOf(o.fields[field]) == kindString {
		s, _ := scalar(o.fields[field])
		if t, ok := parseTime(s); ok {
			return t
		}
	}
	o.wrong(field, `a time in RFC 3339 such as "2006-01-02T15:04:05Z"`)
	return time.Time{}
}

func (o object) count(field string) int {
	n, _ := o.number(field, MaxCount)
	return int(n)
}

// number reads a whole number from 0 to most, which other programs may have
// written as text or with decimals.
func (o object) number(field string, most int64) (n int64, ok bool) {
	if o.empty(field) {
		return 0, false
	}
	s, isScalar := scalar(o.fields[field])
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		// Above 2^53 a float is not exact any more.
		if f, ferr := strconv.ParseFloat(s, 64); ferr == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
			n, err = int64(f), nil
		}
	}
	if !isScalar || err != nil || n < 0 || n > most {
		o.wrong(field, fmt.Sprintf("a whole number from 0 to %d", most))
		return 0, false
	}
	return n, true
}

// empty reports whether a field is absent, null or "".
func (o object) empty(field string) bool {
	raw := o.fields[field]
	return kindOf(raw) == kindNone || string(raw) == `""`
}

// bytes reads field, or fieldBase64.
func (o object) bytes(field string) []byte {
	if b64 := field + "Base64"; kindOf(o.fields[b64]) != kindNone {
		s, _ := scalar(o.fields[b64])
		b, err := base64.StdEncoding.DecodeString(s)
		if kindOf(o.fields[b64]) != kindString || err != nil {
			o.wrong(b64, "text in base64")
			return nil
		}
		return b
	}
	return rawBytes(o.fields[field])
}

// rawBytes returns nil for null, the text of a string, and the exact JSON of
// anything else.
func rawBytes(raw json.RawMessage) []byte {
	switch kindOf(raw) {
	case kindNone:
		return nil
	case kindString:
		s, _ := scalar(raw)
		return []byte(s)
	default:
		return bytes.Clone(raw)
	}
}

// headers reads a list of {key, value, type}, or an object, in which a list
// stands for repeats.
func (o object) headers(field string) []Header {
	raw := o.fields[field]
	var headers []Header
	switch kindOf(raw) {
	case kindNone:
	case kindList:
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list) // valid, as all of data is
		for i, raw := range list {
			h := object{path: fmt.Sprintf("%s%s[%d].", o.path, field, i), errs: o.errs}
			if json.Unmarshal(raw, &h.fields) != nil || !h.has("key") {
				o.wrong(field, "each of its entries to be an object with a key")
				return nil
			}
			headers = append(headers, Header{Key: h.text("key"), Value: h.bytes("value"), Type: h.text("type")})
		}
	case kindObject:
		// A map would lose the order.
		dec := json.NewDecoder(bytes.NewReader(raw))
		_, _ = dec.Token()
		for dec.More() {
			key, err := dec.Token()
			var value json.RawMessage
			if err = errors.Join(err, dec.Decode(&value)); err != nil {
				o.wrong(field, "an object of texts")
				return nil
			}
			values := []json.RawMessage{value}
			if kindOf(value) == kindList {
				_ = json.Unmarshal(value, &values)
			}
			for _, v := range values {
				headers = append(headers, Header{Key: key.(string), Value: rawBytes(v)})
			}
		}
	default:
		o.wrong(field, "a list of {key, value, type} or an object of texts")
	}
	return headers
}

// scalar returns the text of a string, the literal of a number or truth value,
// and "" for null; ok is false for an object or a list.
func scalar(raw json.RawMessage) (s string, ok bool) {
	switch kindOf(raw) {
	case kindNone:
		return "", true
	case kindString:
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	case kindNumber, kindBool:
		return string(raw), true
	default:
		return "", false
	}
}

const (
	kindNone   = "nothing"
	kindString = "a text"
	kindNumber = "a number"
	kindBool   = "true or false"
	kindObject = "an object"
	kindList   = "a list"
)

// kindOf says what a JSON value is, by its first character.
func kindOf(raw []byte) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return kindNone
	}
	switch raw[0] {
	case '"':
		return kindString
	case '{':
		return kindObject
	case '[':
		return kindList
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNone
	default:
		return kindNumber
	}
}
