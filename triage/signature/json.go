package signature

import (
	"bytes"
	"slices"
)

// json takes a JSON document that reaches to the end of the text. Of its
// fields, those that name a cause are kept; of all others, the type.
func (s *scanner) json() bool {
	b, i := s.b, s.i
	if s.depth > 0 || !looksLikeJSON(b[i:]) {
		return false
	}
	p := parser{b: b, i: i}
	mark := len(s.out)
	if !p.value(s, false, 0) {
		s.out = s.out[:mark]
		return false
	}
	for k := p.i; k < len(b); k++ {
		if c := b[k]; !isSpace(c) && c != '.' && c != ')' && c != ',' {
			s.out = s.out[:mark]
			return false
		}
	}
	s.note(p.i, string(s.out[mark:]), "JSON")
	s.i = p.i
	return true
}

func looksLikeJSON(b []byte) bool {
	k := 1
	for k < len(b) && isSpace(b[k]) {
		k++
	}
	if b[0] == '[' && k < len(b) && b[k] == '{' {
		for k++; k < len(b) && isSpace(b[k]); k++ {
		}
	} else if b[0] == '[' {
		return false
	}
	return k < len(b) && (b[k] == '"' || b[0] == '{' && b[k] == '}' && k == 1)
}

// parser reads JSON as it normalises it.
type parser struct {
	b []byte
	i int
}

const maxJSONDepth = 16

func (p *parser) blank() {
	for p.i < len(p.b) && isSpace(p.b[p.i]) {
		p.i++
	}
}

// value reads a value and writes what is kept of it.
func (p *parser) value(s *scanner, cause bool, depth int) bool {
	p.blank()
	if p.i >= len(p.b) || depth > maxJSONDepth {
		return false
	}
	switch c := p.b[p.i]; {
	case c == '{':
		return p.object(s, depth)
	case c == '[':
		return p.list(s, cause, depth)
	case c == '"':
		text, ok := p.text()
		if !ok {
			return false
		}
		if cause {
			s.sub(unescape(text))
		} else {
			s.out = append(s.out, phQuoted...)
		}
		return true
	case c == '-' || isDigit(c):
		j := p.i + 1
		for j < len(p.b) && (isDigit(p.b[j]) || p.b[j] == '.' || p.b[j] == '-' || p.b[j] == '+' || p.b[j]|0x20 == 'e') {
			j++
		}
		if cause && j-p.i <= 6 && digitsAt(p.b, p.i) == j {
			s.out = append(s.out, p.b[p.i:j]...)
		} else {
			s.out = append(s.out, phNumber...)
		}
		p.i = j
		return true
	}
	for _, name := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(p.b[p.i:], []byte(name)) {
			p.i += len(name)
			switch {
			case cause, name == "null":
				s.out = append(s.out, name...)
			default:
				s.out = append(s.out, "<bool>"...)
			}
			return true
		}
	}
	// A placeholder of redaction in the place of a number.
	if end := placeholderAt(p.b, p.i); end > p.i {
		s.out = append(s.out, p.b[p.i:end]...)
		p.i = end
		return true
	}
	return false
}

// text reads a string and returns what is between the quotation marks.
func (p *parser) text() ([]byte, bool) {
	for j := p.i + 1; j < len(p.b); j++ {
		switch p.b[j] {
		case '\\':
			j++
		case '"':
			text := p.b[p.i+1 : j]
			p.i = j + 1
			return text, true
		}
	}
	return nil, false
}

// unescape undoes the escapes that hide quotations and blanks.
func unescape(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}
		i++
		switch b[i] {
		case 'n', 'r', 't':
			out = append(out, ' ')
		case '"', '/', '\\':
			out = append(out, b[i])
		default:
			out = append(out, '\\', b[i])
		}
	}
	return out
}

// object writes the fields in the order of their names.
func (p *parser) object(s *scanner, depth int) bool {
	type field struct{ name, value []byte }
	var fields []field
	mark := len(s.out)
	p.i++
	for first := true; ; first = false {
		p.blank()
		if p.i < len(p.b) && p.b[p.i] == '}' {
			p.i++
			break
		}
		if !first {
			if p.i >= len(p.b) || p.b[p.i] != ',' {
				return false
			}
			p.i++
			p.blank()
		}
		if p.i >= len(p.b) || p.b[p.i] != '"' {
			return false
		}
		name, ok := p.text()
		p.blank()
		if !ok || p.i >= len(p.b) || p.b[p.i] != ':' {
			return false
		}
		p.i++
		var buf [24]byte
		cause := isCauseField(string(lower(&buf, name)))
		if !isIdentifier(name) || countDigits(name) > 3 {
			name = []byte(phQuoted)
		}
		at := len(s.out)
		if !p.value(s, cause, depth+1) {
			return false
		}
		value := bytes.Clone(s.out[at:])
		s.out = s.out[:at]
		fields = append(fields, field{name, value})
	}
	slices.SortStableFunc(fields, func(a, b field) int { return bytes.Compare(a.name, b.name) })
	s.out = append(s.out[:mark], '{')
	for i, f := range fields {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.out = append(s.out, f.name...)
		s.out = append(s.out, ':')
		s.out = append(s.out, f.value...)
	}
	s.out = append(s.out, '}')
	return true
}

// list writes equal neighbours once: how many there are must not matter.
func (p *parser) list(s *scanner, cause bool, depth int) bool {
	p.i++
	s.out = append(s.out, '[')
	last := []byte(nil)
	for first := true; ; first = false {
		p.blank()
		if p.i < len(p.b) && p.b[p.i] == ']' {
			p.i++
			break
		}
		if !first {
			if p.i >= len(p.b) || p.b[p.i] != ',' {
				return false
			}
			p.i++
		}
		at := len(s.out)
		if last != nil {
			s.out = append(s.out, ',')
		}
		from := len(s.out)
		if !p.value(s, cause, depth+1) {
			return false
		}
		if last != nil && bytes.Equal(last, s.out[from:]) {
			s.out = s.out[:at]
			continue
		}
		last = bytes.Clone(s.out[from:])
	}
	s.out = append(s.out, ']')
	return true
}
