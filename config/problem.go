package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/poison"
)

// redactor takes passwords out of what users put into the wrong place. The zero
// Redaction is meant: what the file says about redaction is not yet believed.
var redactor poison.Redactor

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// File is the file's name as it was given; empty where the environment is
	// to blame.
	File string
	// Line in the file, from 1; zero if there is none.
	Line int
	// Env is the environment variable to blame, if it is one.
	Env string
	// Key is the path of the key, such as policy.attempts.transient; may be
	// empty.
	Key string
	// Text says what is wrong, and where possible what to do.
	Text string
}

// Error returns the problem on one line: spillway.yaml:3: group: ...
func (p Problem) Error() string {
	var b strings.Builder
	switch {
	case p.Env != "":
		b.WriteString(p.Env + ": ")
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d: ", cmp.Or(p.File, "line"), p.Line)
	case p.File != "":
		b.WriteString(p.File + ": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	return b.String() + p.Text
}

// Problems is everything that is wrong with a configuration, in the order of
// the file, the environment last. As an error it has one line for each.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each problem visible to errors.As.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Env, b.Env), cmp.Compare(a.Line, b.Line))
	})
	return p
}

// quote shows a text from the configuration: redacted, cut, on one line.
func quote(s string) string {
	const most = 60
	s = redactor.Text(s)
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "..."
	}
	return strconv.Quote(s)
}
