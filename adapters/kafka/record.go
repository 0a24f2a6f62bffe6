package kafka

import (
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

const (
	uuidHeader = wkafka.UUIDHeaderKey
	// heldHeader says until when a record is held by its readers. It is the
	// adapter's: due-at in the state is the chain's, and may be later.
	heldHeader = envelope.Prefix + "held-until"
)

// recordOf makes a record of a message. An error says that the marshaler could
// not read it: the record then is what the broker has.
func recordOf(m *sarama.ConsumerMessage, stream string, u wkafka.Unmarshaler) (adapters.Record, error) {
	r := adapters.Record{
		Key: m.Key, Payload: m.Value, Native: m,
		Position: envelope.Position{Topic: stream, Partition: &m.Partition, Offset: &m.Offset, Timestamp: m.Timestamp.UTC()},
	}
	if _, ours := u.(wkafka.DefaultMarshaler); !ours {
		return unmarshaled(r, m, u)
	}
	if len(m.Headers) > 0 {
		r.Headers = make([]adapters.Header, 0, len(m.Headers))
	}
	for _, h := range m.Headers {
		switch key := string(h.Key); key {
		case uuidHeader:
			r.ID = string(h.Value)
		case heldHeader:
		default:
			r.Headers = append(r.Headers, adapters.Header{Key: key, Value: h.Value})
		}
	}
	return r, nil
}

// unmarshaled is a record as a marshaler of the user sees it.
func unmarshaled(r adapters.Record, m *sarama.ConsumerMessage, u wkafka.Unmarshaler) (adapters.Record, error) {
	plain, _ := recordOf(m, r.Position.Topic, wkafka.DefaultMarshaler{})
	msg, err := u.Unmarshal(m)
	if err != nil {
		return plain, err
	}
	r.ID, r.Payload = msg.UUID, msg.Payload
	for _, h := range plain.Headers {
		if envelope.IsOwn(h.Key) {
			r.Headers = append(r.Headers, h)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
		if !envelope.IsOwn(key) {
			r.Headers = append(r.Headers, adapters.Header{Key: key, Value: []byte(msg.Metadata[key])})
		}
	}
	return r, nil
}

// heldUntil is when a message of one of our topics may be delivered; zero means
// now. What cannot be read, or lies further ahead than anybody would have
// written it, is now.
func heldUntil(m *sarama.ConsumerMessage, longest time.Duration) time.Time {
	for _, h := range m.Headers {
		if string(h.Key) != heldHeader {
			continue
		}
		due, err := time.Parse(time.RFC3339Nano, string(h.Value))
		if err != nil || !m.Timestamp.IsZero() && due.After(m.Timestamp.Add(longest+clockSkew)) {
			return time.Time{}
		}
		return due
	}
	return time.Time{}
}

// clockSkew between the hosts of producers and brokers is not taken for forgery.
const clockSkew = 5 * time.Minute

// sizeOf is the memory that a message takes.
func sizeOf(m *sarama.ConsumerMessage) int {
	n := len(m.Key) + len(m.Value) + 256
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value) + 64
	}
	return n
}

// outgoing builds what a hand-off writes to a topic: from the native record
// where there is one, and else from the portable fields. The partition follows
// from the key: the target may have others than the source.
func outgoing(h adapters.Handoff, topic string, held time.Time) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{Topic: topic}
	add := func(key, value []byte) {
		out.Headers = append(out.Headers, sarama.RecordHeader{Key: key, Value: value})
	}
	key, value := h.Record.Key, h.Record.Payload
	if m, ok := h.Record.Native.(*sarama.ConsumerMessage); ok && m != nil {
		key, value = m.Key, m.Value
		for _, header := range m.Headers {
			if h.Keeps(string(header.Key)) {
				add(header.Key, header.Value)
			}
		}
	} else {
		if id := h.Record.ID; id != "" && h.Keeps(uuidHeader) {
			add([]byte(uuidHeader), []byte(id))
		}
		for _, header := range h.Record.Headers {
			if h.Keeps(header.Key) && header.Key != uuidHeader {
				add([]byte(header.Key), header.Value)
			}
		}
	}
	// A nil encoder is Kafka's null.
	if key != nil {
		out.Key = sarama.ByteEncoder(key)
	}
	if value != nil {
		out.Value = sarama.ByteEncoder(value)
	}
	for _, pair := range h.State {
		add([]byte(pair.Key), []byte(pair.Value))
	}
	if !held.IsZero() {
		add([]byte(heldHeader), []byte(held.UTC().Format(time.RFC3339Nano)))
	}
	return out
}
