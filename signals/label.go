package signals

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/failure"
)

const (
	// maxLabelBytes bounds a label value. It takes every topic name that a
	// broker allows.
	maxLabelBytes = 256
	// otherClass stands for every class above the cap.
	otherClass = "(other)"
)

// label makes s a label value: valid UTF-8 of at most maxLabelBytes. A client
// library panics, or a scrape fails, on anything that is not UTF-8.
func label(s string) string {
	if len(s) <= maxLabelBytes && utf8.ValidString(s) {
		return s
	}
	const ellipsis = "…"
	// Cut before and after the replacement: before, because a class made of an
	// error text may be huge; after, because a replaced byte becomes three.
	long := len(s) > maxLabelBytes
	s = strings.ToValidUTF8(cut(s, maxLabelBytes), "\uFFFD")
	if long || len(s) > maxLabelBytes {
		s = cut(s, maxLabelBytes-len(ellipsis)) + ellipsis
	}
	return s
}

// cut returns at most n bytes of s, without the beginning of a rune at the end.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n]
}

// builtIn are the classes that no class of the user's can crowd out, beside
// the empty one of outcomes without a failure.
var builtIn = [...]failure.Class{
	"",
	failure.ClassValidation, failure.ClassUndecodable, failure.ClassSerialization, failure.ClassIncompatibleSchema,
	failure.ClassDependencyTimeout, failure.ClassDependencyUnavailable, failure.ClassReferenceNotFound,
	failure.ClassUnauthorized, failure.ClassPanic, failure.ClassConsumerCrash, failure.ClassExpired, failure.ClassUnknown,
}

// classes gives the first few distinct classes a label of their own.
type classes struct {
	mu    sync.Mutex
	known map[string]bool
	max   int
}

func newClasses(own int) classes {
	known := map[string]bool{}
	for _, c := range builtIn {
		known[string(c)] = true
	}
	return classes{known: known, max: len(known) + own}
}

func (c *classes) label(class failure.Class) string {
	l := label(string(class))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[l] {
		return l
	}
	if len(c.known) >= c.max {
		return otherClass
	}
	c.known[strings.Clone(l)] = true // not a part of a long error text
	return l
}
