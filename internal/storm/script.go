package storm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Fate is what the script has in mind for a message.
type Fate string

const (
	Healthy   Fate = "healthy"   // succeeds
	Transient Fate = "transient" // fails one to four times, then succeeds
	Exhausted Fate = "exhausted" // fails on every attempt, as transient
	Permanent Fate = "permanent" // fails at once and for good
	Missing   Fate = "missing"   // waits for a reference, which arrives while it is parked
	Waiting   Fate = "waiting"   // waits for a reference, which does not arrive
	Panics    Fate = "panics"    // panics on every attempt
	Stumbles  Fate = "stumbles"  // panics once
	Exits     Fate = "exits"     // ends its process, on every attempt
	Slow      Fate = "slow"      // takes its time, whatever its context says
	Output    Fate = "output"    // publishes an output, some on their second attempt only
)

// shares are in thousandths; what is left is healthy. Exits are apart, because
// each costs six processes.
var shares = []struct {
	fate  Fate
	share uint64
}{
	{Transient, 80}, {Exhausted, 5}, {Permanent, 15}, {Missing, 20}, {Waiting, 3},
	{Panics, 5}, {Stumbles, 10}, {Slow, 10}, {Output, 50},
}

// exitEvery is how many messages there are for each that ends its process.
const exitEvery = 20_000

// Script says what happens to each message. It is a pure function of its fields.
type Script struct {
	Seed     uint64
	Messages int
}

const idPrefix = "storm-"

// ID of message n.
func (s Script) ID(n int) string { return fmt.Sprintf(idPrefix+"%07d", n) }

// Number is the inverse of ID.
func (s Script) Number(id string) (int, bool) {
	digits, ok := strings.CutPrefix(id, idPrefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && n < s.Messages && s.ID(n) == id
}

// draw returns random numbers that belong to message n and a purpose.
func (s Script) draw(n int, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.Seed^purpose<<56, uint64(n)))
}

// Fate of message n.
func (s Script) Fate(n int) Fate {
	exits := 1 + s.Messages/exitEvery
	for i := range exits {
		if n == (2*i+1)*s.Messages/(2*exits) {
			return Exits
		}
	}
	at := s.draw(n, 1).Uint64N(1000)
	for _, row := range shares {
		if at < row.share {
			return row.fate
		}
		at -= row.share
	}
	return Healthy
}

// MustSucceed reports a message that the script lets succeed within the policy.
func (s Script) MustSucceed(n int) bool {
	switch s.Fate(n) {
	case Healthy, Transient, Missing, Stumbles, Slow, Output:
		return true
	}
	return false
}

// failures is how often a transient message fails before it succeeds.
func (s Script) failures(n int) int { return 1 + s.draw(n, 2).IntN(4) }

// pause is how long a slow message takes.
func (s Script) pause(n int) time.Duration {
	return 100*time.Millisecond + time.Duration(s.draw(n, 3).Int64N(int64(900*time.Millisecond)))
}

// lateOutput reports an output message whose first attempt fails, with an
// output that must not be published.
func (s Script) lateOutput(n int) bool { return s.draw(n, 4).IntN(3) == 0 }

// Native reports a message that is published by the broker's own client, with
// typed headers; the others go through Spillway's publisher.
func (s Script) Native(n int) bool { return n%3 == 0 }

// headerPrefix marks the headers that a digest covers.
const headerPrefix = "storm-"

// Record of message n. Its payload is text, random bytes or empty, up to 64 KiB.
func (s Script) Record(n int, t Target) adapters.Record {
	r := s.draw(n, 5)
	var payload []byte
	switch at := r.IntN(1000); {
	case at < 5:
		payload = []byte{}
	case at < 10:
		payload = bytesOf(r, r.IntN(64<<10))
	case at < 100:
		payload = bytesOf(r, r.IntN(2000))
	default:
		payload = fmt.Appendf(nil, `{"order":%d,"note":"größer als < %x"}`, n, r.Uint64())
	}
	record := adapters.Record{ID: s.ID(n), Payload: payload, Headers: []adapters.Header{
		{Key: headerPrefix + "id", Value: []byte(s.ID(n))},
		{Key: headerPrefix + "text", Value: fmt.Appendf(nil, "ü %d", r.Uint64())},
	}}
	if s.Native(n) {
		for _, h := range t.Headers(r) {
			h.Key = headerPrefix + h.Key
			record.Headers = append(record.Headers, h)
		}
	}
	return record
}

func bytesOf(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Digest covers what must never change: id, key, payload, and our own headers
// with their types and repeats.
func Digest(r adapters.Record) string {
	var headers []string
	for _, h := range r.Headers {
		if strings.HasPrefix(h.Key, headerPrefix) {
			headers = append(headers, fmt.Sprintf("%q %q %q", h.Key, h.Type, h.Value))
		}
	}
	// Some brokers keep no order.
	slices.Sort(headers)
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q\n%x", r.ID, r.Key, headers, sha256.Sum256(r.Payload))
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// idOf is the record's id, or what its header says where a fault took that.
func idOf(r adapters.Record) string {
	if r.ID != "" {
		return r.ID
	}
	for _, h := range r.Headers {
		if h.Key == headerPrefix+"id" {
			return string(h.Value)
		}
	}
	return ""
}
