package triage

import (
	"crypto/sha256"
	"encoding/base32"
	"io"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/triage/signature"
)

// Aggregate is everything that is kept of one triage group. It is updated with
// each dead letter, merged with the aggregate of the same group from elsewhere,
// and stored as JSON; its size has a bound. Counts are exact. An Aggregate is
// not safe for concurrent use.
type Aggregate struct {
	Class       string `json:"class"`
	Version     string `json:"consumerVersion"`
	SignatureID string `json:"signatureId"`
	Signature   string `json:"signature"` // the normalised text, of one of the texts

	Count int64 `json:"count"`
	// FirstSeen and LastSeen are of first attempts, and zero where no time is
	// known.
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
	// LastFailed is the latest time of a failure, which is what is compared
	// with the time of a disposition.
	LastFailed time.Time `json:"lastFailed,omitzero"`
	// Timeline is of first attempts.
	Timeline Timeline `json:"timeline"`

	Codes      Names  `json:"codes"`
	Consumers  Names  `json:"consumers"`
	Topics     Names  `json:"topics"`
	Aggregates Names  `json:"aggregates"`
	Sample     Sample `json:"sample"`
}

// Sample is one dead letter of a group: the one that failed last.
type Sample struct {
	ID        string    `json:"deadLetterId,omitempty"`
	Text      string    `json:"message"` // of the error, cut at 500 runes; not redacted
	Code      string    `json:"code,omitempty"`
	Topic     string    `json:"topic,omitempty"`
	Aggregate string    `json:"aggregate,omitempty"`
	TraceID   string    `json:"traceId,omitempty"`
	FailedAt  time.Time `json:"failedAt,omitzero"`
}

// NewAggregate returns the empty aggregate of the group of e.
func NewAggregate(e Entry, s signature.Signature) *Aggregate {
	k := e.Key(s)
	return &Aggregate{
		Class:       strings.Clone(k.Class),
		Version:     strings.Clone(k.Version),
		SignatureID: s.ID,
		Signature:   s.Text,
	}
}

// Key returns the key of the group.
func (a *Aggregate) Key() Key { return Key{a.Class, a.Version, a.SignatureID} }

// ID returns the id of the group, by which people name it.
func (a *Aggregate) ID() string { return GroupID(a.Key()) }

// GroupID returns the id of the group with this key: g and 12 characters, the
// same wherever and whenever it is made.
func GroupID(k Key) string {
	h := sha256.New()
	for _, part := range [...]string{k.Class, k.Version, k.SignatureID} {
		_, _ = io.WriteString(h, part)
		_, _ = h.Write([]byte{0})
	}
	return "g" + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:8])[:12])
}

// Add counts a dead letter, which must belong to the group. It keeps no part
// of the texts of e: it copies what it needs.
func (a *Aggregate) Add(e Entry) {
	if a.count(e) {
		a.Sample = newSample(e, a.LastFailed)
	}
}

// count is Add without the sample, and reports whether e is a newer one.
func (a *Aggregate) count(e Entry) (newest bool) {
	a.Count++
	if t := writable(e.at()); !t.IsZero() {
		if a.FirstSeen.IsZero() || t.Before(a.FirstSeen) {
			a.FirstSeen = t.UTC()
		}
		if a.LastSeen.IsZero() || t.After(a.LastSeen) {
			a.LastSeen = t.UTC()
		}
		a.Timeline.Add(t, 1)
	}
	a.Codes.Add(e.Code, 1)
	a.Consumers.Add(e.Consumer, 1)
	a.Topics.Add(e.Topic, 1)
	a.Aggregates.Add(e.Aggregate, 1)
	failed := e.FailedAt
	if failed.IsZero() {
		failed = e.FirstAttemptAt
	}
	failed = writable(failed)
	if a.Count > 1 && !failed.After(a.LastFailed) {
		return false
	}
	a.LastFailed = failed.UTC()
	return true
}

// writable returns the zero time for one that JSON has no form for: such a time
// is none, and must not keep the others from being stored.
func writable(t time.Time) time.Time {
	if s := t.Unix(); s < firstSecond || s > lastSecond {
		return time.Time{}
	}
	return t
}

// The seconds of the years 1 to 9999.
const firstSecond, lastSecond = -62135596800, 253402300799

func newSample(e Entry, failedAt time.Time) Sample {
	var b sampleBuffer
	b.set(e)
	return b.sample(failedAt)
}

// Merge adds all dead letters of other, an aggregate of the same group, which
// does not change. No dead letter may be in both.
func (a *Aggregate) Merge(other *Aggregate) {
	if other.Count == 0 {
		return
	}
	if a.Count == 0 || other.LastFailed.After(a.LastFailed) {
		a.LastFailed, a.Sample = other.LastFailed, other.Sample
	}
	a.Count += other.Count
	if !other.FirstSeen.IsZero() && (a.FirstSeen.IsZero() || other.FirstSeen.Before(a.FirstSeen)) {
		a.FirstSeen = other.FirstSeen
	}
	if other.LastSeen.After(a.LastSeen) {
		a.LastSeen = other.LastSeen
	}
	a.Timeline.Merge(other.Timeline)
	a.Codes.Merge(other.Codes)
	a.Consumers.Merge(other.Consumers)
	a.Topics.Merge(other.Topics)
	a.Aggregates.Merge(other.Aggregates)
}
