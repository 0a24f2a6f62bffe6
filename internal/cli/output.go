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

// clean makes a text from outside safe for a line of a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
}
