package adapters

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Names are the templates of stream names. {topic} and {group} are replaced.
// Empty fields mean the defaults. Names depend on nothing that a change of
// policy would move.
type Names struct {
	Retry      string // default "{topic}.{group}.retry"
	Parking    string // default "{topic}.{group}.parking"
	DeadLetter string // default "{topic}.{group}.dlq"
	Suspect    string // default "{topic}.{group}.suspect"
}

// WithDefaults fills the empty fields.
func (n Names) WithDefaults() Names {
	return Names{
		Retry:      cmp.Or(n.Retry, "{topic}.{group}.retry"),
		Parking:    cmp.Or(n.Parking, "{topic}.{group}.parking"),
		DeadLetter: cmp.Or(n.DeadLetter, "{topic}.{group}.dlq"),
		Suspect:    cmp.Or(n.Suspect, "{topic}.{group}.suspect"),
	}
}

// Validate reports every template that lacks {topic} or {group}, or equals
// another one.
func (n Names) Validate() error {
	n = n.WithDefaults()
	var errs []error
	seen := map[string]Stream{}
	for _, s := range []Stream{StreamRetry, StreamParking, StreamDeadLetter, StreamSuspect} {
		t := n.template(s)
		for _, part := range []string{"{topic}", "{group}"} {
			if strings.Count(t, part) != 1 {
				errs = append(errs, fmt.Errorf("names: the %s template %q must contain %s exactly once", s, t, part))
			}
		}
		if other, ok := seen[t]; ok {
			errs = append(errs, fmt.Errorf("names: the %s and %s templates are both %q", other, s, t))
		}
		seen[t] = s
	}
	return errors.Join(errs...)
}

func (n Names) template(s Stream) string {
	switch s {
	case StreamRetry:
		return n.Retry
	case StreamParking:
		return n.Parking
	case StreamDeadLetter:
		return n.DeadLetter
	case StreamSuspect:
		return n.Suspect
	default:
		return "{topic}"
	}
}

// Of returns the name of a stream of c. The main stream is the topic itself.
func (n Names) Of(s Stream, c Consumer) string {
	if s == StreamMain {
		return c.Topic
	}
	// Not one replacement after the other: a topic may look like a template.
	before, after, _ := strings.Cut(n.WithDefaults().template(s), "{topic}")
	return strings.Replace(before, "{group}", c.Group, 1) + c.Topic + strings.Replace(after, "{group}", c.Group, 1)
}

// IsDeadLetter reports whether topic has the form of a dead letter stream's
// name.
func (n Names) IsDeadLetter(topic string) bool {
	t := n.WithDefaults().DeadLetter
	head, _, _ := strings.Cut(t, "{")
	tail := t[strings.LastIndex(t, "}")+1:]
	return strings.HasPrefix(topic, head) && strings.HasSuffix(topic, tail) && len(topic) > len(head)+len(tail) && head+tail != ""
}

// NameRegistry finds two consumers whose streams would share a name, such as
// group "c" of topic "a.b" and group "b.c" of topic "a". The zero value is
// ready; it is safe for concurrent use.
type NameRegistry struct {
	mu     sync.Mutex
	owners map[string]owner
	topics map[string]string // main streams, with a group that reads them
}

type owner struct {
	topic, group string
	stream       Stream
}

// Claim records the names of c's own streams, and fails when one of them
// belongs to another consumer.
func (r *NameRegistry) Claim(n Names, c Consumer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owners == nil {
		r.owners, r.topics = map[string]owner{}, map[string]string{}
	}
	// Dead letter streams may have consumers of their own; nobody else may read
	// what comes back to a consumer.
	if have, ok := r.owners[c.Topic]; ok && have.stream != StreamDeadLetter {
		return fmt.Errorf("names: topic %q of group %q is the %s stream of group %q on topic %q: change a group, or the templates",
			c.Topic, c.Group, have.stream, have.group, have.topic)
	}
	r.topics[c.Topic] = c.Group
	for _, s := range []Stream{StreamRetry, StreamParking, StreamDeadLetter, StreamSuspect} {
		name := n.Of(s, c)
		want := owner{c.Topic, c.Group, s}
		if have, ok := r.owners[name]; ok && have != want {
			return fmt.Errorf("names: stream %q would be both the %s stream of group %q on topic %q and the %s stream of group %q on topic %q: change a group, or the templates",
				name, have.stream, have.group, have.topic, s, c.Group, c.Topic)
		}
		if group, ok := r.topics[name]; ok && s != StreamDeadLetter {
			return fmt.Errorf("names: stream %q would be both the %s stream of group %q on topic %q and the topic of group %q: change a group, or the templates",
				name, s, c.Group, c.Topic, group)
		}
		r.owners[name] = want
	}
	return nil
}
