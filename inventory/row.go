package inventory

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/triage"
	"github.com/spillway-mq/spillway/triage/signature"
)

// Item is a dead letter on its way into the inventory.
type Item struct {
	DeadLetter envelope.DeadLetter
	// Stream that it was collected from; may be empty.
	Stream string
	// At stands in for a time of failure that nobody knows: when the record was
	// written, say. Zero means now.
	At time.Time
}

// row is a dead letter as it is stored, and the facts that groups count.
type row struct {
	base                          string // the id before it was renamed, if it was
	renamed                       int    // times
	id, stream, document, headers string
	hash                          int64 // of id
	fingerprint, key, payload     []byte
	messageID, aggregate, keyHash any // hashes, or nil
	failed, collectedAt, purgedAt int64
	firstTried, gaveUp            time.Time // as the record says; zero if it does not

	consumer, topic string
	group           string
	entry           triage.Entry
	signature       signature.Signature // or that of those that are too many

	signed      signature.Signature // as the text is signed
	signedGroup string
}

// The most bytes of a text in an index, and of one that is only shown.
const (
	maxIndexed = 200
	maxShown   = 2000
)

// rowOf encodes an item. It takes the time of the collection, which is the
// latest time at which anything can have failed: a clock that is ahead would
// have it fail after every decision about it.
func rowOf(it *Item, now time.Time, signing signing) (row, error) {
	d := &it.DeadLetter
	if d.ID == "" {
		return row{}, fmt.Errorf("dead letter %q has no id", d.FailedMessage.ID)
	}
	f, m := d.Failure, d.FailedMessage
	// When it failed last. The first attempt says no more than that it was later.
	failed := first(f.FailedAt, it.At, now)
	r := row{
		id:          indexed(d.ID),
		stream:      indexed(it.Stream),
		fingerprint: fingerprint(d),
		key:         m.Key,
		payload:     m.Payload,
		messageID:   lookedUp(repaired(m.ID)),
		aggregate:   lookedUp(repaired(m.Aggregate)),
		keyHash:     lookedUp(string(m.Key)),
		failed:      nanos(earlier(failed, now)),
		collectedAt: nanos(now),
		firstTried:  first(f.FirstAttemptAt, f.FailedAt),
		gaveUp:      first(f.FailedAt, f.FirstAttemptAt),

		entry: entryOf(d, it.At),
	}
	r.entry.ID, r.consumer, r.topic = r.id, r.entry.Consumer, r.entry.Topic
	r.hash = hashOf(r.id)
	r.signature = signing.of(d, r.entry)
	r.group = triage.GroupID(r.entry.Key(r.signature))
	r.signed, r.signedGroup = r.signature, r.group

	headers, err := encodeHeaders(m.Headers)
	if err != nil {
		return row{}, err
	}
	rest := *d
	rest.FailedMessage.Headers = nil
	// What is empty stays there: a database may not tell empty from nothing.
	if len(m.Key) > 0 {
		rest.FailedMessage.Key = nil
	}
	if len(m.Payload) > 0 {
		rest.FailedMessage.Payload = nil
	}
	document, err := rest.MarshalJSON()
	if err != nil {
		return row{}, err
	}
	r.headers, r.document = string(headers), string(document)
	return r, nil
}

// entryOf returns what groups count of a dead letter, which failed at a time
// that stands in if it does not say when.
func entryOf(d *envelope.DeadLetter, at time.Time) triage.Entry {
	e := triage.EntryOf(*d)
	if e.FailedAt.IsZero() && e.FirstAttemptAt.IsZero() {
		e.FailedAt = at
	}
	e.Class, e.Version, e.Consumer, e.Topic = indexed(e.Class), indexed(e.Version), indexed(e.Consumer), indexed(e.Topic)
	e.Code, e.Aggregate, e.Text = plain(e.Code), plain(e.Aggregate), plain(e.Text)
	return e
}

// first returns the first time that is known.
func first(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// fingerprint is of what two copies of one dead letter share, however often
// they were handed off and by whom.
func fingerprint(d *envelope.DeadLetter) []byte {
	m := &d.FailedMessage
	h := sha256.New()
	var size [9]byte
	for _, part := range [][]byte{[]byte(d.ID), []byte(d.Source.Broker), []byte(d.Source.Topic), []byte(d.Consumer.Group), []byte(m.ID), m.Key, m.Payload} {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		size[8] = 0
		if part == nil {
			size[8] = 1
		}
		h.Write(size[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// rename gives r another id: its own belongs to another dead letter. The same
// record gets the same ids each time, and in the end one that nobody has.
func (r *row) rename() {
	if r.renamed == 0 {
		r.base = r.id
	}
	r.renamed++
	n := min(8*r.renamed, len(r.fingerprint))
	r.id = r.base + "~" + hex.EncodeToString(r.fingerprint[:n]) + strings.Repeat("~", r.renamed-n/8)
	r.hash = hashOf(r.id)
}

// failedAgain reports whether r is of attempts that began after its like was
// closed. Then somebody sent the original back, and nothing else tells the two
// dead letters apart. A record that comes again says of itself what it said.
func (r *row) failedAgain(closedAt int64, document string) bool {
	if !r.firstTried.After(timeOf(closedAt)) {
		return false
	}
	d, err := envelope.DecodeDeadLetter([]byte(document))
	return err != nil || !first(d.Failure.FailedAt, d.Failure.FirstAttemptAt).Equal(r.gaveUp)
}

// lookedUp is what an id is looked up by; nil for none.
func lookedUp(id string) any {
	if id == "" {
		return nil
	}
	return hashOf(id)
}

func hashOf(id string) int64 {
	sum := sha256.Sum256([]byte(id))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// indexed makes a text short enough for an index, and different ones stay so.
func indexed(s string) string {
	t := plain(s)
	if len(t) <= maxIndexed && t == s {
		return t
	}
	sum := sha256.Sum256([]byte(s))
	return cut(t, maxIndexed-18) + "~" + hex.EncodeToString(sum[:8])
}

func bounded(s string, most int) string { return cut(plain(s), most) }

// plain takes out what not every database stores in a text.
func plain(s string) string {
	s = repaired(s)
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}

// repaired puts U+FFFD in the place of each byte that is not UTF-8, as JSON does.
func repaired(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// header is a header as JSON, in the form that a dead letter has it.
type header struct {
	Key         string  `json:"key"`
	KeyBase64   []byte  `json:"keyBase64,omitempty"` // of a name that is not UTF-8
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Type        string  `json:"type,omitempty"`
}

func encodeHeaders(headers []adapters.Header) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	list := make([]header, len(headers))
	for i, h := range headers {
		list[i] = header{Key: h.Key, Type: h.Type}
		if !utf8.ValidString(h.Key) {
			list[i].KeyBase64 = []byte(h.Key)
		}
		switch {
		case h.Value == nil:
		case utf8.Valid(h.Value):
			list[i].Value = new(string(h.Value))
		default:
			list[i].ValueBase64 = h.Value
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(list)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func decodeHeaders(text string) ([]adapters.Header, error) {
	if text == "" {
		return nil, nil
	}
	var list []header
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	headers := make([]adapters.Header, len(list))
	for i, h := range list {
		headers[i] = adapters.Header{Key: h.Key, Value: h.ValueBase64, Type: h.Type}
		if h.KeyBase64 != nil {
			headers[i].Key = string(h.KeyBase64)
		}
		if h.Value != nil {
			headers[i].Value = []byte(*h.Value)
		}
	}
	return headers, nil
}
