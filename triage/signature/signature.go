package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"hash/maphash"
	"sync"
	"unicode/utf8"
)

// Version is that of the rules. It begins every id.
const Version = "s1"

// NoText is the normalised text of a text in which there is nothing.
const NoText = "(no text)"

const (
	// maxTitle is where the normalised text is cut, in runes.
	maxTitle = 300
	// maxKey is how much of the normalised text makes the id, in runes.
	maxKey = 120
)

// Signature is an error text without its variable parts.
type Signature struct {
	// ID is the same for texts that differ only in what varies: the version,
	// a colon and 16 characters.
	ID string
	// Text is the normalised text, for people, at most 300 runes of it. Texts
	// with the same ID can differ here in the kind of a placeholder, as where
	// one has a number and the other a hexadecimal one.
	Text string
}

// Of returns the signature of an error text.
func Of(text string) Signature {
	s := signers.Get().(*Signer)
	defer signers.Put(s)
	s.Sign(text)
	return s.Signature()
}

var signers = sync.Pool{New: func() any { return new(Signer) }}

// Signer makes signatures of many texts with little memory. Its zero value is
// ready. It is not safe for concurrent use.
type Signer struct {
	scanner scanner
	text    []byte // prepared
	out     []byte // normalised, not folded
	title   []byte
	hashed  []byte
	latest  [64]made // by a hash of what was normalised
}

// made is a signature with the normalised text that it was made of. Most texts
// are of a few causes.
type made struct {
	out string
	Signature
}

// Sign normalises a text and returns its key: equal keys mean equal ids. The
// key is valid until the next call.
func (s *Signer) Sign(text string) (key []byte) {
	c := &s.scanner
	s.text = prepare(s.text, text)
	c.out, c.depth = c.out[:0], 0
	c.scan(s.text)
	out := trim(c.out)
	if len(out) == 0 {
		out = append(c.out[:0], NoText...)
	}
	s.out = out
	c.key = fold(c.key[:0], out, true)
	return cutKey(c.key)
}

// Signature returns the signature of the text that was signed last.
func (s *Signer) Signature() Signature {
	m := &s.latest[maphash.Bytes(seed, s.out)%uint64(len(s.latest))]
	if m.out != string(s.out) {
		*m = made{string(s.out), s.sum()}
	}
	return m.Signature
}

var seed = maphash.MakeSeed()

func (s *Signer) sum() Signature {
	s.title = fold(s.title[:0], s.out, false)
	s.hashed = append(append(s.hashed[:0], Version+"\x00"...), cutKey(s.scanner.key)...)
	digest := sha256.Sum256(s.hashed)
	id := append(make([]byte, 0, len(Version)+1+16), Version+":"...)
	return Signature{
		ID:   string(idEncoding.AppendEncode(id, digest[:10])),
		Text: cutTitle(s.title),
	}
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567")

// Explain returns the signature of a text, and what was replaced to make it,
// from left to right.
func Explain(text string) (Signature, []Replacement) {
	s := Signer{scanner: scanner{explain: true}}
	s.Sign(text)
	return s.Signature(), s.scanner.made
}

// trim removes the punctuation and the blanks around a text.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '.' || b[0] == ',' || b[0] == ':' || b[0] == ';') {
		b = b[1:]
	}
	for n := len(b); n > 0; n-- {
		switch b[n-1] {
		case ' ', '.', ',', ':', ';', '!', '|':
			b = b[:n-1]
			continue
		}
		break
	}
	return b
}

// fold copies src and makes one of several equal placeholders in a row, with
// blanks, commas and semicolons between, also where each has the same prefix:
// how many there are must not matter. For the key, all kinds of values count
// as numbers, whatever stands between them, and the sign for several is left
// out, so that a list of one is like a list of two.
func fold(dst, src []byte, forKey bool) []byte {
	unit := len(dst)             // where the current word begins
	lastStart, lastEnd := -1, -1 // the last word that ended in a placeholder
	var afterLast int            // dst ends here if nothing followed it
	for i := 0; i < len(src); i++ {
		run := bytes.IndexByte(src[i:], '<')
		if run < 0 {
			return append(dst, src[i:]...)
		}
		dst = append(dst, src[i:i+run]...)
		for k := len(dst); k > unit; k-- {
			if breaks[dst[k-1]] {
				unit = k
				break
			}
		}
		i += run
		end := placeholderAt(src, i)
		if end == i {
			dst = append(dst, '<')
			unit = len(dst)
			continue
		}
		ph := src[i:end]
		i = end - 1
		if forKey {
			ph = valueKind(ph)
			// Values with only marks between them are one.
			if n := lastEnd; n >= 0 && n == afterLast && len(dst)-n <= 3 && len(dst) >= n && onlyMarks(dst[n:]) && string(ph) == phNumber && string(dst[max(n-len(phNumber), 0):n]) == phNumber {
				dst = dst[:n]
				unit = min(unit, n)
				continue
			}
		}
		dst = append(dst, ph...)
		if lastEnd >= 0 && unit > lastEnd && unit-lastEnd <= 3 && isListGap(dst[lastEnd:unit]) && sameUnit(dst[lastStart:lastEnd], dst[unit:]) {
			dst = dst[:lastEnd]
			if !forKey && dst[lastEnd-1] != '+' {
				dst = append(dst, '+')
				lastEnd++
			}
			unit, afterLast = lastStart, lastEnd
			continue
		}
		lastStart, lastEnd, afterLast = unit, len(dst), len(dst)
	}
	return dst
}

// sameUnit compares words, the first of which may have the sign for several.
func sameUnit(a, b []byte) bool {
	if n := len(a); n > 0 && a[n-1] == '+' {
		a = a[:n-1]
	}
	return string(a) == string(b)
}

// breaks holds what words are between.
var breaks = bytesOf(" ,;([{|=:<")

func isListGap(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != ',' && c != ';' {
			return false
		}
	}
	return len(b) > 0
}

// onlyMarks reports whether there are no letters, and no brackets.
func onlyMarks(b []byte) bool {
	for _, c := range b {
		switch c {
		case ' ', ',', ';', '_', '-', '.', ':', '/', '#', '+', '*', '~', '@':
		default:
			return false
		}
	}
	return true
}

// valueKind is the placeholder by which the key takes one: whether an id came
// out as digits or as hexadecimal is chance.
func valueKind(ph []byte) []byte {
	switch string(ph) {
	case phID, phUUID, phHex, phAddr, phHost, phTime, phDuration, phSize, phEmail, phQuoted:
		return []byte(phNumber)
	}
	return ph
}

// cutKey cuts at a blank.
func cutKey(key []byte) []byte {
	if len(key) <= maxKey {
		return key
	}
	n, blank := 0, 0
	for i := 0; i < len(key); {
		if n == maxKey {
			if blank > 0 {
				return key[:blank]
			}
			return key[:i]
		}
		switch c := key[i]; {
		case c == ' ':
			blank = i
			i++
		case c < utf8.RuneSelf:
			i++
		default:
			_, size := utf8.DecodeRune(key[i:])
			i += size
		}
		n++
	}
	return key
}

func cutTitle(title []byte) string {
	if len(title) <= maxTitle {
		return string(title)
	}
	n := 0
	for i := 0; i < len(title); n++ {
		if n == maxTitle-1 && utf8.RuneCount(title[i:]) > 1 {
			return string(title[:i]) + "…"
		}
		_, size := utf8.DecodeRune(title[i:])
		i += size
	}
	return string(title)
}
