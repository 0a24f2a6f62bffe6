package middleware

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

// outputsVersion is the first byte of encoded outputs. Those of an older
// version may lie in a database for as long as its keys are kept.
const outputsVersion = 1

// encodeOutputs keeps what travels of messages: UUID, metadata, payload. It is
// binary because any of them may be. No outputs are encoded as nil.
//
// After the version follow the number of messages and, for each, its UUID, the
// number of metadata pairs, these in the order of their keys, and the payload.
// Strings have their length in front; a payload's is one more, so that zero
// can stand for nil.
func encodeOutputs(messages []*message.Message) []byte {
	if len(messages) == 0 {
		return nil
	}
	b := binary.AppendUvarint([]byte{outputsVersion}, uint64(len(messages)))
	for _, m := range messages {
		b = appendString(b, m.UUID)
		b = binary.AppendUvarint(b, uint64(len(m.Metadata)))
		for _, k := range slices.Sorted(maps.Keys(m.Metadata)) {
			b = appendString(b, k)
			b = appendString(b, m.Metadata[k])
		}
		if m.Payload == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(m.Payload))+1)
		b = append(b, m.Payload...)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeOutputs returns new messages that share no memory with b.
func decodeOutputs(b []byte) ([]*message.Message, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != outputsVersion {
		return nil, fmt.Errorf("unknown version %d", b[0])
	}
	r := outputsReader{rest: b[1:]}
	var messages []*message.Message
	for n := r.uvarint(); n > 0 && !r.broken; n-- {
		m := message.NewMessage(string(r.bytes(r.uvarint())), nil)
		for pairs := r.uvarint(); pairs > 0 && !r.broken; pairs-- {
			k := string(r.bytes(r.uvarint()))
			m.Metadata[k] = string(r.bytes(r.uvarint()))
		}
		if size := r.uvarint(); size > 0 {
			m.Payload = append([]byte{}, r.bytes(size-1)...)
		}
		messages = append(messages, m)
	}
	if r.broken || len(r.rest) > 0 {
		return nil, errors.New("encoding is damaged")
	}
	return messages, nil
}

// outputsReader reads until the first fault, and remembers it.
type outputsReader struct {
	rest   []byte
	broken bool
}

func (r *outputsReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.broken = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *outputsReader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.broken = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}
