package envelope

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// Prefix starts every metadata key that belongs to Spillway.
const Prefix = "spillway-"

// IsOwn reports whether a key is Spillway's. Case does not matter, because
// some brokers change it.
func IsOwn(key string) bool {
	// Most keys end at the first test, and healthy messages pay for nothing else.
	return len(key) >= len(Prefix) && key[len(Prefix)-1] == '-' && strings.EqualFold(key[:len(Prefix)], Prefix)
}

// Strip returns m without Spillway's own keys. It never changes m: it returns
// m itself when there is nothing to strip, and else a copy.
func Strip[M ~map[string]string](m M) M {
	for key := range m {
		if IsOwn(key) {
			m = maps.Clone(m)
			maps.DeleteFunc(m, func(key, _ string) bool { return IsOwn(key) })
			break
		}
	}
	return m
}

// StripHeaders returns headers without Spillway's own. It never changes
// headers: it returns the same slice when there is nothing to strip, and else
// a new one that shares the values.
func StripHeaders(headers []Header) []Header {
	first := slices.IndexFunc(headers, isOwnHeader)
	if first < 0 {
		return headers
	}
	kept := slices.Clone(headers[:first])
	for _, h := range headers[first:] {
		if !isOwnHeader(h) {
			kept = append(kept, h)
		}
	}
	return kept
}

// HasState reports whether any of headers is Spillway's own.
func HasState(headers []Header) bool { return slices.ContainsFunc(headers, isOwnHeader) }

func isOwnHeader(h Header) bool { return IsOwn(h.Key) }

// The metadata keys. They are frozen: other services, and messages in flight
// during an upgrade, rely on them.
const (
	KeyStateVersion     = "spillway-state-version"
	KeyBroker           = "spillway-broker"
	KeyAttempt          = "spillway-attempt"
	KeyFirstAttemptAt   = "spillway-first-attempt-at"
	KeyDueAt            = "spillway-due-at"
	KeyHops             = "spillway-hops"
	KeySourceTopic      = "spillway-source-topic"
	KeySourcePartition  = "spillway-source-partition"
	KeySourceOffset     = "spillway-source-offset"
	KeySourceTimestamp  = "spillway-source-timestamp"
	KeyConsumerGroup    = "spillway-consumer-group"
	KeyHandler          = "spillway-handler"
	KeyConsumerVersion  = "spillway-consumer-version"
	KeyErrorClass       = "spillway-error-class"
	KeyErrorNature      = "spillway-error-nature"
	KeyErrorCode        = "spillway-error-code"
	KeyErrorMessage     = "spillway-error-message"
	KeyTruncated        = "spillway-truncated"
	KeyDeadLetterReason = "spillway-dead-letter-reason"
	KeyReference        = "spillway-reference"
	KeyParkedAt         = "spillway-parked-at"
	KeyParkChecks       = "spillway-park-checks"
	KeyTraceID          = "spillway-trace-id"
	KeyMessageType      = "spillway-message-type"
	KeyAggregate        = "spillway-aggregate"
	KeyProducerVersion  = "spillway-producer-version"
	KeySchemaVersion    = "spillway-schema-version"
	KeyDeadLetteredAt   = "spillway-dead-lettered-at"
	KeyDeadLetterID     = "spillway-dead-letter-id"
	KeyReplayID         = "spillway-replay-id"
	KeyReplayOf         = "spillway-replay-of"
	KeyReplayReason     = "spillway-replay-reason"
	KeyReplayCount      = "spillway-replay-count"
	KeyDroppedHeaders   = "spillway-dropped-headers"
)

// Version is the value of [KeyStateVersion]. A reader takes from any version
// the keys that it knows.
const Version = "1"

// Header is one header of a record. Type is empty for text and bytes, and
// otherwise the adapter's own name of the type whose text form Value holds.
type Header struct {
	Key   string
	Value []byte
	Type  string
}

// Position is where a message lay when it was first delivered. Fields that
// the broker does not have are nil or zero, never invented.
type Position struct {
	Topic     string
	Partition *int32
	Offset    *int64
	Timestamp time.Time
}

// State is what Spillway knows of one message. It travels in the message's
// metadata, so that no counter lives in process memory.
//
// The zero State is that of a message on its first delivery.
type State struct {
	Broker         string    // kind of broker, such as "kafka"
	Attempt        int       // the attempt that comes next, or that just failed in a dead letter; from 1
	FirstAttemptAt time.Time // zero before the first attempt
	DueAt          time.Time // zero means now
	Hops           int       // re-deliveries on the way to DueAt; not attempts
	Source         Position  // of the first delivery; never overwritten

	ConsumerGroup   string
	Handler         string
	ConsumerVersion string

	Class     failure.Class
	Nature    failure.Nature
	Code      failure.Code
	Message   string // error text, redacted, at most MaxErrorRunes runes
	Truncated bool   // Message was cut, or optional keys were left out

	Reference  string
	ParkedAt   time.Time
	ParkChecks int

	TraceID         string
	MessageType     string
	Aggregate       string
	ProducerVersion string
	SchemaVersion   string

	Reason         string // policy.Reason; empty unless dead-lettered
	DeadLetteredAt time.Time
	DeadLetterID   string
	DroppedHeaders []string // names of user headers left out of the dead letter at the user's wish

	ReplayID     string
	ReplayOf     string
	ReplayReason string
	ReplayCount  int
}

// BelongsTo reports whether the state was written for this consumer of this
// topic. State that was not is forged, or leaked from elsewhere, and must not
// be honoured. Names that had to be changed to be written still match.
func (s State) BelongsTo(topic, group string) bool {
	return name(s.Source.Topic) == name(topic) && name(s.ConsumerGroup) == name(group)
}

// MaxErrorRunes bounds the error text kept in a message, in runes.
const MaxErrorRunes = 500

// MaxTextRunes bounds every other text kept in a message, in runes.
const MaxTextRunes = 500

// MaxCount bounds the attempt and the other counters of a [State].
const MaxCount = 1_000_000

// MaxDueAhead bounds how far ahead a due time read from a message may lie.
const MaxDueAhead = 7 * 24 * time.Hour

// Pair is one metadata key with its value.
type Pair struct{ Key, Value string }
