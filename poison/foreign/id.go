package foreign

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// idOf is the id of a dead letter that others wrote: that of the record which
// was drained, because what they say of its first position is not enough to take
// two records for one. Where the record has no position of its own it is what
// does not change while the record lies there: message id, body, and all that
// headers tell of this death, such as its time and count, so that a message
// that was sent back and died again is another dead letter.
//
// A record without a message id is known again only if it says when it died.
// Of others that look alike nobody can tell whether they are one, and in doubt
// they are two: they get an id that is drawn.
func idOf(r adapters.Record, stream string, s envelope.State) string {
	of := envelope.State{Broker: s.Broker, ConsumerGroup: s.ConsumerGroup, Source: r.Position, ReplayCount: s.ReplayCount}
	if r.Position.Partition != nil && r.Position.Offset != nil {
		return envelope.DeadLetterID(of, r.ID, r.Payload)
	}
	of.Source = envelope.Position{Topic: cmp.Or(s.Source.Topic, stream)}
	messageID := r.ID
	if messageID == "" && (!s.DeadLetteredAt.IsZero() || !r.Position.Timestamp.IsZero()) {
		messageID = "\x00" // which is nobody's
	}
	return envelope.DeadLetterID(of, messageID, evidence(r))
}

// evidence is what a record without a position is known by, beside its id.
func evidence(r adapters.Record) []byte {
	headers := slices.DeleteFunc(slices.Clone(envelope.StripHeaders(r.Headers)), func(h adapters.Header) bool { return changes(h) })
	slices.SortStableFunc(headers, func(a, b adapters.Header) int { return strings.Compare(a.Key, b.Key) })
	var b bytes.Buffer
	part := func(p []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		b.Write(size[:])
		b.Write(p)
	}
	part(r.Payload)
	part(r.Key)
	if t := r.Position.Timestamp; !t.IsZero() {
		part(t.UTC().AppendFormat(nil, "2006-01-02T15:04:05.999999999Z"))
	}
	for _, h := range headers {
		part([]byte(h.Key))
		part([]byte(h.Type))
		part(h.Value)
	}
	return b.Bytes()
}

// changes reports whether a header says how often the record was read, and is
// another one the next time.
func changes(h adapters.Header) bool {
	switch {
	case h.Type == typeSystem:
		return true
	case len(h.Key) > 20:
		return false
	}
	switch strings.ToLower(h.Key) {
	case "x-delivery-count", "x-acquired-count":
		return true
	}
	return false
}

// IsAnonymous reports whether nothing but its content says which record it is:
// it has neither a message id nor a position. Two that have the same id and
// were drained at once are copies that are equal in every byte, and two dead
// letters.
func IsAnonymous(r adapters.Record) bool {
	return r.ID == "" && (r.Position.Partition == nil || r.Position.Offset == nil)
}
