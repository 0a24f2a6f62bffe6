package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/nearest"
	"go.yaml.in/yaml/v3"
)

// reader follows a schema through a file and an environment. It collects what
// is wrong, and where everything came from.
type reader struct {
	file     string
	root     object
	problems Problems
	where    map[string]source
}

// maxProblems bounds the work on a file that is something else, and the
// length of what is printed about it.
const maxProblems = 100

// source is where a value came from.
type source struct {
	line int
	env  string
}

func (r *reader) readFile(schema object, data []byte) {
	r.root = schema
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing but comments: all defaults
		return
	case err != nil:
		r.syntax(data, err)
		return
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.problems = append(r.problems, Problem{File: r.file, Text: "there is more than one document: leave out what follows the line ---"})
	}
	if len(doc.Content) == 0 {
		return
	}
	if top := r.resolve("", doc.Content[0]); top != nil {
		schema.read(r, "", top)
	}
}

var (
	lineOfError   = regexp.MustCompile(`^line (\d+): `)
	parserError   = regexp.MustCompile(`^did not find expected (',' or|'-'|key$|node content$|<)`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntax reports what keeps the file from being read at all. What the library
// quotes from the file is left out: a password that begins with * is taken for
// a reference to an anchor.
func (r *reader) syntax(data []byte, err error) {
	if lines := tabs(data); len(lines) > 0 {
		for _, line := range lines {
			r.problems = append(r.problems, Problem{File: r.file, Line: line, Text: "the line is indented with a tab, which YAML does not allow: use spaces"})
		}
		return
	}
	p := Problem{File: r.file}
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := lineOfError.FindStringSubmatch(msg); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		if msg = msg[len(m[0]):]; parserError.MatchString(msg) {
			p.Line++ // the library's parser counts from zero, its scanner from one
		}
	}
	if m := unknownAnchor.FindStringSubmatch(msg); m != nil {
		if i := bytes.Index(data, []byte("*"+m[1])); i >= 0 {
			p.Line = 1 + bytes.Count(data[:i], []byte("\n"))
		}
		msg = "what begins with * refers to an anchor, and there is none of that name; a text that begins with * needs quotes"
	} else {
		msg = redactor.Text(msg)
	}
	p.Text = "this is no valid YAML: " + msg
	r.problems = append(r.problems, p)
}

// tabs returns the lines that are indented with a tab.
func tabs(data []byte) (lines []int) {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		rest := bytes.TrimLeft(line, " ")
		if len(rest) > 0 && rest[0] == '\t' && len(bytes.TrimSpace(rest)) > 0 {
			lines = append(lines, n)
		}
		if len(lines) == maxProblems {
			break
		}
	}
	return lines
}

// readEnviron lays the environment over what the file said.
func (r *reader) readEnviron(schema object, environ []string) {
	env := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) && value != "" {
			env[name] = value
		}
	}
	known := slices.Clone(reservedEnv)
	schema.leaves(func(l leaf) {
		if l.env == "" {
			return
		}
		known = append(known, l.env)
		text, given := env[l.env]
		if !given {
			return
		}
		s, ok := l.value.(setter)
		if !ok {
			return
		}
		r.where[l.path] = source{env: l.env}
		switch err := s.set(text); {
		case err == nil:
		case errors.Is(err, errKind):
			r.at(l.path, fmt.Sprintf("expected %s, found %s", s.kind(), quote(text)))
		default:
			r.at(l.path, fmt.Sprintf("expected %s, found %s: %s", s.kind(), quote(text), err))
		}
	})
	// Others may own variables with our prefix: Kubernetes makes some for a
	// service called spillway. So only what looks like a slip is an error.
	for name := range env {
		if slices.Contains(known, name) {
			continue
		}
		if near, ok := nearest.Within(name, known, 2); ok {
			r.problems = append(r.problems, Problem{Env: name, Text: "there is no such variable; did you mean " + near + "?"})
		}
	}
}

// reservedEnv are variables that are not keys.
var reservedEnv = []string{"SPILLWAY_CONFIG"}

// pairs yields the keys and values of a mapping, and reports keys that are
// none or occur twice.
func (r *reader) pairs(path string, n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(_, _ *yaml.Node) bool) {
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content) && len(r.problems) < maxProblems; i += 2 {
			key, node := n.Content[i], n.Content[i+1]
			line, twice := first[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode:
				r.problem(path, key, "a key must be a text, found "+describe(key))
			case key.ShortTag() == "!!merge":
				r.problem(path, key, "merge keys (<<) are not supported")
			case twice:
				r.problem(join(path, keyName(key)), key, fmt.Sprintf("the key stands here twice, first in line %d", line))
			default:
				first[key.Value] = key.Line
				if !yield(key, node) {
					return
				}
			}
		}
	}
}

// keyName is a key of the user as it may be shown.
func keyName(key *yaml.Node) string {
	q := quote(key.Value)
	if plain := q[1 : len(q)-1]; plain == key.Value && plain != "" && !strings.ContainsAny(plain, " .[]") {
		return plain
	}
	return q
}

// unknown reports a key that o does not have.
func (r *reader) unknown(path string, key *yaml.Node, o object) {
	msg := "there is no such key"
	if near, ok := nearest.To(key.Value, o.names()); ok {
		msg += "; did you mean " + near + "?"
	} else if place := r.elsewhere(key.Value); place != "" {
		msg += " here; did you mean " + place + "?"
	} else {
		msg += "; there are " + strings.Join(o.names(), ", ")
	}
	r.problem(join(path, keyName(key)), key, msg)
}

// elsewhere finds the first key of that name anywhere in the schema.
func (r *reader) elsewhere(name string) (found string) {
	r.root.leaves(func(l leaf) {
		if found == "" && l.name == name {
			found = l.path
		}
	})
	return found
}

// didYouMean returns an error with the nearest of the known texts, or else
// otherwise.
func didYouMean(text string, known []string, otherwise error) error {
	if near, ok := nearest.To(text, known); ok {
		return fmt.Errorf("did you mean %s?", near)
	}
	return otherwise
}

// resolve follows an alias, and returns nil for what is null: a key without a
// value counts as not set.
func (r *reader) resolve(path string, n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil
	case n.Style&yaml.TaggedStyle != 0:
		r.problem(path, n, "tags (!) are not supported; a text that begins with ! needs quotes")
		return nil
	}
	return n
}

func (r *reader) mark(path string, n *yaml.Node) { r.where[path] = source{line: n.Line} }

func (r *reader) problem(path string, n *yaml.Node, text string) {
	r.problems = append(r.problems, Problem{File: r.file, Line: n.Line, Key: path, Text: text})
}

func (r *reader) expected(path string, n *yaml.Node, what, hint string) {
	text := fmt.Sprintf("expected %s, found %s", what, describe(n))
	if hint != "" {
		text += ": " + hint
	}
	r.problem(path, n, text)
}

// at reports a problem with the value at path, or what is nearest above it, by
// where it came from.
func (r *reader) at(path, text string) {
	p := Problem{Key: path, Text: text}
	for place := path; ; {
		if s, ok := r.where[place]; ok {
			if p.Line, p.Env = s.line, s.env; p.Env == "" {
				p.File = r.file
			}
			break
		}
		cut := strings.LastIndexAny(place, ".[")
		if cut < 0 {
			p.File = r.file
			break
		}
		place = place[:cut]
	}
	r.problems = append(r.problems, p)
}

// describe says what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "a reference"
	}
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	switch n.ShortTag() {
	case "!!int", "!!float":
		if !quoted {
			return "the number " + redactor.Text(n.Value)
		}
	case "!!bool":
		if !quoted {
			return n.Value
		}
	case "!!null":
		return "nothing"
	}
	return "the text " + quote(n.Value)
}
