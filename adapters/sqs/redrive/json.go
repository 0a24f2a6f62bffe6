package redrive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// kind of a JSON value, as messages name it.
type kind string

const (
	object  kind = "an object"
	array   kind = "an array"
	text    kind = "a string"
	number  kind = "a number"
	boolean kind = "true or false"
	null    kind = "null"
)

// value is a JSON value that remembers its order and where it stood.
type value struct {
	kind    kind
	text    string // of a string what it says, of all others as written
	keys    []string
	members map[string]*value
	items   []*value
	line    int
}

// fault is what is wrong with a document.
type fault struct {
	line    int // from 1; 0 if it is about all of it
	message string
	fix     string
}

// maxDepth is far above that of any export.
const maxDepth = 32

// parseJSON reads exactly one document. It is stricter than encoding/json: keys
// are unique, the text is valid UTF-8, and nothing stands around it.
func parseJSON(data []byte) (*value, *fault) {
	const encoding = "save it as UTF-8 without a byte order mark"
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, &fault{message: "is empty", fix: "export it again, and look at what the export printed to stderr"}
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return nil, &fault{1, "begins with a byte order mark, which JSON does not allow", encoding}
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, &fault{1, "is UTF-16, as some shells write it; JSON is UTF-8", encoding}
	case !utf8.Valid(data):
		at := 0
		for at < len(data) {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
		return nil, &fault{lineAt(data, at), "is not valid UTF-8", encoding}
	}
	var all json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, syntaxFault(data, err)
	}
	p := parser{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	p.dec.UseNumber()
	v, err := p.value(0)
	var f *fault
	switch {
	case errors.As(err, &f):
		return nil, f
	case err != nil:
		return nil, syntaxFault(data, err)
	}
	return v, nil
}

func syntaxFault(data []byte, err error) *fault {
	f := &fault{message: "is not JSON: " + err.Error(), fix: "export it again with --output json, and edit it with a tool that knows JSON"}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return f
	}
	at := max(0, int(syntax.Offset)-1)
	f.line = lineAt(data, at)
	switch {
	case strings.Contains(err.Error(), "after top-level value"):
		f.message = "has something behind the end of its JSON document: " + quote(firstLine(data[min(at, len(data)):]))
		f.fix = "remove it; several exports are an array, [ ... , ... ]"
	case strings.Contains(err.Error(), "unexpected end"):
		f.message = "ends in the middle of its JSON document"
		f.fix = "export it again: it was cut off"
	}
	return f
}

func firstLine(data []byte) string {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return string(line)
}

func lineAt(data []byte, at int) int {
	return 1 + bytes.Count(data[:min(at, len(data))], []byte("\n"))
}

type parser struct {
	data     []byte
	dec      *json.Decoder
	at, line int // the newlines before at are counted
}

// here is the line of the last token.
func (p *parser) here() int {
	if end := int(p.dec.InputOffset()) - 1; end > p.at {
		p.line, p.at = p.line+bytes.Count(p.data[p.at:end], []byte("\n")), end
	}
	return p.line
}

func (f *fault) Error() string { return f.message }

func (p *parser) value(depth int) (*value, error) {
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	start := p.dec.InputOffset() - 1 // of an object or an array
	v := &value{line: p.here()}
	switch token := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, &fault{v.line, fmt.Sprintf("is nested more than %d deep", maxDepth), "an export is not: look at what wrote it"}
		}
		if token == '{' {
			v.kind, v.members = object, map[string]*value{}
		} else {
			v.kind = array
		}
		for p.dec.More() {
			if err := p.member(v, depth+1); err != nil {
				return nil, err
			}
		}
		if _, err := p.dec.Token(); err != nil {
			return nil, err
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, p.data[start:p.dec.InputOffset()]); err != nil {
			return nil, err
		}
		v.text = compact.String()
	case string:
		v.kind, v.text = text, token
	case json.Number:
		v.kind, v.text = number, token.String()
	case bool:
		v.kind, v.text = boolean, fmt.Sprint(token)
	default:
		v.kind, v.text = null, "null"
	}
	return v, nil
}

// member reads the next element of v, which is an object or an array.
func (p *parser) member(v *value, depth int) error {
	if v.kind == array {
		item, err := p.value(depth)
		v.items = append(v.items, item)
		return err
	}
	token, err := p.dec.Token()
	if err != nil {
		return err
	}
	key, line := token.(string), p.here()
	if _, twice := v.members[key]; twice {
		return &fault{line, fmt.Sprintf("has the key %s twice in one object; which one holds depends on the reader", quote(key)), "keep one of them"}
	}
	member, err := p.value(depth)
	v.keys, v.members[key] = append(v.keys, key), member
	return err
}
