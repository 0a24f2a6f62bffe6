package middleware

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/failure"
)

// StripAction is what [StripControlCharacters] does with what it finds.
type StripAction string

const (
	// StripRemove removes the character: the default.
	StripRemove StripAction = "remove"
	// StripReplace puts U+FFFD, the replacement character, in its place.
	StripReplace StripAction = "replace"
	// StripRefuse publishes nothing of the batch and returns an error.
	StripRefuse StripAction = "refuse"
)

// PayloadKind says how [StripControlCharacters] reads a payload.
type PayloadKind string

const (
	// PayloadUndeclared means that nothing is known: see [StripConfig].Undeclared.
	PayloadUndeclared PayloadKind = ""
	// PayloadText is text in which backslashes mean nothing.
	PayloadText PayloadKind = "text"
	// PayloadJSON is JSON, or several JSON values after one another, in which
	// characters may also be written as escapes.
	PayloadJSON PayloadKind = "json"
	// PayloadBinary is never touched.
	PayloadBinary PayloadKind = "binary"
)

// KindParams is what [StripConfig].Kind is asked about.
type KindParams struct {
	// Topic that the message is about to be published to.
	Topic string
	// Message to look at, not to change.
	Message *message.Message
}

// StripInfo is what [StripConfig].OnStrip is told.
type StripInfo struct {
	Topic     string
	MessageID string
	// Removed is how many characters were removed or replaced; at least 1.
	Removed int
}

// StripConfig configures [StripControlCharacters].
type StripConfig struct {
	// Action defaults to StripRemove.
	Action StripAction
	// ContentTypeKey is the metadata key that holds a payload's media type, in
	// any case of letters; default "content-type".
	ContentTypeKey string
	// Kind, if set, says what a payload is, before its media type is looked
	// at. PayloadUndeclared leaves the question to the media type.
	Kind func(ctx context.Context, p KindParams) PayloadKind
	// Undeclared is the kind of payloads of which neither Kind nor the media
	// type says what they are. The default, PayloadUndeclared, looks at the
	// payload: what would be valid JSON without its control characters is
	// JSON, what begins and ends like XML is text, and the rest is not
	// touched, because a small protobuf message can be valid UTF-8 and would
	// be destroyed. PayloadText is right where every payload is text.
	Undeclared PayloadKind
	// OnStrip, if set, is told of each message that was changed, before it is
	// published; a publish that fails and is tried again is told again. It
	// must be fast and safe for concurrent use.
	OnStrip func(ctx context.Context, info StripInfo)
}

// StripControlCharacters cleans text payloads before they are published, so
// that a control character in a free text field does not make a document that
// some consumer can neither read nor write. It makes a publisher decorator.
//
// It looks for C0 control characters except tab, line feed and carriage
// return, for DEL, for C1 control characters, and for U+FFFE and U+FFFF; in
// JSON also for their escapes (\u0000, \b, \f) and for surrogate escapes
// without their other half. All else stays as it is, byte for byte: numbers,
// order, white space and spelling of other escapes. Payloads that are not
// valid UTF-8, and those that [StripConfig] says are binary, are not touched.
// Neither is metadata.
//
// A message that needs no change is passed on as it is, without allocation.
// Others are copied, with their context. With StripRefuse the error names
// topic, message, code point and byte offset, and counts as permanent, class
// "serialization".
//
// The decorator fails when Action or Undeclared is not one of the constants.
func StripControlCharacters(cfg StripConfig) message.PublisherDecorator {
	cfg.Action = cmp.Or(cfg.Action, StripRemove)
	cfg.ContentTypeKey = cmp.Or(cfg.ContentTypeKey, "content-type")
	decorate := guard(cfg.strip)
	return func(pub message.Publisher) (message.Publisher, error) {
		if err := cfg.validate(); err != nil {
			return nil, err
		}
		return decorate(pub)
	}
}

func (cfg StripConfig) validate() error {
	var errs []error
	switch cfg.Action {
	case StripRemove, StripReplace, StripRefuse:
	default:
		errs = append(errs, fmt.Errorf("strip: Action is %q, not one of remove, replace, refuse", cfg.Action))
	}
	switch cfg.Undeclared {
	case PayloadUndeclared, PayloadText, PayloadJSON, PayloadBinary:
	default:
		errs = append(errs, fmt.Errorf("strip: Undeclared is %q, not one of text, json, binary", cfg.Undeclared))
	}
	return errors.Join(errs...)
}

func (cfg StripConfig) strip(topic string, messages []*message.Message) ([]*message.Message, error) {
	batch := messages
	for i, msg := range messages {
		kind := cfg.kind(topic, msg)
		clean, found := cleanPayload(msg.Payload, kind, cfg.Action == StripReplace)
		if found == 0 {
			continue
		}
		if cfg.Action == StripRefuse {
			c := firstControl(msg.Payload, kind)
			return nil, failure.Permanent(fmt.Errorf("strip: message %q for topic %q refused: character %U at byte %d of the payload",
				msg.UUID, topic, c.char, c.start), failure.ClassSerialization, failure.Code("CONTROL_CHARACTER"))
		}
		stripped := msg.CopyWithContext()
		stripped.Payload = clean
		batch = replaceMessage(batch, messages, i, stripped)
		if cfg.OnStrip != nil {
			cfg.OnStrip(msg.Context(), StripInfo{Topic: topic, MessageID: msg.UUID, Removed: found})
		}
	}
	return batch, nil
}

// guessedJSON is JSON as far as its first byte tells. It is only touched if
// the result is valid.
const guessedJSON PayloadKind = "guessed json"

// kind says how to read a payload; never PayloadUndeclared.
func (cfg StripConfig) kind(topic string, msg *message.Message) PayloadKind {
	kind := PayloadUndeclared
	if cfg.Kind != nil {
		kind = cfg.Kind(msg.Context(), KindParams{Topic: topic, Message: msg})
	}
	if kind == PayloadUndeclared {
		kind = kindOfMediaType(contentType(msg.Metadata, cfg.ContentTypeKey))
	}
	if kind == PayloadUndeclared {
		kind = cfg.Undeclared
	}
	if kind == PayloadUndeclared {
		kind = guessKind(msg.Payload)
	}
	return kind
}

func contentType(md message.Metadata, key string) string {
	if v, ok := md[key]; ok {
		return v
	}
	for k, v := range md {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return ""
}

// kindOfMediaType knows the media types that are certainly text or certainly
// not; of others it says PayloadUndeclared.
func kindOfMediaType(mediaType string) PayloadKind {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	top, sub, ok := strings.Cut(strings.TrimSpace(mediaType), "/")
	if !ok {
		return PayloadUndeclared
	}
	if i := strings.LastIndexByte(sub, '+'); i >= 0 {
		sub = sub[i+1:] // the structured syntax: cloudevents+json
	}
	switch {
	case equalFoldAny(sub, "json", "x-ndjson", "ndjson", "jsonl", "jsonlines", "x-jsonlines"):
		return PayloadJSON
	case equalFoldAny(top, "text"), equalFoldAny(sub, "xml", "yaml", "x-yaml", "toml", "csv", "javascript", "graphql", "sql", "x-www-form-urlencoded"):
		return PayloadText
	case equalFoldAny(top, "image", "audio", "video", "font"),
		// json-seq is here because its records begin with a control character.
		equalFoldAny(sub, "octet-stream", "json-seq", "protobuf", "x-protobuf", "proto", "x-proto", "avro", "x-avro", "cbor", "msgpack", "x-msgpack", "thrift", "x-thrift", "gzip", "zip", "zstd", "pdf", "parquet"):
		return PayloadBinary
	}
	return PayloadUndeclared
}

func equalFoldAny(s string, any ...string) bool {
	for _, a := range any {
		if strings.EqualFold(s, a) {
			return true
		}
	}
	return false
}

// guessKind looks at a payload of which nobody said what it is.
func guessKind(p []byte) PayloadKind {
	p = bytes.TrimSpace(p)
	if len(p) < 2 {
		return PayloadBinary
	}
	first, second, last := p[0], p[1]|0x20, p[len(p)-1]
	switch {
	case first == '{' && last == '}', first == '[' && last == ']', first == '"' && last == '"':
		return guessedJSON
	case first == '<' && last == '>' && ('a' <= second && second <= 'z' || p[1] == '?' || p[1] == '!' || p[1] == '_'):
		return PayloadText
	}
	return PayloadBinary
}

// cleanPayload returns p without its control characters, or with each of them
// replaced, and how many there were. It returns p itself if there were none,
// and never changes p.
func cleanPayload(p []byte, kind PayloadKind, replace bool) ([]byte, int) {
	if kind != PayloadText && kind != PayloadJSON && kind != guessedJSON {
		return p, 0
	}
	var forRaw, forEscape string
	if replace {
		forRaw, forEscape = "\uFFFD", `\ufffd`
	}
	clean, found := splice(p, nextControl, forRaw)
	if kind != PayloadText {
		// An escape that is none, such as \x or \u12, could become one when what
		// follows it is removed. Then p is no JSON, and its escapes stay.
		if c, n := splice(clean, nextControlEscape, forEscape); n > 0 && escapesWellFormed(clean) {
			clean, found = c, found+n
		}
	}
	if found == 0 || !utf8.Valid(p) || kind == guessedJSON && !json.Valid(clean) {
		return p, 0
	}
	return clean, found
}

// firstControl returns the first control character of a payload in which
// cleanPayload has found one.
func firstControl(p []byte, kind PayloadKind) control {
	first, ok := nextControl(p, 0)
	if kind == PayloadText {
		return first
	}
	if e, found := nextControlEscape(p, 0); found && (!ok || e.start < first.start) {
		return e
	}
	return first
}

// control is a control character, as p[start:end] spells it.
type control struct {
	start, end int
	char       rune
}

// splice puts with in the place of each control character that next finds.
func splice(p []byte, next func(p []byte, from int) (control, bool), with string) ([]byte, int) {
	c, ok := next(p, 0)
	if !ok {
		return p, 0
	}
	out := make([]byte, 0, len(p))
	from, n := 0, 0
	for ; ok; c, ok = next(p, from) {
		out = append(append(out, p[from:c.start]...), with...)
		from = c.end
		n++
	}
	return append(out, p[from:]...), n
}

// suspect marks the bytes with which an unwanted character can begin.
var suspect = func() (t [256]bool) {
	for r := range rune(0x80) {
		t[r] = unwanted(r)
	}
	t[0xC2] = true // C1: C2 80 to C2 9F
	t[0xEF] = true // U+FFFE and U+FFFF: EF BF BE and EF BF BF
	return t
}()

// unwanted reports whether r must not be in a text. Surrogates are asked about
// only where an escape has no other half.
func unwanted(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || 0x7F <= r && r <= 0x9F ||
		r == 0xFFFE || r == 0xFFFF || 0xD800 <= r && r <= 0xDFFF
}

// nextControl finds the next control character that stands for itself.
func nextControl(p []byte, from int) (control, bool) {
	for i := from; i < len(p); i++ {
		if !suspect[p[i]] {
			continue
		}
		if r, n := utf8.DecodeRune(p[i:]); unwanted(r) {
			return control{i, i + n, r}, true
		}
	}
	return control{}, false
}

// nextControlEscape finds the next escape of a control character, and the next
// surrogate that has no other half. A backslash is always the start of an
// escape: outside of strings JSON has none.
func nextControlEscape(p []byte, from int) (control, bool) {
	for i := from; i < len(p); {
		skip := bytes.IndexByte(p[i:], '\\')
		if skip < 0 {
			break
		}
		i += skip
		r, n := escape(p[i:])
		if n > 0 && unwanted(r) {
			return control{i, i + n, r}, true
		}
		i += cmp.Or(n, 2)
	}
	return control{}, false
}

func escapesWellFormed(p []byte) bool {
	for {
		i := bytes.IndexByte(p, '\\')
		if i < 0 {
			return true
		}
		_, n := escape(p[i:])
		if n == 0 {
			return false
		}
		p = p[i+n:]
	}
}

// escape reads the JSON escape, or the pair of surrogate escapes, with which p
// begins, and returns its length; zero if it is none.
func escape(p []byte) (rune, int) {
	if len(p) < 2 {
		return 0, 0
	}
	switch p[1] {
	case '"', '\\', '/':
		return rune(p[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	high, ok := escapedUnit(p)
	if !ok {
		return 0, 0
	}
	if low, ok := escapedUnit(p[6:]); ok {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, 12
		}
	}
	return high, 6
}

// escapedUnit reads the UTF-16 code unit that p begins with, as \uXXXX.
func escapedUnit(p []byte) (rune, bool) {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	var unit [2]byte
	if _, err := hex.Decode(unit[:], p[2:6]); err != nil {
		return 0, false
	}
	return rune(unit[0])<<8 | rune(unit[1]), true
}
