package cli

import (
	"encoding/json"
	"strings"
	"unicode"
)

// json prints v as one document.
func (c *call) json(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	if c.output == "json" {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// clean makes a text from outside safe for a line of a terminal: it ends no line,
// starts no sequence, and does not turn the direction of what follows.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
}
