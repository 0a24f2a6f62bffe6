package poison

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// The placeholders that redaction leaves behind.
const (
	PlaceholderEmail  = "<email>" // an e-mail address
	PlaceholderID     = "<id>"    // a number or token recognised by its own form
	PlaceholderSecret = "<q>"     // a secret recognised by its place
)

// MaxText bounds the text that is redacted, in bytes. Of a longer text only
// the beginning is kept, and slightly less than MaxText of it, so that no
// secret is shown because its end was out of sight.
const MaxText = 16 << 10

// textMargin is how much is looked at, but not kept, before the end of a text
// longer than MaxText. Everything that a rule needs to see is shorter.
const textMargin = 1 << 10

// Rule names a shipped redaction rule. Its values appear in [Redactor.Hits]
// and in configuration, and are frozen.
type Rule string

const (
	// RuleURL: passwords in URLs and DSNs, such as amqp://user:password@host
	// and user:password@tcp(host)/db.
	RuleURL Rule = "url"
	// RuleSecret: values of keys that name a secret, in key=value texts, query
	// strings, JSON, XML elements, printed structs and headers, after --flags,
	// and in sentences such as: wrong password "hunter2".
	RuleSecret Rule = "secret"
	// RuleAuthorization: the credentials of Authorization headers, and what
	// follows Bearer and Basic.
	RuleAuthorization Rule = "authorization"
	// RuleJWT: JSON web tokens.
	RuleJWT Rule = "jwt"
	// RuleAWSKey: AWS access key ids. Secret access keys have no form of their
	// own and fall under RuleSecret.
	RuleAWSKey Rule = "aws_key"
	// RuleToken: API tokens with a vendor's prefix, such as ghp_ and xoxb-.
	RuleToken Rule = "token"
	// RulePrivateKey: PEM blocks with a private key.
	RulePrivateKey Rule = "private_key"
	// RuleEmail: e-mail addresses.
	RuleEmail Rule = "email"
	// RuleCard: payment card numbers of 13 to 19 digits, also in groups, whose
	// check digit is right and whose first digit is that of a card network.
	RuleCard Rule = "card"
	// RuleHeader: values of headers hidden by [Redactor.Headers] for their names.
	RuleHeader Rule = "header"
	// RuleCPF: Brazilian tax numbers of persons with right check digits. Off
	// unless [Redaction].CPF is set.
	RuleCPF Rule = "cpf"
	// RuleCNPJ: Brazilian tax numbers of companies with right check digits, in
	// digits or in the alphanumeric form of 2026. Off unless [Redaction].CNPJ is set.
	RuleCNPJ Rule = "cnpj"
)

// rules in the order of the counters.
var rules = [...]Rule{
	RuleURL, RuleSecret, RuleAuthorization, RuleJWT, RuleAWSKey, RuleToken,
	RulePrivateKey, RuleEmail, RuleCard, RuleHeader, RuleCPF, RuleCNPJ,
}

type ruleIndex uint8

const (
	ruleURL ruleIndex = iota
	ruleSecret
	ruleAuthorization
	ruleJWT
	ruleAWSKey
	ruleToken
	rulePrivateKey
	ruleEmail
	ruleCard
	ruleHeader
	ruleCPF
	ruleCNPJ
)

// Redaction says what is taken out of texts before they are kept or shown.
// The zero value is the default: all shipped rules except CPF and CNPJ.
type Redaction struct {
	// CPF turns RuleCPF on.
	CPF bool
	// CNPJ turns RuleCNPJ on.
	CNPJ bool
	// Disable turns shipped rules off, such as RuleCard where order numbers
	// pass for card numbers.
	Disable []Rule
	// Patterns are the user's own rules. They run before the shipped ones, in
	// this order.
	Patterns []Pattern
	// HideHeaders names headers whose values [Redactor.Headers] hides, besides
	// those whose names speak for themselves. Case does not matter.
	HideHeaders []string
	// DropHeaders names user headers that are left out of dead letters. Case
	// does not matter. Their names are recorded in the dead letter; a replay
	// cannot bring their values back.
	DropHeaders []string
}

// Pattern is a redaction rule of the user.
type Pattern struct {
	// Name appears in [Redactor.Hits] and in errors; it must be unique.
	Name string
	// Regexp in the syntax of package regexp. What it matches is replaced by
	// <q>; if it has groups, only what its first group matched.
	Regexp string
}

// Redactor applies a [Redaction]. The zero Redactor applies the zero
// Redaction. A Redactor is safe for concurrent use and must not be copied.
type Redactor struct {
	off       [len(rules)]bool
	cpf, cnpj bool
	patterns  []userPattern
	hide      []string
	drop      []string
	hits      [len(rules)]atomic.Uint64
}

type userPattern struct {
	name string
	re   *regexp.Regexp
	hits atomic.Uint64
}

// NewRedactor compiles a Redaction. The error names every problem at once.
func NewRedactor(cfg Redaction) (*Redactor, error) {
	r := &Redactor{
		cpf:      cfg.CPF,
		cnpj:     cfg.CNPJ,
		patterns: make([]userPattern, len(cfg.Patterns)),
		hide:     slices.Clone(cfg.HideHeaders),
		drop:     slices.Clone(cfg.DropHeaders),
	}
	var errs []error
	for i, rule := range cfg.Disable {
		n := slices.Index(rules[:], rule)
		if n < 0 {
			errs = append(errs, fmt.Errorf("redaction: Disable[%d]: there is no rule %q, only %q", i, rule, rules))
			continue
		}
		r.off[n] = true
	}
	names := map[string]bool{}
	for _, rule := range rules {
		names[string(rule)] = true
	}
	for i, p := range cfg.Patterns {
		switch {
		case p.Name == "":
			errs = append(errs, fmt.Errorf("redaction: Patterns[%d]: the name is empty", i))
		case names[p.Name]:
			errs = append(errs, fmt.Errorf("redaction: Patterns[%d]: the name %q is taken", i, p.Name))
		}
		names[p.Name] = true
		re, err := regexp.Compile(p.Regexp)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("redaction: pattern %q: %w", p.Name, err))
		case re.MatchString(""):
			errs = append(errs, fmt.Errorf("redaction: pattern %q: %q matches the empty text", p.Name, p.Regexp))
		}
		r.patterns[i].name, r.patterns[i].re = p.Name, re
	}
	for i, name := range cfg.HideHeaders {
		if name == "" {
			errs = append(errs, fmt.Errorf("redaction: HideHeaders[%d]: the name is empty", i))
		}
	}
	for i, name := range cfg.DropHeaders {
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("redaction: DropHeaders[%d]: the name is empty", i))
		case len(name) >= len(envelope.Prefix) && strings.EqualFold(name[:len(envelope.Prefix)], envelope.Prefix):
			errs = append(errs, fmt.Errorf("redaction: DropHeaders[%d]: %q is Spillway's own", i, name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// Text returns s without what the rules recognise. A text in which nothing is
// recognised comes back as it is, and without an allocation; only a text
// longer than [MaxText] is cut. Redacting a text again changes nothing, as long
// as no user pattern matches a placeholder. Any bytes are accepted.
//
// Redact first and cut afterwards: half a secret is not recognised.
func (r *Redactor) Text(s string) string {
	stop := len(s)
	if len(s) > MaxText {
		s, stop = s[:MaxText], MaxText-textMargin
	}
	for i := range r.patterns {
		s, stop = r.patterns[i].redact(s, stop)
	}
	// Taking one thing out can make the form of another plain. Every pass
	// makes the readable part shorter, so that the passes end; texts of the
	// real world need two, of which the second finds nothing.
	for range maxPasses {
		out, outStop, changed := r.pass(s, stop)
		s, stop = out, outStop
		if !changed {
			break
		}
	}
	if stop >= len(s) {
		return s
	}
	for stop > 0 && !utf8.RuneStart(s[stop]) {
		stop--
	}
	return s[:stop]
}

// maxPasses bounds the work on a text made to need many passes.
const maxPasses = 8

// URL returns u as it may be shown: like [Redactor.Text], and always without
// its password. It returns "" for nil.
func (r *Redactor) URL(u *url.URL) string {
	if u == nil {
		return ""
	}
	return r.Text(u.Redacted())
}

// Headers returns headers as they may be shown: the values of headers whose
// names say that they hold credentials become <q>, and the others go through
// [Redactor.Text]. The given headers are not changed. Never write the result
// into a message.
func (r *Redactor) Headers(headers []adapters.Header) []adapters.Header {
	out := slices.Clone(headers)
	for i, h := range out {
		if r.hides(h.Key) {
			if len(h.Value) == 0 || string(h.Value) == PlaceholderSecret {
				continue
			}
			r.hits[ruleHeader].Add(1)
			out[i].Value = []byte(PlaceholderSecret)
			continue
		}
		value := string(h.Value)
		if shown := r.Text(value); shown != value {
			out[i].Value = []byte(shown)
		}
	}
	return out
}

func (r *Redactor) hides(name string) bool {
	if slices.ContainsFunc(r.hide, func(n string) bool { return strings.EqualFold(n, name) }) {
		return true
	}
	return !r.off[ruleHeader] && hiddenHeader(name)
}

// DropHeaders returns the names to leave out of dead letters, as configured.
func (r *Redactor) DropHeaders() []string { return slices.Clone(r.drop) }

// DroppedHeaders returns the names of those headers that are left out of the
// dead letter, each once and as the message spells it; nil if there are none.
func (r *Redactor) DroppedHeaders(headers []adapters.Header) []string {
	if len(r.drop) == 0 {
		return nil
	}
	var dropped []string
	for _, h := range headers {
		if slices.Contains(dropped, h.Key) {
			continue
		}
		if slices.ContainsFunc(r.drop, func(n string) bool { return strings.EqualFold(n, h.Key) }) {
			dropped = append(dropped, h.Key)
		}
	}
	return dropped
}

// Hits returns how often each rule that is on, and each user pattern, has
// taken something out since the Redactor was made.
func (r *Redactor) Hits() map[string]uint64 {
	hits := make(map[string]uint64, len(rules)+len(r.patterns))
	for i, rule := range rules {
		if !r.on(ruleIndex(i)) {
			continue
		}
		hits[string(rule)] = r.hits[i].Load()
	}
	for i := range r.patterns {
		hits[r.patterns[i].name] = r.patterns[i].hits.Load()
	}
	return hits
}

func (r *Redactor) on(rule ruleIndex) bool {
	switch {
	case r.off[rule]:
		return false
	case rule == ruleCPF:
		return r.cpf
	case rule == ruleCNPJ:
		return r.cnpj
	default:
		return true
	}
}

func (p *userPattern) redact(s string, stop int) (string, int) {
	if !p.re.MatchString(s) { // unlike the search for all, it does not allocate
		return s, stop
	}
	e := editor{src: s, stop: stop, newStop: -1}
	for _, loc := range p.re.FindAllStringSubmatchIndex(s, -1) {
		start, end := loc[0], loc[1]
		if len(loc) >= 4 {
			start, end = loc[2], loc[3] // -1 where the group took no part
		}
		if end > start && s[start:end] != PlaceholderSecret {
			e.replace(start, end, PlaceholderSecret)
			p.hits.Add(1)
		}
	}
	s, stop, _ = e.finish()
	return s, stop
}

// editor builds a text from another with parts replaced, from left to right.
// It follows where the position stop of the source ends up.
type editor struct {
	src           string
	out           bytes.Buffer
	last          int // end of the source that is dealt with
	stop, newStop int // newStop is -1 until known
	changed       bool
}

func (e *editor) replace(start, end int, placeholder string) {
	e.changed = true
	if e.newStop < 0 && e.stop <= start {
		e.newStop = e.out.Len() + e.stop - e.last
	}
	e.out.WriteString(e.src[e.last:start])
	e.out.WriteString(placeholder)
	if e.newStop < 0 && e.stop < end {
		e.newStop = e.out.Len()
	}
	e.last = end
}

func (e *editor) finish() (s string, stop int, changed bool) {
	if !e.changed {
		return e.src, e.stop, false
	}
	if e.newStop < 0 {
		e.newStop = e.out.Len() + e.stop - e.last
	}
	e.out.WriteString(e.src[e.last:])
	return e.out.String(), e.newStop, true
}
