package sqs

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

const (
	// uuidAttribute is watermill-aws's. Its other attributes are the metadata,
	// one String each.
	uuidAttribute = "_watermill_message_uuid"
	// packedAttribute holds, as JSON, what does not travel as an attribute.
	packedAttribute = envelope.Prefix + "metadata"
	// encodingAttribute says how the body is to be read; absent means as it is.
	encodingAttribute = envelope.Prefix + "encoding"

	encodingBase64 = "base64"
	encodingEmpty  = "empty"

	// maxAttributes is three less than SQS allows, for what tracing agents add.
	maxAttributes = 7

	typeString   = "String"
	typeNumber   = "Number"
	typeBinary   = "Binary"
	systemPrefix = "sqs:" // of headers of type system
)

// native is the broker's own record.
type native struct{ types.Message }

// outgoing is a message before it is encoded.
type outgoing struct {
	id      string
	payload []byte
	headers []adapters.Header // the user's
	state   []envelope.Pair
	group   string // MessageGroupId
	dedup   string // MessageDeduplicationId, for FIFO queues
	trace   string // AWSTraceHeader
}

// encoded is a message as SQS takes it.
type encoded struct {
	body       string
	attributes map[string]types.MessageAttributeValue
}

// encode never fails: what SQS would refuse is packed, or written in base64.
func (o outgoing) encode() encoded {
	e := encoded{attributes: make(map[string]types.MessageAttributeValue, maxAttributes)}
	switch {
	case len(o.payload) == 0: // SQS has no empty bodies
		e.body = encodingEmpty
		e.attributes[encodingAttribute] = text(encodingEmpty)
	case isLegalText(string(o.payload)):
		e.body = string(o.payload)
	default:
		e.body = base64.StdEncoding.EncodeToString(o.payload)
		e.attributes[encodingAttribute] = text(encodingBase64)
	}
	var plain, packing []adapters.Header
	if id := (adapters.Header{Key: uuidAttribute, Value: []byte(o.id)}); isLegalText(o.id) {
		e.attributes[uuidAttribute] = attributeOf(id)
	} else if o.id != "" {
		packing = append(packing, id)
	}
	for _, h := range o.headers {
		if isPlain(h) {
			plain = append(plain, h)
		} else {
			packing = append(packing, h)
		}
	}
	for _, p := range o.state {
		packing = append(packing, adapters.Header{Key: p.Key, Value: []byte(p.Value)})
	}
	room := maxAttributes - len(e.attributes)
	slices.SortStableFunc(plain, byKey)
	if len(packing) > 0 || len(plain) > room {
		fit := min(len(plain), room-1)
		packing = append(packing, plain[fit:]...)
		plain = plain[:fit]
		e.attributes[packedAttribute] = text(pack(packing))
	}
	for _, h := range plain {
		e.attributes[h.Key] = attributeOf(h)
	}
	return e
}

func byKey(a, b adapters.Header) int { return cmp.Compare(a.Key, b.Key) }

// size is what SQS counts.
func (e encoded) size() int {
	n := len(e.body)
	for name, a := range e.attributes {
		n += len(name) + len(aws.ToString(a.DataType)) + len(aws.ToString(a.StringValue)) + len(a.BinaryValue)
	}
	return n
}

func text(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(typeString), StringValue: aws.String(v)}
}

func attributeOf(h adapters.Header) types.MessageAttributeValue {
	if kindOf(h.Type) == typeBinary {
		return types.MessageAttributeValue{DataType: aws.String(h.Type), BinaryValue: h.Value}
	}
	return types.MessageAttributeValue{DataType: aws.String(cmp.Or(h.Type, typeString)), StringValue: aws.String(string(h.Value))}
}

// kindOf is the part of a data type that SQS defines: Number of Number.int.
func kindOf(dataType string) string {
	kind, _, _ := strings.Cut(dataType, ".")
	return kind
}

// isPlain reports whether SQS takes h as an attribute of its own, unchanged.
func isPlain(h adapters.Header) bool {
	switch h.Key {
	case uuidAttribute, packedAttribute, encodingAttribute:
		return false
	}
	if envelope.IsOwn(h.Key) || !isLegalName(h.Key) || len(h.Value) == 0 || !isLegalType(h.Type) {
		return false
	}
	switch kindOf(cmp.Or(h.Type, typeString)) {
	case typeString:
		return isLegalText(string(h.Value))
	case typeNumber:
		return isNumber(string(h.Value))
	case typeBinary:
		return true
	}
	return false
}

// isNumber is stricter than SQS, which also bounds size and precision.
func isNumber(s string) bool {
	v, err := strconv.ParseFloat(s, 64)
	inRange := math.Abs(v) >= 1e-127 && math.Abs(v) <= 1e125 || strings.Trim(s, "+-.0") == ""
	return err == nil && inRange && len(s) <= 38 && strings.Trim(s, "+-.0123456789eE") == ""
}

// isLegalType reports whether SQS takes a data type: it may end in a label.
func isLegalType(dataType string) bool {
	return len(dataType) <= 256 && !strings.ContainsFunc(dataType, func(r rune) bool { return !isNameChar(r) && r != '.' })
}

func isLegalName(name string) bool {
	lower := strings.ToLower(name)
	return len(name) >= 1 && len(name) <= 256 &&
		!strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.") &&
		name[0] != '.' && name[len(name)-1] != '.' && !strings.Contains(name, "..") &&
		!strings.ContainsFunc(name, func(r rune) bool { return !isNameChar(r) && r != '.' })
}

// isLegalText reports whether SQS takes s as a body or as the value of an
// attribute: not empty, UTF-8, and characters that XML 1.0 has.
func isLegalText(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

// recordOf makes a record of a message. When err is not nil the record is raw.
func recordOf(m *native, stream string) (r adapters.Record, err error) {
	r = adapters.Record{
		ID: aws.ToString(m.MessageId), Native: m,
		Position: envelope.Position{Topic: stream, Timestamp: m.sentAt()},
	}
	if group := m.system(types.MessageSystemAttributeNameMessageGroupId); group != "" {
		r.Key = []byte(group)
	}
	body := aws.ToString(m.Body)
	r.Payload, err = decodeBody(body, m.MessageAttributes)
	headers := map[string]adapters.Header{}
	for name, a := range m.MessageAttributes {
		if name == packedAttribute || name == encodingAttribute {
			continue
		}
		h := headerOf(name, a)
		if name == uuidAttribute && h.Type == "" && len(h.Value) > 0 {
			r.ID = string(h.Value)
			continue
		}
		headers[name] = h
	}
	if a, ok := m.MessageAttributes[packedAttribute]; ok && err == nil {
		var more []adapters.Header
		more, err = unpack(aws.ToString(a.StringValue))
		for _, h := range more {
			if h.Key == uuidAttribute && h.Type == "" {
				r.ID = string(h.Value)
				continue
			}
			headers[h.Key] = h
		}
	}
	if err != nil {
		r.Payload = []byte(body)
	}
	r.Headers = slices.SortedFunc(maps.Values(headers), byKey)
	return r, err
}

func decodeBody(body string, attributes map[string]types.MessageAttributeValue) ([]byte, error) {
	a, marked := attributes[encodingAttribute]
	if !marked {
		return []byte(body), nil
	}
	switch encoding := aws.ToString(a.StringValue); encoding {
	case encodingEmpty:
		return []byte{}, nil
	case encodingBase64:
		payload, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, fmt.Errorf("the body is marked as base64: %w", err)
		}
		return payload, nil
	default:
		return nil, fmt.Errorf("the body has the unknown encoding %.40q", encoding)
	}
}

func headerOf(name string, a types.MessageAttributeValue) adapters.Header {
	h := adapters.Header{Key: name, Type: aws.ToString(a.DataType)}
	if kindOf(h.Type) == typeBinary {
		h.Value = a.BinaryValue
	} else {
		h.Value = []byte(aws.ToString(a.StringValue))
	}
	if h.Type == typeString {
		h.Type = ""
	}
	return h
}

func (m *native) system(name types.MessageSystemAttributeName) string {
	return m.Attributes[string(name)]
}

func (m *native) sentAt() time.Time {
	ms, err := strconv.ParseInt(m.system(types.MessageSystemAttributeNameSentTimestamp), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// count is how often the broker handed out m, from 1.
func (m *native) count() int {
	n, err := strconv.Atoi(m.system(types.MessageSystemAttributeNameApproximateReceiveCount))
	if err != nil {
		return 1
	}
	return min(max(n, 1), envelope.MaxCount)
}

// storedRecordOf makes a record for those who keep it elsewhere: with what the
// broker says of it, such as the queue that it was dead-lettered from.
func storedRecordOf(m *native, stream string) adapters.Record {
	r, _ := recordOf(m, stream) // raw if need be
	add := func(name, value string) {
		r.Headers = append(r.Headers, adapters.Header{Key: systemPrefix + name, Value: []byte(value), Type: adapters.TypeSystem})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
		add(name, m.Attributes[name])
	}
	add("MessageId", aws.ToString(m.MessageId))
	return r
}

// outgoingOf builds what a hand-off writes.
func outgoingOf(h adapters.Handoff) outgoing {
	o := outgoing{payload: h.Record.Payload, state: h.State, group: string(h.Record.Key)}
	if h.Keeps(uuidAttribute) {
		o.id = h.Record.ID
	}
	for _, header := range h.Record.Headers {
		switch {
		case header.Type == adapters.TypeSystem && header.Key == systemPrefix+string(types.MessageSystemAttributeNameAWSTraceHeader):
			o.trace = string(header.Value)
		case header.Type == adapters.TypeSystem && header.Key == systemPrefix+string(types.MessageSystemAttributeNameMessageGroupId):
			o.group = cmp.Or(o.group, string(header.Value))
		case header.Type == adapters.TypeSystem:
		case h.Keeps(header.Key):
			o.headers = append(o.headers, header)
		}
	}
	if m, ok := h.Record.Native.(*native); ok && m != nil {
		o.trace = m.system(types.MessageSystemAttributeNameAWSTraceHeader)
	}
	// What was kept elsewhere may be of another broker, or be anything.
	if !isLegalText(o.trace) {
		o.trace = ""
	}
	o.group = legalToken(o.group)
	return o
}

// legalToken is s, or a hash of it where SQS would not take it as a MessageGroupId:
// what is equal stays together.
func legalToken(s string) string {
	if len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return idOf(sum[:])
}
