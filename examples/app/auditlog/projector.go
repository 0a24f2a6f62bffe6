package auditlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// Entry of the log.
type Entry struct{ Actor, Action, Where, Subject string }

// Projector keeps the log. The zero value is ready, and safe for concurrent use.
type Projector struct {
	mu      sync.Mutex
	known   map[ref]bool // false for what was deleted
	entries []Entry
}

// ClassUnknownInstallation is a class of our own, beside those of package
// failure, to give it a policy of its own.
const ClassUnknownInstallation = failure.Class("unknown_installation")

// Policy is that of a log that gets all its events within a second: what was
// not told of after three seconds never will be. An installation, though, may
// have been made long before this log, so events of unknown ones keep the
// defaults: parked for a day, to be released by importing the installation.
func Policy() policy.Policy {
	return policy.Policy{
		Backoff: policy.Backoff{Base: 100 * time.Millisecond, Max: 2 * time.Second},
		Classes: map[failure.Class]policy.Override{
			failure.ClassReferenceNotFound: {Parking: policy.Parking{Interval: 750 * time.Millisecond, Deadline: 3 * time.Second}},
		},
	}
}

// Project is the handler. The message's type, such as "check_run.completed",
// is in its metadata.
func (p *Projector) Project(msg *message.Message) error {
	name, _, _ := strings.Cut(msg.Metadata.Get("message-type"), ".")
	k, ok := kinds[name]
	if !ok {
		return failure.Permanent(fmt.Errorf("no projection for events of kind %q", name),
			failure.ClassIncompatibleSchema, failure.Code("UNKNOWN_EVENT"))
	}
	var e event
	if err := json.Unmarshal(msg.Payload, &e); err != nil {
		return fmt.Errorf("decode %s: %w", name, err) // recognised as undecodable
	}
	entry, err := describe(name, k, &e)
	if err != nil {
		return err
	}
	if name == "deployment_review" && e.Action == "requested" {
		return failure.Waiting(errors.New("the deployment is not approved yet"), "deployment-review/"+strconv.FormatInt(e.WorkflowRun.ID, 10))
	}
	return p.record(k, &e, entry)
}

// describe makes the entry, if everything is there that one needs.
func describe(name string, k kind, e *event) (Entry, error) {
	entry := Entry{Action: strings.TrimSuffix(name+"."+e.Action, ".")}
	invalid := func(code failure.Code, format string, args ...any) (Entry, error) {
		return Entry{}, failure.Permanent(fmt.Errorf(name+": "+format, args...), failure.ClassValidation, code)
	}
	if e.Sender == nil || e.Sender.Login == "" {
		return invalid("NO_ACTOR", "the event has no sender, and an entry needs an actor")
	}
	entry.Actor = e.Sender.Login
	switch {
	case k.scope == inRepository && e.Repository == nil:
		return invalid("NO_REPOSITORY", "the event has no repository")
	case k.scope == inOrganization && e.Organization == nil:
		return invalid("NO_ORGANIZATION", "the event has no organization")
	case e.Repository != nil:
		entry.Where = e.Repository.FullName
		if _, err := time.Parse(time.RFC3339, e.Repository.CreatedAt); err != nil {
			return invalid("NO_TIME", "repository.created_at: %w", err)
		}
	case e.Organization != nil:
		entry.Where = e.Organization.Login
	}
	if k.subject != nil {
		subject := k.subject(e)
		if subject == (ref{}) {
			return invalid("NO_SUBJECT", "the event does not say what it is about")
		}
		entry.Subject = subject.String()
	}
	if name == "status" && (e.Commit == nil || e.Commit.Author == nil) {
		return invalid("NO_AUTHOR", "commit.author is null, so the status cannot be attributed")
	}
	if entry.Action == "organization.renamed" && (e.Changes == nil || e.Changes.Login == nil) {
		return invalid("NO_OLD_NAME", "the organization was renamed from nothing")
	}
	return entry, nil
}

// record appends the entry, if what it refers to is known.
func (p *Projector) record(k kind, e *event, entry Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var subject ref
	if k.subject != nil {
		subject = k.subject(e)
	}
	if alive, known := p.known[subject]; known && !alive {
		return failure.Permanent(fmt.Errorf("%s of %s, which was deleted before", entry.Action, subject),
			failure.ClassValidation, failure.Code("SUBJECT_DELETED"))
	}
	if in := installed(e); in != (ref{}) && in != subject && !p.has(in) {
		return failure.Missing(in.kind, strconv.FormatInt(in.id, 10), ClassUnknownInstallation)
	}
	if k.parent != nil {
		if parent := k.parent(e); parent != (ref{}) && !p.has(parent) {
			return failure.Missing(parent.kind, strconv.FormatInt(parent.id, 10))
		}
	}
	if subject != (ref{}) {
		if p.known == nil {
			p.known = map[ref]bool{}
		}
		p.known[subject] = e.Action != "deleted"
	}
	p.entries = append(p.entries, entry)
	return nil
}

// has says whether there was ever an event about r.
func (p *Projector) has(r ref) bool {
	_, known := p.known[r]
	return known
}

// Entries returns the log so far.
func (p *Projector) Entries() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Entry(nil), p.entries...)
}
