package middleware

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
)

// DedupKey is a key function for Watermill's middleware.Deduplicator, inside
// the chain: set it as KeyFactory.
//
// The Deduplicator remembers a key before it calls the handler, and drops a
// message with a key that it remembers, as a success. With its stock key, a
// hash of the payload, it therefore drops every retry of a message whose first
// attempt failed: the message is lost. It also drops messages that are merely
// equal.
//
// DedupKey is a hash of the UUID, the payload, and which attempt this is: the
// number of the attempt, of the check from the parking lot, of the replay, and
// of the delivery where the broker counts those. So a message that the
// producer sent twice is handled once; and a retry, a release, a replay and a
// counted redelivery reach the handler. A message without UUID gets a key of
// its own each time, and is never dropped: two messages of equal payload may
// be two messages.
//
// What it cannot do: where the broker does not count deliveries (Kafka), or
// outside of the chain, a redelivery of a message whose handler never finished
// looks like a duplicate. If the process that remembers the key is still
// alive, or if the keys are kept in a store that outlives it, the message is
// dropped although nobody handled it. Also, two copies that arrive at the same
// time are decided before the first of them is known to succeed. The
// Deduplicator saves work; where losing or repeating an effect matters, use
// [Once], which remembers a message after its handler has succeeded.
//
// DedupKey never returns an error. It is safe for concurrent use.
func DedupKey(msg *message.Message) (string, error) {
	if msg.UUID == "" {
		return rand.Text(), nil
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(msg.UUID), []byte(attemptIdentity(msg.Context())), msg.Payload} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:]) // so that no two messages run together into the same bytes
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// attemptIdentity says which invocation of the handler a context belongs to. Two
// deliveries of a message may share an identity only if dropping the second
// while the first is running, or after it failed, loses nothing. It is empty
// outside of the chain.
func attemptIdentity(ctx context.Context) string {
	d, ok := adapters.DeliveryFrom(ctx)
	if !ok {
		return ""
	}
	// A check from the parking lot repeats the number of the attempt that led
	// there, but not its due time.
	return fmt.Sprintf("%s/%d/%d/%s/%d", d.Stream, d.State.Attempt, d.State.DueAt.UnixNano(), d.State.ReplayID, d.Count)
}
