package signature

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxRunes is how much of a text is looked at: as much as a dead letter
	// keeps of it, so that the whole text and the kept part sign alike.
	maxRunes = 500
	// maxLines is how many lines that are not empty are looked at: joined errors
	// put their causes on lines of their own.
	maxLines = 3
	// lineBreak stands between them.
	lineBreak = " | "
)

// prepare returns, in buf, what of a text is looked at, as one line of valid
// UTF-8: without colours, stack traces and control characters.
func prepare(buf []byte, text string) []byte {
	text = unquoted(firstRunes(text))
	if buf = append(buf[:0], text...); isPlain(buf) {
		return buf
	}
	buf = buf[:0]

	lines := 0
	traceback := false
	for start := 0; start < len(text) && lines < maxLines; {
		end := start
		for end < len(text) && text[end] != '\n' && text[end] != '\r' {
			end++
		}
		line := text[start:end]
		start = end + 1

		mark := len(buf)
		if lines > 0 {
			buf = append(buf, lineBreak...)
		}
		begin := len(buf)
		buf = appendLine(buf, line)
		content := bytes.TrimSpace(buf[begin:])
		indented := line != "" && (line[0] == ' ' || line[0] == '\t')
		switch {
		case isDump(content) && lines > 0:
			return buf[:mark]
		case len(content) == 0, isDump(content), isFrame(content), traceback && indented:
			buf = buf[:mark]
		case bytes.HasPrefix(content, []byte("Traceback (most recent call last)")):
			traceback, buf = true, buf[:mark]
		default:
			lines++
		}
	}
	return buf
}

// isPlain reports whether b is a line of printable ASCII. It looks at eight bytes
// at once.
func isPlain(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		// A high bit is set by a byte below the blank, by one above the tilde, or
		// was there before.
		if (w|(w-ones*' ')|(w+ones))&highs != 0 {
			return false
		}
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// unquoted puts quotation marks where they stand as octal escapes, as printers
// that allow themselves few characters write them.
func unquoted(text string) string {
	if !strings.Contains(text, `\04`) {
		return text
	}
	return octalQuotes.Replace(text)
}

var octalQuotes = strings.NewReplacer(`\042`, `"`, `\047`, `'`)

// firstRunes cuts a text, and then at a blank, so that half a word is not
// taken for a whole.
func firstRunes(text string) string {
	if len(text) < maxRunes {
		return text
	}
	n := 0
	for i := range text {
		if n == maxRunes {
			text = text[:i]
			break
		}
		n++
	}
	if n < maxRunes {
		return text
	}
	for i := len(text) - 1; i > len(text)/2; i-- {
		if text[i] == ' ' || text[i] == '\n' {
			return text[:i]
		}
	}
	return text
}

// isDump reports whether a line begins a dump of stacks, after which there is
// nothing but stacks.
func isDump(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("goroutine "))
	if ok && len(rest) > 0 && isDigit(rest[0]) {
		return true
	}
	for _, mark := range [...]string{"Stack trace:", "stack trace:", "Stacktrace:", "stacktrace:", "runtime.gopanic(", "runtime/debug.Stack("} {
		if bytes.HasPrefix(line, []byte(mark)) {
			return true
		}
	}
	return false
}

// isFrame reports whether a line is one frame of a stack, between lines that
// say something.
func isFrame(line []byte) bool {
	if rest, ok := bytes.CutPrefix(line, []byte("at ")); ok {
		return bytes.HasSuffix(rest, []byte(")")) || bytes.IndexByte(rest, ' ') < 0
	}
	if bytes.HasPrefix(line, []byte("... ")) && bytes.HasSuffix(line, []byte(" more")) {
		return true
	}
	return bytes.HasPrefix(line, []byte(`File "`)) && bytes.Contains(line, []byte(`", line `))
}

// appendLine copies a line without colours. Control characters and what is not
// UTF-8 become U+FFFD, as they do in dead letters; tabs become blanks.
func appendLine(buf []byte, line string) []byte {
	for i := 0; i < len(line); {
		c := line[i]
		if c >= ' ' && c <= '~' {
			buf = append(buf, c)
			i++
			continue
		}
		if c == '\t' {
			buf = append(buf, ' ')
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(line[i:])
		if r == 0x1b || r == utf8.RuneError {
			if n := colour(line[i+size:]); n > 0 {
				i += size + n
				continue
			}
		}
		switch {
		case unicode.IsControl(r), r == utf8.RuneError, r == 0xFFFE, r == 0xFFFF:
			buf = utf8.AppendRune(buf, utf8.RuneError)
		case unicode.IsSpace(r), r == 0x200B, r == 0xFEFF:
			buf = append(buf, ' ')
		default:
			buf = append(buf, line[i:i+size]...)
		}
		i += size
	}
	return buf
}

// colour is the length of what follows the escape character in a sequence for
// terminals: a bracket, numbers, a letter.
func colour(s string) int {
	if s == "" || s[0] != '[' {
		return 0
	}
	for i := 1; i < len(s) && i < 16; i++ {
		switch c := s[i]; {
		case isDigit(c), c == ';', c == '?':
		case isLetter(c):
			return i + 1
		default:
			return 0
		}
	}
	return 0
}
