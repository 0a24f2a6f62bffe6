package triage

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// decoder reads what triage needs of a dead letter in JSON. It gives the same
// entries and errors as [envelope.DecodeDeadLetter], which it asks about
// everything that is not plain: it only takes the short way where that is safe.
// An object in no form that is known has class unknown, as such a record of a
// stream does.
type decoder struct {
	s   string
	b   []byte // the same
	i   int
	odd bool // something needs the long way
}

// decode reads one dead letter, which it is given twice. Texts of the entry may
// be parts of line.
func (d *decoder) decode(line string, same []byte) (Entry, error) {
	if e, ok := d.short(line, same); ok {
		return e, nil
	}
	dl, err := envelope.DecodeDeadLetter(same)
	switch {
	case errors.Is(err, envelope.ErrUnknownForm) && strings.Contains(line, "{"):
		return Entry{Class: Unknown, Text: cmp.Or(foreign.ErrorIn(same), foreign.NoEvidence)}, nil
	case err != nil:
		return Entry{}, err
	}
	return EntryOf(dl), nil
}

// The fields of the top level, as bits: a field that is there twice needs the
// long way.
const (
	hasID = 1 << iota
	hasFailedMessage
	hasFailure
	hasSource
	hasConsumer
	hasProducer
	hasTraceID
	hasReference
	hasReplay
	hasPayload
	hasPayloadBase64
	hasErrorClass
	hasErrorMessage
	hasConsumerVersion
	hasAttempts
	hasFirstAttemptAt
	hasDeadLetteredAt
)

// short is the short way. It declines what it does not know.
func (d *decoder) short(line string, same []byte) (Entry, bool) {
	d.s, d.b, d.i, d.odd = line, same, 0, false
	var (
		e, flat       Entry
		message       Entry // of failedMessage, if that is an object
		messageOdd    bool
		source        string
		sourceOdd     bool
		consumer      Entry
		consumerOdd   bool
		ownOdd, found int
	)
	ok := d.object(func(name string) bool {
		bit := 0
		var text *string
		switch name {
		case "deadLetterId":
			bit, text = hasID, &e.ID
		case "traceId":
			bit, text = hasTraceID, &e.TraceID
		case "errorClass":
			bit, text = hasErrorClass, &flat.Class
		case "errorMessage":
			bit, text = hasErrorMessage, &flat.Text
		case "consumerVersion":
			bit, text = hasConsumerVersion, &flat.Version
		case "failedMessage":
			bit = hasFailedMessage
			messageOdd = !d.group(d.failedMessage(&message))
		case "failure":
			bit = hasFailure
			if !d.group(d.failure(&e)) {
				d.odd = true
			}
		case "source":
			bit = hasSource
			sourceOdd = !d.source(&source)
		case "consumer":
			bit = hasConsumer
			consumerOdd = !d.group(d.consumer(&consumer))
		case "producer":
			bit = hasProducer
			if !d.group(d.texts("version", "schemaVersion")) {
				ownOdd = 1
			}
		case "replay":
			bit = hasReplay
			if !d.group(d.replay) {
				ownOdd = 1
			}
		case "reference":
			bit = hasReference
			if !d.isText() {
				ownOdd = 1
			}
			return d.once(&found, bit) && d.skip(0)
		case "payload":
			bit = hasPayload
			return d.once(&found, bit) && d.skip(0)
		case "payloadBase64":
			bit = hasPayloadBase64
			return d.once(&found, bit) && d.base64()
		case "attempts":
			bit = hasAttempts
			return d.once(&found, bit) && d.count(6)
		case "firstAttemptAt":
			bit = hasFirstAttemptAt
			return d.once(&found, bit) && d.time(&flat.FirstAttemptAt)
		case "deadLetteredAt":
			bit = hasDeadLetteredAt
			return d.once(&found, bit) && d.time(&flat.FailedAt)
		default:
			return d.skip(0)
		}
		if text != nil {
			return d.once(&found, bit) && d.text(text)
		}
		return d.once(&found, bit)
	})
	if !ok || d.odd || d.blank() || d.i != len(d.s) {
		return Entry{}, false
	}
	switch {
	case found&hasID != 0 && found&hasFailedMessage != 0:
		if messageOdd || sourceOdd || consumerOdd || ownOdd != 0 {
			return Entry{}, false
		}
		e.Topic, e.Aggregate, e.Consumer, e.Version = source, message.Aggregate, consumer.Consumer, consumer.Version
	case found&hasFailedMessage != 0:
		if sourceOdd {
			return Entry{}, false
		}
		e.Topic = source
		if e.Class == "" {
			e.Class = string(failure.ClassUnknown)
		}
	case found&(hasPayload|hasPayloadBase64|hasErrorClass|hasErrorMessage) != 0:
		flat.ID, flat.TraceID = e.ID, e.TraceID
		e = flat
		if e.Class == "" {
			e.Class = string(failure.ClassUnknown)
		}
	default:
		return Entry{}, false
	}
	if e.FirstAttemptAt.IsZero() {
		e.FirstAttemptAt = e.FailedAt
	}
	return e, true
}

// once marks a field as found, and declines it the second time.
func (d *decoder) once(found *int, bit int) bool {
	twice := *found&bit != 0
	*found |= bit
	return !twice
}

// group reads an object with fields. What is no object, or odd in it, is
// reported, and skipped: whether it matters depends on the form.
func (d *decoder) group(field func(name string) bool) bool {
	start, outer := d.i, d.odd
	d.odd = false
	ok := d.object(field) && !d.odd
	d.odd = outer
	if !ok {
		d.i = start
		if !d.skip(0) {
			d.odd = true
		}
	}
	return ok
}

func (d *decoder) failedMessage(e *Entry) func(string) bool {
	found := 0
	return func(name string) bool {
		switch name {
		case "aggregate":
			return d.once(&found, 1) && d.text(&e.Aggregate)
		case "id":
			return d.once(&found, 2) && d.isText() && d.skip(0)
		case "type":
			return d.once(&found, 4) && d.isText() && d.skip(0)
		case "headers":
			return d.once(&found, 8) && d.headers()
		case "droppedHeaders":
			return d.once(&found, 16) && d.list(func() bool {
				d.blank()
				return d.isText() && d.skip(0)
			})
		case "keyBase64", "payloadBase64":
			return d.base64()
		}
		return d.skip(0)
	}
}

// headers accepts a list of {key, value, type} in texts, and any object.
func (d *decoder) headers() bool {
	d.blank()
	if d.at() == '{' {
		return d.skip(0)
	}
	return d.list(func() bool {
		found := 0
		return d.object(func(name string) bool {
			switch name {
			case "key":
				return d.once(&found, 1) && d.isText() && d.skip(0)
			case "value":
				return d.skip(0)
			case "type":
				return d.once(&found, 2) && d.isText() && d.skip(0)
			case "valueBase64":
				return d.base64()
			}
			return d.skip(0)
		}) && found&1 != 0
	})
}

func (d *decoder) failure(e *Entry) func(string) bool {
	found := 0
	return func(name string) bool {
		switch name {
		case "class":
			return d.once(&found, 1) && d.text(&e.Class)
		case "code":
			return d.once(&found, 2) && d.text(&e.Code)
		case "message":
			return d.once(&found, 4) && d.text(&e.Text)
		case "firstAttemptAt":
			return d.once(&found, 8) && d.time(&e.FirstAttemptAt)
		case "failedAt":
			return d.once(&found, 16) && d.time(&e.FailedAt)
		case "nature":
			return d.once(&found, 32) && d.isText() && d.skip(0)
		case "reason":
			return d.once(&found, 64) && d.isText() && d.skip(0)
		case "truncated":
			return d.once(&found, 128) && d.isBool() && d.skip(0)
		case "attempts":
			return d.once(&found, 256) && d.count(6)
		}
		return d.skip(0)
	}
}

// source reads the topic of a source, which may be the topic alone.
func (d *decoder) source(topic *string) bool {
	d.blank()
	if d.at() == '"' {
		if !d.text(topic) {
			d.odd = true
		}
		return true
	}
	found := 0
	var at time.Time
	return d.group(func(name string) bool {
		switch name {
		case "topic":
			return d.once(&found, 1) && d.text(topic)
		case "broker":
			return d.once(&found, 2) && d.isText() && d.skip(0)
		case "partition":
			return d.once(&found, 4) && d.count(9)
		case "offset":
			return d.once(&found, 8) && d.count(18)
		case "timestamp":
			return d.once(&found, 16) && d.time(&at)
		}
		return d.skip(0)
	})
}

func (d *decoder) consumer(e *Entry) func(string) bool {
	found := 0
	return func(name string) bool {
		switch name {
		case "group":
			return d.once(&found, 1) && d.text(&e.Consumer)
		case "version":
			return d.once(&found, 2) && d.text(&e.Version)
		case "handler":
			return d.once(&found, 4) && d.isText() && d.skip(0)
		}
		return d.skip(0)
	}
}

// texts accepts an object in which the named fields are texts.
func (d *decoder) texts(names ...string) func(string) bool {
	return func(name string) bool {
		for _, n := range names {
			if n == name {
				return d.isText() && d.skip(0)
			}
		}
		return d.skip(0)
	}
}

func (d *decoder) replay(name string) bool {
	switch name {
	case "id", "of", "reason":
		return d.isText() && d.skip(0)
	case "count":
		return d.count(6)
	}
	return d.skip(0)
}

// What follows reads JSON. All return false for what is not valid, and for
// what they leave to the long way.

func (d *decoder) at() byte {
	if d.i < len(d.s) {
		return d.s[d.i]
	}
	return 0
}

// blank skips blanks. It returns false, so that it can stand in conditions.
func (d *decoder) blank() bool {
	for d.i < len(d.s) {
		switch d.s[d.i] {
		case ' ', '\t', '\r', '\n':
			d.i++
		default:
			return false
		}
	}
	return false
}

// object calls field with each name, at its value.
func (d *decoder) object(field func(name string) bool) bool {
	if d.blank(); d.at() != '{' {
		return false
	}
	d.i++
	if d.blank(); d.at() == '}' {
		d.i++
		return true
	}
	for {
		d.blank()
		name, plain, ok := d.string()
		if !ok || !plain {
			return false
		}
		if d.blank(); d.at() != ':' {
			return false
		}
		d.i++
		if d.blank(); !field(name) {
			return false
		}
		d.blank()
		switch d.at() {
		case ',':
			d.i++
		case '}':
			d.i++
			return true
		default:
			return false
		}
	}
}

// list calls element at each element.
func (d *decoder) list(element func() bool) bool {
	if d.blank(); d.at() != '[' {
		return false
	}
	d.i++
	if d.blank(); d.at() == ']' {
		d.i++
		return true
	}
	for {
		if !element() {
			return false
		}
		d.blank()
		switch d.at() {
		case ',':
			d.i++
		case ']':
			d.i++
			return true
		default:
			return false
		}
	}
}

// stops are the bytes at which the scan of a string stops.
var stops = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// string reads a string as it stands. plain is false if it has escapes.
func (d *decoder) string() (raw string, plain, ok bool) {
	if d.at() != '"' {
		return "", false, false
	}
	s, i := d.s, d.i+1
	start, plain := i, true
	for {
		i = nextStop(d.b, i)
		if i >= len(s) {
			return "", false, false
		}
		switch s[i] {
		case '"':
			d.i = i + 1
			return s[start:i], plain, true
		case '\\':
			plain = false
			if i++; i >= len(s) {
				return "", false, false
			}
			switch s[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i++
			case 'u':
				if i+4 >= len(s) {
					return "", false, false
				}
				for k := 1; k <= 4; k++ {
					if unhex(s[i+k]) < 0 {
						return "", false, false
					}
				}
				i += 5
			default:
				return "", false, false
			}
		default:
			return "", false, false
		}
	}
}

// nextStop returns the next byte at which the scan of a string stops, or
// len(b). It looks at eight bytes at once.
func nextStop(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quotes, escapes := w^ones*'"', w^ones*'\\'
		// The lowest bit that is set stands in the first byte that is below 0x20,
		// a quotation mark or a backslash.
		found := ((w-ones*0x20)&^w | (quotes-ones)&^quotes | (escapes-ones)&^escapes) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if stops[b[i]] {
			return i
		}
	}
	return i
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// text reads a string. Anything else takes the long way.
func (d *decoder) text(to *string) bool {
	start := d.i
	raw, plain, ok := d.string()
	switch {
	case !ok:
		return false
	case plain && isASCII(raw), plain && utf8.ValidString(raw):
		*to = raw
	case utf8.ValidString(raw):
		*to = unescape(raw)
	default:
		if err := json.Unmarshal([]byte(d.s[start:d.i]), to); err != nil {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// unescape undoes the escapes of a string, which are valid.
func unescape(raw string) string {
	var b strings.Builder
	b.Grow(len(raw))
	for {
		i := strings.IndexByte(raw, '\\')
		if i < 0 {
			b.WriteString(raw)
			return b.String()
		}
		b.WriteString(raw[:i])
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					low = hex4(raw[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					raw = raw[6:]
				}
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
		}
	}
}

func hex4(s string) (r rune) {
	for i := range 4 {
		r = r<<4 | rune(unhex(s[i]))
	}
	return r
}

func (d *decoder) isText() bool { return d.at() == '"' }
func (d *decoder) isBool() bool { return d.at() == 't' || d.at() == 'f' }

// count accepts a whole number with at most so many digits.
func (d *decoder) count(most int) bool {
	start := d.i
	for d.i < len(d.s) && d.s[d.i] >= '0' && d.s[d.i] <= '9' {
		d.i++
	}
	n := d.i - start
	if n == 0 || n > most || n > 1 && d.s[start] == '0' {
		return false
	}
	switch d.at() {
	case ',', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// base64 accepts text in base64 beyond doubt.
func (d *decoder) base64() bool {
	raw, plain, ok := d.string()
	if !ok || !plain || len(raw)%4 != 0 {
		return false
	}
	for pad := 0; pad < 2 && strings.HasSuffix(raw, "="); pad++ {
		raw = raw[:len(raw)-1]
	}
	for i := range len(raw) {
		c := raw[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/') {
			return false
		}
	}
	return true
}

// time reads a time in UTC: 2006-01-02T15:04:05.999999999Z.
func (d *decoder) time(to *time.Time) bool {
	raw, plain, ok := d.string()
	if !ok || !plain {
		return false
	}
	t, ok := utcTime(raw)
	if !ok {
		parsed, err := time.Parse(time.RFC3339, raw)
		if err != nil || parsed.Year() < 2 || parsed.Year() > 9998 {
			return false
		}
		t = parsed.UTC()
	}
	*to = t
	return true
}

func utcTime(s string) (time.Time, bool) {
	if len(s) < 20 || len(s) > 30 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[len(s)-1] != 'Z' {
		return time.Time{}, false
	}
	number := func(from, to int) int {
		n := 0
		for _, c := range []byte(s[from:to]) {
			if c < '0' || c > '9' {
				return -1
			}
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := number(0, 4), number(5, 7), number(8, 10)
	hour, minute, second := number(11, 13), number(14, 16), number(17, 19)
	if year < 2 || month < 1 || month > 12 || day < 1 || day > 28 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 {
		return time.Time{}, false // or the end of a month
	}
	nanos := 0
	if len(s) > 20 {
		if s[19] != '.' || len(s) == 21 {
			return time.Time{}, false
		}
		if nanos = number(20, len(s)-1); nanos < 0 {
			return time.Time{}, false
		}
		for n := len(s) - 21; n < 9; n++ {
			nanos *= 10
		}
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC), true
}

// maxDepth is how deep the short way goes.
const maxDepth = 64

// skip passes over a valid value.
func (d *decoder) skip(depth int) bool {
	if depth > maxDepth {
		return false
	}
	d.blank()
	switch c := d.at(); {
	case c == '"':
		_, _, ok := d.string()
		return ok
	case c == '{':
		d.i++
		if d.blank(); d.at() == '}' {
			d.i++
			return true
		}
		for {
			d.blank()
			if _, _, ok := d.string(); !ok {
				return false
			}
			if d.blank(); d.at() != ':' {
				return false
			}
			d.i++
			if !d.skip(depth + 1) {
				return false
			}
			d.blank()
			switch d.at() {
			case ',':
				d.i++
			case '}':
				d.i++
				return true
			default:
				return false
			}
		}
	case c == '[':
		return d.list(func() bool { return d.skip(depth + 1) })
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	}
	for _, name := range [...]string{"true", "false", "null"} {
		if strings.HasPrefix(d.s[d.i:], name) {
			d.i += len(name)
			return true
		}
	}
	return false
}

// number passes over a valid number.
func (d *decoder) number() bool {
	digits := func() bool {
		start := d.i
		for d.i < len(d.s) && d.s[d.i] >= '0' && d.s[d.i] <= '9' {
			d.i++
		}
		return d.i > start
	}
	if d.at() == '-' {
		d.i++
	}
	if d.at() == '0' {
		d.i++
	} else if !digits() {
		return false
	}
	if d.at() == '.' {
		d.i++
		if !digits() {
			return false
		}
	}
	if d.at()|0x20 == 'e' {
		d.i++
		if d.at() == '+' || d.at() == '-' {
			d.i++
		}
		if !digits() {
			return false
		}
	}
	return true
}
