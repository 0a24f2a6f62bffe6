package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/internal/nearest"
	"github.com/spillway-mq/spillway/poison"
)

// check reports what can't be meant although each value is of its kind. The
// rules are those of the packages that the values are for.
func (c *Config) check(r *reader) {
	c.checkBroker(r)
	c.checkSections(r)
	if n := c.Spillway.Concurrency; n > spillway.MaxConcurrency {
		r.at("concurrency", fmt.Sprintf("must be at most %d, is %d", spillway.MaxConcurrency, n))
	}
	c.checkPolicies(r)
	for _, err := range split(c.Spillway.Names.Validate()) {
		r.at("names", strings.TrimPrefix(err.Error(), "names: "))
	}
	c.checkRedaction(r)
	c.checkConsumers(r)
	c.checkInventory(r)
	c.checkTriage(r)
}

func (c *Config) checkTriage(r *reader) {
	for _, err := range split(c.Triage.Validate()) {
		field, text, _ := strings.Cut(strings.TrimPrefix(err.Error(), "thresholds: "), ": ")
		r.at("triage."+strings.ToLower(field[:1])+field[1:], text)
	}
}

// checkInventory looks at the URL without showing any of it.
func (c *Config) checkInventory(r *reader) {
	i := &c.Inventory
	scheme, _, isURL := strings.Cut(string(i.URL), "://")
	switch {
	case strings.Contains(string(i.URL), "${"):
		r.at("inventory.url", "it holds ${, but nothing is expanded in this file: set the whole URL in "+envName("inventory.url"))
	case isURL && !slices.Contains([]string{"sqlite", "postgres", "postgresql"}, scheme):
		r.at("inventory.url", "must be the path of a file, or begin with postgres:// or sqlite://")
	}
	if i.Payloads == PayloadsKeep {
		for _, k := range []struct {
			key string
			d   time.Duration
		}{{"keepOpen", i.KeepOpen}, {"keepClosed", i.KeepClosed}} {
			if k.d != 0 {
				r.at("inventory."+k.key, "has no effect while inventory.payloads is keep: leave one of them out")
			}
		}
	}
}

// checkBroker looks at the URL without showing any of it.
func (c *Config) checkBroker(r *reader) {
	if c.BrokerURL == "" {
		return
	}
	_, u, err := c.find()
	switch {
	case strings.Contains(string(c.BrokerURL), "${"):
		r.at("broker.url", "it holds ${, but nothing is expanded in this file: set the whole URL in "+envName("broker.url"))
	case err == nil:
	case u != nil:
		var schemes []string
		for _, b := range c.brokers {
			schemes = append(schemes, b.Opener.Schemes...)
		}
		msg := err.Error()
		if near, ok := nearest.To(u.Scheme, schemes); ok {
			msg += "; did you mean " + near + "://?"
		}
		r.at("broker.url", msg)
	default:
		r.at("broker.url", err.Error())
	}
}

// checkSections looks at what is said about each kind of broker.
func (c *Config) checkSections(r *reader) {
	for _, b := range c.known() {
		if b.section == nil {
			continue
		}
		for _, err := range split(b.section(c).validate()) {
			path, text := cutField(err.Error())
			r.at("broker."+b.Name+"."+path, redactor.Text(text))
		}
	}
}

// cutField takes an error of an adapter's configuration apart: the field that it
// begins with, such as Topics["jobs"].Exchange, as a path of keys, and the rest.
func cutField(s string) (path, text string) {
	end := len(s)
	quoted := false
	var b strings.Builder
	begin := true // of a name: its capitals are small ones in a key, as in tls.ca
	for i := 0; i < end; i++ {
		switch c := s[i]; {
		case c == ' ' && !quoted:
			return b.String(), s[i+1:]
		case quoted && c == '\\' && i+1 < end:
			b.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		}
		if begin {
			b.WriteString(strings.ToLower(s[i : i+1]))
		} else {
			b.WriteByte(s[i])
		}
		begin = !quoted && (s[i] == '.' || begin && isUpper(s, i+1) && !isLower(s, i+2))
	}
	return b.String(), ""
}

func isUpper(s string, i int) bool { return i < len(s) && 'A' <= s[i] && s[i] <= 'Z' }
func isLower(s string, i int) bool { return i < len(s) && 'a' <= s[i] && s[i] <= 'z' }

// checkPolicies leaves out what follows from a value that could not be read:
// such a contradiction is with a default that nobody chose.
func (c *Config) checkPolicies(r *reader) {
	report := func(prefix, path, text string) {
		section := prefix + path[:1+strings.LastIndexByte(path, '.')]
		unread := slices.ContainsFunc(r.problems, func(p Problem) bool { return strings.HasPrefix(p.Key, section) })
		if !unread || !strings.Contains(text, "(not set here)") {
			r.at(prefix+path, text)
		}
	}
	known := map[string]bool{}
	for _, err := range split(c.Spillway.Policy.Validate()) {
		known[err.Error()] = true
		path, text := cutPath(err)
		report("policy.", path, text)
	}
	for _, handler := range slices.Sorted(maps.Keys(c.Spillway.HandlerPolicies)) {
		merged := c.Spillway.Policy.Merge(c.Spillway.HandlerPolicies[handler])
		for _, err := range split(merged.Validate()) {
			if known[err.Error()] {
				continue
			}
			path, text := cutPath(err)
			report("handlers["+strconv.Quote(handler)+"].", path, text)
		}
	}
}

// cutPath takes an error of policy.Validate apart: policy: PATH TEXT, where
// names in the path are quoted.
func cutPath(err error) (path, text string) {
	s := strings.TrimPrefix(err.Error(), "policy: ")
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ' ' && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return "", s
}

func (c *Config) checkRedaction(r *reader) {
	_, err := poison.NewRedactor(c.Spillway.Redaction)
	for _, err := range split(err) {
		path, text := "redaction", strings.TrimPrefix(err.Error(), "redaction: ")
		// Disable[0]: there is no rule ...
		if field, rest, ok := strings.Cut(text, ": "); ok && strings.HasSuffix(field, "]") && !strings.Contains(field, " ") {
			path, text = path+"."+strings.ToLower(field[:1])+field[1:], redactor.Text(rest)
		}
		// pattern "order": error parsing regexp ...
		for i, p := range c.Spillway.Redaction.Patterns {
			if rest, ok := strings.CutPrefix(text, fmt.Sprintf("pattern %q: ", p.Name)); ok {
				path, text = fmt.Sprintf("redaction.patterns[%d].regexp", i), rest
			}
		}
		r.at(path, text)
	}
}

func (c *Config) checkConsumers(r *reader) {
	var names adapters.NameRegistry
	first := map[adapters.Consumer]int{}
	for i, consumer := range c.Consumers {
		at := fmt.Sprintf("consumers[%d]", i)
		if consumer.Topic == "" {
			r.at(at, "it needs a topic")
		}
		if consumer.Group == "" {
			r.at(at, "it needs a group, or the file a top-level one")
		}
		if consumer.Owner == "" {
			r.at(at, "it needs an owner: who answers for its dead letters")
		}
		if consumer.Topic == "" || consumer.Group == "" {
			continue
		}
		key := adapters.Consumer{Topic: consumer.Topic, Group: consumer.Group}
		if j, twice := first[key]; twice {
			r.at(at, fmt.Sprintf("group %s of topic %s is consumers[%d] already", quote(key.Group), quote(key.Topic), j))
			continue
		}
		first[key] = i
		if err := names.Claim(c.Spillway.Names, key); err != nil && c.Spillway.Names.Validate() == nil {
			r.at(at, strings.TrimPrefix(err.Error(), "names: "))
		}
	}
}

// split returns the errors that were joined.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}
