package envelope

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strconv"
	"strings"
)

// DeadLetterID returns the id of the dead letter that s is about to become.
// The same dead letter written twice, because an acknowledgement got lost,
// has one id; two messages never share one:
//
//   - With partition and offset it stands for consumer group, broker, source
//     topic, partition, offset, source timestamp and replay count.
//   - Else, with a message id, for consumer group, source topic, message id,
//     payload and replay count.
//   - Else it is the id that s carries, unless that is the one it was replayed
//     from; or a random one, which the caller writes into s.DeadLetterID at
//     the message's first hand-off.
//
// An id is 52 characters of a to z and 2 to 7.
func DeadLetterID(s State, messageID string, payload []byte) string {
	switch {
	case s.Source.Partition != nil && s.Source.Offset != nil:
		return hashID("position",
			s.ConsumerGroup, s.Broker, s.Source.Topic,
			strconv.FormatInt(int64(*s.Source.Partition), 10),
			strconv.FormatInt(*s.Source.Offset, 10),
			formatTime(s.Source.Timestamp),
			strconv.Itoa(s.ReplayCount))
	case messageID != "":
		sum := sha256.Sum256(payload)
		return hashID("message",
			s.ConsumerGroup, s.Source.Topic, messageID, string(sum[:]),
			strconv.Itoa(s.ReplayCount))
	case s.DeadLetterID != "" && s.DeadLetterID != s.ReplayOf:
		return s.DeadLetterID
	default:
		var b [sha256.Size]byte
		rand.Read(b[:]) // never fails
		return encodeID(b)
	}
}

// hashID writes each part with its length before it, so that no two lists of
// parts are the same bytes.
func hashID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return encodeID([sha256.Size]byte(h.Sum(nil)))
}

var idEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

func encodeID(b [sha256.Size]byte) string {
	return strings.ToLower(idEncoding.EncodeToString(b[:]))
}
