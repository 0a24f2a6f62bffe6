package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// value is what a key holds, bound to where it is put.
type value interface {
	// kind says what is expected: "a duration such as 5m".
	kind() string
	// read puts a node of the file there, or reports what is wrong with it. The
	// node is neither an alias nor null.
	read(r *reader, path string, n *yaml.Node)
}

// setter is a value that an environment variable can hold. The error of set
// says only what is wrong, and only where that is not plain from the kind.
type setter interface {
	value
	set(text string) error
}

// errKind means that a text is not of the kind that is expected.
var errKind = errors.New("of another kind")

// scalar is a setter for a single value.
type scalar struct {
	what   string // kind
	isText bool   // anything is one, even what looks like a number
	bare   bool   // must not be in quotes
	secret bool   // never shown
	put    func(text string) error
}

func (s scalar) kind() string          { return s.what }
func (s scalar) set(text string) error { return s.put(text) }

func (s scalar) read(r *reader, path string, n *yaml.Node) {
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	switch {
	case n.Kind != yaml.ScalarNode:
		r.expected(path, n, s.what, "")
	case s.isText && !quoted && n.ShortTag() == "!!bool":
		r.expected(path, n, s.what, "if it is meant as a text, write quotes around it")
	case s.bare && quoted && s.put(n.Value) == nil:
		r.expected(path, n, s.what, "leave the quotes out")
	default:
		switch err := s.put(n.Value); {
		case err == nil:
		case errors.Is(err, errKind):
			r.expected(path, n, s.what, "")
		case s.secret:
			r.problem(path, n, err.Error())
		default:
			r.expected(path, n, s.what, err.Error())
		}
	}
}

func text[T ~string](to *T) scalar {
	return scalar{what: "a text", isText: true, put: func(s string) error {
		*to = T(s)
		return nil
	}}
}

func secretURL(to *SecretURL) scalar {
	s := text(to)
	s.what, s.secret = "a URL", true
	return s
}

// secretText is a text that no problem shows.
func secretText[T ~string](to *T) scalar {
	s := text(to)
	s.secret = true
	return s
}

func whole(to *int) scalar {
	return scalar{what: "a whole number such as 3", bare: true, put: func(s string) error {
		n, err := strconv.Atoi(s)
		switch {
		case errors.Is(err, strconv.ErrRange):
			return errors.New("it is out of range")
		case err != nil:
			return errKind
		case n <= 0:
			return errNotPositive
		}
		*to = n
		return nil
	}}
}

// errNotPositive explains why zero is refused: in Go it would mean the
// default, and whoever writes a zero means something else.
var errNotPositive = errors.New("it must be above zero; leave the key out for the default")

func number(to *float64) scalar {
	return scalar{what: "a number such as 1.5", bare: true, put: func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		switch {
		case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
			return errKind
		case f <= 0:
			return errNotPositive
		}
		*to = f
		return nil
	}}
}

func boolean(to *bool) scalar {
	return scalar{what: "true or false", bare: true, put: func(s string) error {
		switch s {
		case "true":
			*to = true
		case "false":
			*to = false
		default:
			return errKind
		}
		return nil
	}}
}

func duration(to *time.Duration) scalar {
	return scalar{what: "a duration such as 90s, 5m or 1h30m", put: func(s string) error {
		if f, err := strconv.ParseFloat(s, 64); err == nil && f != 0 {
			return fmt.Errorf("a unit is missing: write %ss, %sm or %sh", s, s, s)
		}
		d, err := time.ParseDuration(s)
		switch {
		case err != nil && strings.HasSuffix(s, "d"):
			return errors.New("there is no unit for days: write 24h for one")
		case err != nil:
			return errKind
		case d <= 0:
			return errNotPositive
		}
		*to = d
		return nil
	}}
}

type option[T ~string] struct {
	text string
	is   T
}

func oneOf[T ~string](to *T, options ...option[T]) scalar {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = o.text
	}
	last := len(names) - 1
	s := scalar{what: strings.Join(names[:last], ", ") + " or " + names[last]}
	s.put = func(text string) error {
		for _, o := range options {
			if o.text == text {
				*to = o.is
				return nil
			}
		}
		return didYouMean(text, names, errKind)
	}
	return s
}

// list is a list of texts.
type list[T ~string] struct{ to *[]T }

func texts[T ~string](to *[]T) list[T] { return list[T]{to} }

func (list[T]) kind() string { return "a list of texts" }

func (l list[T]) read(r *reader, path string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if n.Kind == yaml.ScalarNode {
			hint = "write - before it, on a line of its own"
		}
		r.expected(path, n, l.kind(), hint)
		return
	}
	got := make([]T, 0, len(n.Content)) // not nil: an empty list is not the default
	for i, item := range n.Content {
		if len(r.problems) >= maxProblems {
			break
		}
		var t T
		at := fmt.Sprintf("%s[%d]", path, i)
		r.mark(at, item)
		if item = r.resolve(at, item); item == nil {
			r.problem(at, n.Content[i], "the entry is empty")
			continue
		}
		before := len(r.problems)
		text(&t).read(r, at, item)
		if len(r.problems) == before {
			got = append(got, t)
		}
	}
	*l.to = got
}

// set reads a list with commas.
func (l list[T]) set(s string) error {
	var got []T
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item == "" {
			return errors.New("an entry between two commas is empty")
		}
		got = append(got, T(item))
	}
	*l.to = got
	return nil
}

// named is a map from names to texts.
type named struct{ to *map[string]string }

func textsBy(to *map[string]string) named { return named{to} }

func (named) kind() string { return "a mapping from names to texts" }

func (m named) read(r *reader, path string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.expected(path, n, m.kind(), "")
		return
	}
	got := map[string]string{}
	for key, node := range r.pairs(path, n) {
		at := fmt.Sprintf("%s[%s]", path, strconv.Quote(key.Value))
		if key.Value == "" {
			r.problem(path, key, "an entry has no name")
			continue
		}
		r.mark(at, key)
		if node = r.resolve(at, node); node == nil {
			r.problem(at, key, "the entry is empty")
			continue
		}
		var value string
		text(&value).read(r, at, node)
		got[key.Value] = value
	}
	*m.to = got
}

// set reads NAME:TEXT with commas. The last colon separates.
func (m named) set(s string) error {
	got := map[string]string{}
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		i := strings.LastIndexByte(item, ':')
		if i < 1 || i == len(item)-1 {
			return errors.New("an entry has the form NAME:TEXT, and commas stand between entries")
		}
		got[item[:i]] = item[i+1:]
	}
	*m.to = got
	return nil
}

// collection is a value whose entries are objects.
type collection interface {
	value
	// entry returns the schema of an entry, for documentation, and what stands
	// in paths for its place. It returns no schema where like says it all.
	entry() (o object, place string)
}

// mapping is a map from names to objects.
type mapping[K ~string, V any] struct {
	name   string // of a key, in documentation
	like   string // the key whose schema the entries have, if there is one
	to     *map[K]V
	schema func(*V) object
}

func mapOf[K ~string, V any](name, like string, to *map[K]V, schema func(*V) object) mapping[K, V] {
	return mapping[K, V]{name, like, to, schema}
}

func (m mapping[K, V]) kind() string {
	if m.like != "" {
		return "the keys of `" + m.like + "`"
	}
	return "a mapping from names to mappings"
}

func (m mapping[K, V]) entry() (object, string) {
	if m.like != "" {
		return nil, "." + m.name
	}
	return m.schema(new(V)), "." + m.name
}

func (m mapping[K, V]) read(r *reader, path string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.expected(path, n, "a mapping from names to mappings", "")
		return
	}
	got := map[K]V{}
	for key, node := range r.pairs(path, n) {
		var v V
		at := fmt.Sprintf("%s[%s]", path, strconv.Quote(key.Value))
		if key.Value == "" {
			r.problem(path, key, "an entry has no name")
			continue
		}
		r.mark(at, key)
		if node = r.resolve(at, node); node != nil {
			m.schema(&v).read(r, at, node)
		}
		got[K(key.Value)] = v
	}
	*m.to = got
}

// objects is a list of objects.
type objects[V any] struct {
	to     *[]V
	schema func(*V) object
}

func listOf[V any](to *[]V, schema func(*V) object) objects[V] { return objects[V]{to, schema} }

func (objects[V]) kind() string              { return "a list of mappings" }
func (l objects[V]) entry() (object, string) { return l.schema(new(V)), "[]" }

func (l objects[V]) read(r *reader, path string, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.expected(path, n, l.kind(), "begin each entry with -")
		return
	}
	got := make([]V, len(n.Content))
	for i, item := range n.Content {
		if len(r.problems) >= maxProblems {
			break
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		r.mark(at, item)
		if item = r.resolve(at, item); item != nil {
			l.schema(&got[i]).read(r, at, item)
		}
	}
	*l.to = got
}

func (object) kind() string { return "a mapping" }

func (o object) read(r *reader, path string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		keys := "its keys are " + strings.Join(o.names(), ", ")
		if o.hides() {
			r.problem(path, n, "expected "+o.kind()+": "+keys)
		} else {
			r.expected(path, n, o.kind(), keys)
		}
		return
	}
	for key, node := range r.pairs(path, n) {
		f, known := o.find(key.Value)
		at := join(path, f.name)
		if !known {
			r.unknown(path, key, o)
			continue
		}
		r.mark(at, key)
		if node = r.resolve(at, node); node != nil {
			f.value.read(r, at, node)
		}
	}
}

// hides reports that what stands here by mistake may be a secret.
func (o object) hides() bool {
	return slices.ContainsFunc(o, func(f field) bool {
		s, ok := f.value.(scalar)
		return ok && s.secret
	})
}

func (o object) find(name string) (field, bool) {
	for _, f := range o {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (o object) names() []string {
	names := make([]string, len(o))
	for i, f := range o {
		names[i] = f.name
	}
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
