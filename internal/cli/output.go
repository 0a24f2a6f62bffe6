package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// json prints v as one document. What acts on a terminal and is no part of the
// syntax is escaped.
func (c *call) json(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if c.output == "json" {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	text := b.Bytes()
	for len(text) > 0 {
		i := bytes.IndexFunc(text, func(r rune) bool { return r != '\n' && acts(r) })
		if i < 0 {
			i = len(text)
		}
		if _, err := c.out.Write(text[:i]); err != nil {
			return err
		}
		if text = text[i:]; len(text) == 0 {
			break
		}
		r, size := utf8.DecodeRune(text)
		if _, err := fmt.Fprintf(c.out, `\u%04x`, r); err != nil { // none is beyond the 16 bits
			return err
		}
		text = text[size:]
	}
	return nil
}

// acts reports whether a terminal does something else with r than to show it:
// control characters, ends of lines, and what turns the direction of others.
func acts(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// clean makes a text from outside safe for a line of a terminal: it ends no line,
// starts no sequence, and does not turn the direction of what follows.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if acts(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
}

// cleanLines is clean for a text of several lines.
func cleanLines(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = clean(line)
	}
	return strings.Join(lines, "\n")
}
