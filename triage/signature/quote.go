package signature

import (
	"bytes"
	"unicode/utf8"
)

// maxQuotation is how far the end of a quotation is looked for, in bytes.
const maxQuotation = 400

// quote deals with a quotation mark and, if it opens a quotation, with all of it.
func (s *scanner) quote() {
	b, i := s.b, s.i
	_, size := utf8.DecodeRune(b[i:])
	if b[i] == '\'' && isWordByte(s.at(i-1)) {
		s.i++ // an apostrophe
		s.out = append(s.out, '\'')
		return
	}
	escaped := b[i] < utf8.RuneSelf && s.at(i-1) == '\\'
	end, size2 := closing(b, i, size, escaped)
	if end < 0 {
		s.i += size // never closed, or the end of one
		return
	}
	content := b[i+size : end]
	after := end + size2
	if escaped {
		content = content[:len(content)-1]
		if n := len(s.out); n > 0 && s.out[n-1] == '\\' {
			s.out = s.out[:n-1]
		}
	}
	switch name := s.isName(i, after, content); {
	case name && countDigits(content) <= 3:
		s.out = append(s.out, '"')
		s.out = append(s.out, content...)
		s.out = append(s.out, '"')
		s.prev[1], s.prev[0] = s.prev[0], word{i + size, end}
	case name, s.isText(i, content):
		s.out = append(s.out, '"')
		s.sub(content)
		s.out = append(s.out, '"')
	default:
		s.note(after, phQuoted, "quotation")
		s.out = append(s.out, phQuoted...)
	}
	s.i = after
}

// sub scans a part of the text in its own right.
func (s *scanner) sub(content []byte) {
	if s.depth >= 8 {
		s.out = append(s.out, phQuoted...)
		return
	}
	s.depth++
	s.scan(content)
	s.depth--
	for n := len(s.out); n > 0 && s.out[n-1] == ' '; n-- {
		s.out = s.out[:n-1]
	}
}

// closing returns where the quotation that begins at i ends, and the size of
// the mark there; -1 if it does not end.
func closing(b []byte, i, size int, escaped bool) (end, endSize int) {
	mark := b[i]
	stop := min(len(b), i+maxQuotation)
	if mark >= utf8.RuneSelf {
		for j := i + size; j < stop; {
			r, n := utf8.DecodeRune(b[j:])
			if r == '”' || r == '»' || r == '“' && j > i+size || r == '’' || r == '›' {
				return j, n
			}
			j += n
		}
		return -1, 0
	}
	for j := i + 1; j < stop; j++ {
		switch c := b[j]; {
		case c == '\\' && !escaped:
			j++
		case c != mark:
		case escaped && b[j-1] != '\\':
		case mark == '\'' && j+1 < len(b) && isWordByte(b[j+1]): // can't
		default:
			return j, 1
		}
	}
	return -1, 0
}

func countDigits(b []byte) (n int) {
	for _, c := range b {
		if isDigit(c) {
			n++
		}
	}
	return n
}

// isName reports whether a quotation is a name that a person gave in code: it
// is shaped like an identifier and stands beside a word such as field, or
// before a colon, as the names in JSON do, or is said to be required.
func (s *scanner) isName(i, after int, content []byte) bool {
	if !isIdentifier(content) {
		return false
	}
	if c := s.at(after); c == ':' && s.at(i) == '"' && len(content) <= 40 && s.inObject(i) {
		return true
	}
	var buf [24]byte
	if w := s.prev[0]; s.near(w, i) {
		name := string(lower(&buf, s.b[w.start:w.end]))
		if isSchemaNoun(name) {
			return true
		}
		if v := s.prev[1]; (name == "name" || name == "named" || name == "called" || name == "names") && v.end > 0 && w.start-v.end <= 2 {
			if isSchemaNoun(string(lower(&buf, s.b[v.start:v.end]))) {
				return true
			}
		}
	}
	if s.at(after) != ' ' {
		return false
	}
	rest := s.b[after+1:]
	for _, said := range [...]string{"is required", "is a required", "is not allowed", "is missing", "must be", "must not", "must have", "should be", "cannot be blank", "cannot be empty", "can not be", "may not be"} {
		if bytes.HasPrefix(rest, []byte(said)) {
			return true
		}
	}
	k := 0
	for k < len(rest) && isLetter(rest[k]) {
		k++
	}
	return isSchemaNoun(string(lower(&buf, rest[:k])))
}

// inObject reports whether the mark at i stands where a name in JSON does.
func (s *scanner) inObject(i int) bool {
	for i--; i >= 0 && s.b[i] == ' '; i-- {
	}
	return i >= 0 && (s.b[i] == '{' || s.b[i] == ',')
}

// isIdentifier reports whether b is letters, digits and the marks of names and
// calls, and begins with a letter.
func isIdentifier(b []byte) bool {
	if len(b) == 0 || len(b) > 64 || !isLetter(b[0]) && b[0] != '_' && b[0] != '$' {
		return false
	}
	for _, c := range b {
		if !isLetter(c) && !isDigit(c) && c != '_' && c != '.' && c != '-' && c != '$' && c != '[' && c != ']' && c != '(' && c != ')' {
			return false
		}
	}
	return true
}

// isText reports whether a quotation is itself a text with a structure: a URL,
// a path, a request, or what stands after a word such as error.
func (s *scanner) isText(i int, content []byte) bool {
	if len(content) == 0 {
		return false
	}
	if content[0] == '/' && len(content) > 1 {
		return true
	}
	if k := bytes.Index(content[:min(len(content), 24)], []byte("://")); k > 0 && bytes.IndexByte(content[:k], ' ') < 0 {
		return true
	}
	if k := bytes.IndexByte(content, ' '); k > 2 && k < 8 && isMethod(string(content[:k])) {
		return true
	}
	w := s.prev[0]
	if w.end == 0 || i-w.end > 3 || !s.near(w, i) {
		return false
	}
	if c := s.at(i - 1); c != '=' && c != ':' && s.at(i-2) != ':' && s.at(i-2) != '=' {
		return false
	}
	var buf [24]byte
	return isCauseField(string(lower(&buf, s.b[w.start:w.end])))
}
