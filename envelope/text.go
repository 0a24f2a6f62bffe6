package envelope

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrorText returns s as it is kept in a message: at most [MaxErrorRunes]
// runes of valid UTF-8, in which control characters other than tab, line feed
// and carriage return are U+FFFD, because brokers refuse them. Redact before,
// never after: half of a secret is not recognised.
func ErrorText(s string) (text string, truncated bool) {
	return clean(s, MaxErrorRunes, paragraph)
}

// name returns s as names, ids and other short texts are kept in a message.
func name(s string) string {
	text, _ := clean(s, MaxTextRunes, line)
	return text
}

// clean returns at most limit runes of s, cut on a rune boundary and mapped, and
// whether anything was cut. Each byte that is not UTF-8 counts as one rune and
// becomes U+FFFD. A limit of zero or less keeps nothing.
func clean(s string, limit int, mapping func(rune) rune) (text string, cut bool) {
	if len(s) <= limit && isPlain(s) {
		return s, false // nearly always
	}
	if len(s) > max(limit, 0) {
		n := 0
		for i := range s {
			if n >= limit {
				s, cut = strings.Clone(s[:i]), true // let go of the rest
				break
			}
			n++
		}
	}
	// Map also repairs: it sees each invalid byte as U+FFFD and writes that.
	return strings.Map(mapping, s), cut
}

// isPlain reports whether s is printable ASCII.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// paragraph maps what may stand in a text of several lines.
func paragraph(r rune) rune {
	if r == '\t' || r == '\n' || r == '\r' {
		return r
	}
	return line(r)
}

// line maps what may stand in a text of one line. U+FFFE and U+FFFF are no
// control characters, but no XML either, which is what SQS accepts.
func line(r rune) rune {
	if unicode.IsControl(r) || r == 0xFFFE || r == 0xFFFF {
		return utf8.RuneError
	}
	return r
}

// cutBytes returns at most n bytes of s, cut on a rune boundary.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// timeLayout has fixed decimals, so that written times sort as text.
const timeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// formatTime returns "" for a time that has no written form.
func formatTime(t time.Time) string {
	t = sane(t)
	if t.IsZero() {
		return ""
	}
	return t.Format(timeLayout)
}

// parseTime accepts RFC 3339 with any number of decimals, in either case.
func parseTime(s string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, strings.ToUpper(s))
	if err != nil {
		return time.Time{}, false
	}
	return sane(t), true
}

// sane returns t in UTC, without its monotonic clock, and the zero time for
// years that RFC 3339 cannot write; an offset can push a readable time there.
func sane(t time.Time) time.Time {
	t = t.UTC().Round(0)
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}
