package envelope

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/failure"
)

// DeadLetter is a dead letter as people and other programs see it: in the
// CLI, the API and exports. Its JSON names are those in the comments; fields
// that are empty are left out, except for deadLetterId, by which the form is
// recognised, and failedMessage and failure.
type DeadLetter struct {
	ID            string        // deadLetterId; empty in the flat forms that [DecodeDeadLetter] accepts
	FailedMessage FailedMessage // failedMessage
	Failure       FailureInfo   // failure
	Source        SourceInfo    // source
	Consumer      ConsumerInfo  // consumer
	Producer      ProducerInfo  // producer
	TraceID       string        // traceId
	Reference     string        // reference
	Replay        ReplayInfo    // replay
}

// FailedMessage is the message itself, as it was first delivered.
type FailedMessage struct {
	ID        string // id: Watermill's message UUID
	Type      string // type
	Aggregate string // aggregate
	// Key and Payload are key and payload if they are text in UTF-8, else
	// keyBase64 and payloadBase64. Nil is left out, and differs from empty.
	Key     []byte
	Payload []byte
	// Headers of the user: headers, a list of {key, value, type} that keeps
	// order, repeats and types. A value that is not UTF-8 is valueBase64.
	Headers []Header
	// DroppedHeaders names the headers that the user wanted left out:
	// droppedHeaders.
	DroppedHeaders []string
}

// FailureInfo is what went wrong.
type FailureInfo struct {
	Class          failure.Class  // class
	Nature         failure.Nature // nature
	Code           failure.Code   // code
	Message        string         // message
	Truncated      bool           // truncated
	Reason         string         // reason: policy.Reason
	Attempts       int            // attempts
	FirstAttemptAt time.Time      // firstAttemptAt; FailedAt where it is not known
	FailedAt       time.Time      // failedAt
}

// SourceInfo is where the message came from: broker, topic, partition,
// offset, timestamp.
type SourceInfo struct {
	Broker string
	Position
}

// ConsumerInfo is who failed.
type ConsumerInfo struct {
	Group   string // group
	Handler string // handler
	Version string // version
}

// ProducerInfo is who wrote the message.
type ProducerInfo struct {
	Version       string // version
	SchemaVersion string // schemaVersion
}

// ReplayInfo is the lineage of a message that a person sent back.
type ReplayInfo struct {
	ID     string // id of the replay
	Of     string // of: the dead letter that was sent back
	Reason string // reason that the person gave
	Count  int    // count of replays so far
}

// FromState makes a dead letter of the state, id, key, headers and payload of
// a dead-lettered record. It keeps the slices that it is given.
func FromState(s State, messageID string, key []byte, headers []Header, payload []byte) DeadLetter {
	d := DeadLetter{
		ID: s.DeadLetterID,
		FailedMessage: FailedMessage{
			ID:             messageID,
			Type:           s.MessageType,
			Aggregate:      s.Aggregate,
			Key:            key,
			Payload:        payload,
			Headers:        StripHeaders(headers),
			DroppedHeaders: s.DroppedHeaders,
		},
		Failure: FailureInfo{
			Class:          s.Class,
			Nature:         s.Nature,
			Code:           s.Code,
			Message:        s.Message,
			Truncated:      s.Truncated,
			Reason:         s.Reason,
			Attempts:       max(s.Attempt, 1),
			FirstAttemptAt: s.FirstAttemptAt,
			FailedAt:       s.DeadLetteredAt,
		},
		Source:    SourceInfo{Broker: s.Broker, Position: s.Source},
		Consumer:  ConsumerInfo{Group: s.ConsumerGroup, Handler: s.Handler, Version: s.ConsumerVersion},
		Producer:  ProducerInfo{Version: s.ProducerVersion, SchemaVersion: s.SchemaVersion},
		TraceID:   s.TraceID,
		Reference: s.Reference,
		Replay:    ReplayInfo{ID: s.ReplayID, Of: s.ReplayOf, Reason: s.ReplayReason, Count: s.ReplayCount},
	}
	d.fillFirstAttempt()
	return d
}

func (d *DeadLetter) fillFirstAttempt() {
	if d.Failure.FirstAttemptAt.IsZero() {
		d.Failure.FirstAttemptAt = d.Failure.FailedAt
	}
}

// jsonDeadLetter is the JSON form that is written. Reading is in decode.go.
type jsonDeadLetter struct {
	ID            string       `json:"deadLetterId"`
	FailedMessage jsonMessage  `json:"failedMessage"`
	Failure       jsonFailure  `json:"failure"`
	Source        jsonSource   `json:"source,omitzero"`
	Consumer      jsonConsumer `json:"consumer,omitzero"`
	Producer      jsonProducer `json:"producer,omitzero"`
	TraceID       string       `json:"traceId,omitempty"`
	Reference     string       `json:"reference,omitempty"`
	Replay        jsonReplay   `json:"replay,omitzero"`
}

type jsonMessage struct {
	ID             string       `json:"id,omitempty"`
	Type           string       `json:"type,omitempty"`
	Aggregate      string       `json:"aggregate,omitempty"`
	Key            *string      `json:"key,omitempty"`
	KeyBase64      []byte       `json:"keyBase64,omitempty"`
	Headers        []jsonHeader `json:"headers,omitempty"`
	DroppedHeaders []string     `json:"droppedHeaders,omitempty"`
	Payload        *string      `json:"payload,omitempty"`
	PayloadBase64  []byte       `json:"payloadBase64,omitempty"`
}

type jsonHeader struct {
	Key         string  `json:"key"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Type        string  `json:"type,omitempty"`
}

type jsonFailure struct {
	Class          failure.Class  `json:"class,omitempty"`
	Nature         failure.Nature `json:"nature,omitempty"`
	Code           failure.Code   `json:"code,omitempty"`
	Message        string         `json:"message,omitempty"`
	Truncated      bool           `json:"truncated,omitempty"`
	Reason         string         `json:"reason,omitempty"`
	Attempts       int            `json:"attempts,omitempty"`
	FirstAttemptAt string         `json:"firstAttemptAt,omitempty"`
	FailedAt       string         `json:"failedAt,omitempty"`
}

type jsonSource struct {
	Broker    string `json:"broker,omitempty"`
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Offset    *int64 `json:"offset,omitempty"`
	Timestamp string `json:"timestamp,omitempty"`
}

type jsonConsumer struct {
	Group   string `json:"group,omitempty"`
	Handler string `json:"handler,omitempty"`
	Version string `json:"version,omitempty"`
}

type jsonProducer struct {
	Version       string `json:"version,omitempty"`
	SchemaVersion string `json:"schemaVersion,omitempty"`
}

type jsonReplay struct {
	ID     string `json:"id,omitempty"`
	Of     string `json:"of,omitempty"`
	Reason string `json:"reason,omitempty"`
	Count  int    `json:"count,omitempty"`
}

// MarshalJSON writes Spillway's own form. Times are RFC 3339 in UTC with nine
// decimals. Texts, and names of headers, that are not UTF-8 are repaired.
func (d DeadLetter) MarshalJSON() ([]byte, error) {
	m, f := d.FailedMessage, d.Failure
	j := jsonDeadLetter{
		ID: d.ID,
		FailedMessage: jsonMessage{
			ID:             m.ID,
			Type:           m.Type,
			Aggregate:      m.Aggregate,
			DroppedHeaders: m.DroppedHeaders,
		},
		Failure: jsonFailure{
			Class:          f.Class,
			Nature:         f.Nature,
			Code:           f.Code,
			Message:        f.Message,
			Truncated:      f.Truncated,
			Reason:         f.Reason,
			Attempts:       f.Attempts,
			FirstAttemptAt: formatTime(f.FirstAttemptAt),
			FailedAt:       formatTime(f.FailedAt),
		},
		Source: jsonSource{
			Broker:    d.Source.Broker,
			Topic:     d.Source.Topic,
			Partition: d.Source.Partition,
			Offset:    d.Source.Offset,
			Timestamp: formatTime(d.Source.Timestamp),
		},
		Consumer:  jsonConsumer(d.Consumer),
		Producer:  jsonProducer(d.Producer),
		TraceID:   d.TraceID,
		Reference: d.Reference,
		Replay:    jsonReplay(d.Replay),
	}
	j.FailedMessage.Key, j.FailedMessage.KeyBase64 = textOrBinary(m.Key)
	j.FailedMessage.Payload, j.FailedMessage.PayloadBase64 = textOrBinary(m.Payload)
	for _, h := range m.Headers {
		jh := jsonHeader{Key: h.Key, Type: h.Type}
		jh.Value, jh.ValueBase64 = textOrBinary(h.Value)
		j.FailedMessage.Headers = append(j.FailedMessage.Headers, jh)
	}
	return marshal(j)
}

// marshal does not escape for HTML: whether to do so is for the encoder that
// asked, and a payload is easier to read without.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// textOrBinary returns neither for nil.
func textOrBinary(b []byte) (text *string, binary []byte) {
	switch {
	case b == nil:
		return nil, nil
	case utf8.Valid(b):
		return new(string(b)), nil
	default:
		return nil, b
	}
}
