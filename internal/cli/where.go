package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/poison/foreign"
	"github.com/spillway-mq/spillway/policy"
	"github.com/spillway-mq/spillway/triage"
)

func whereVerb() verb {
	return verb{
		name:    "where",
		args:    "ID",
		summary: "find a message: where it is, what happened to it, and what happens next",
		detail: `ID is that of a message, of a dead letter, of the business object that a message
is about, or a message's key. It is looked for in the retry, suspect, parking and
dead letter streams of the configured consumers, where the broker can be looked
into without taking anything, and in the inventory, among open and closed dead
letters. Exit code 3 means that it is nowhere there; then it was processed, lies
in a topic, or is in a stream that could not be looked into, which is said.`,
		examples: []string{
			"spillway where order-4711",
			"spillway where 0197a3c2-5b1e-7c3e-9d0a-4e1f2a3b4c5d --output json",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		least:   1,
		most:    1,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			limit := fs.Int("limit", 50, "at most `N` places of each stream, and of the inventory")
			return func(ctx context.Context, c *call) error {
				if *limit < 1 {
					return usagef("--limit must be at least 1, is %d", *limit)
				}
				return where(ctx, c, *limit)
			}
		},
	}
}

// whereabouts is what was found. The names of its JSON form are stable.
type whereabouts struct {
	ID     string  `json:"id"`
	Places []place `json:"places"` // those that failed first come first
	// NotLookedInto are streams of which it is not known.
	NotLookedInto []unseen `json:"notLookedInto"`
}

type unseen struct {
	Stream  string `json:"stream"`
	Records *int64 `json:"records,omitempty"` // that lie in it, where that is known
	Why     string `json:"why"`
}

// The kinds of [place].
const (
	inRetry   = "retry"
	inSuspect = "suspect"
	inParking = "parked"
	inStream  = "dead letter stream"
	isOpen    = "dead letter"
	isClosed  = "closed"
)

// place is where a message is. Its names are stable.
type place struct {
	Place        string     `json:"place"`
	Stream       string     `json:"stream"`
	Topic        string     `json:"topic,omitempty"`
	Consumer     string     `json:"consumer,omitempty"`
	Version      string     `json:"consumerVersion,omitempty"`
	Handler      string     `json:"handler,omitempty"`
	MessageID    string     `json:"messageId,omitempty"`
	Key          string     `json:"key,omitempty"`
	Aggregate    string     `json:"aggregate,omitempty"`
	DeadLetterID string     `json:"deadLetterId,omitempty"`
	ReplayOf     string     `json:"replayOf,omitempty"`
	Attempts     int        `json:"attempts,omitempty"`
	FirstAttempt *time.Time `json:"firstAttemptAt,omitempty"`
	FailedAt     *time.Time `json:"failedAt,omitempty"`
	Class        string     `json:"class,omitempty"`
	Code         string     `json:"code,omitempty"`
	Message      string     `json:"message,omitempty"`
	Reason       string     `json:"reason,omitempty"` // why it is a dead letter
	Reference    string     `json:"reference,omitempty"`
	Group        string     `json:"group,omitempty"` // of triage
	DueAt        *time.Time `json:"dueAt,omitempty"`
	Next         string     `json:"next"`
}

func where(ctx context.Context, c *call, limit int) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	redact, err := redactor(cfg)
	if err != nil {
		return err
	}
	s := &search{cfg: cfg, redact: redact, limit: limit, found: whereabouts{ID: c.args[0], Places: []place{}, NotLookedInto: []unseen{}}}
	if cfg.BrokerURL == "" {
		s.unseen("all streams", "no broker is named: set SPILLWAY_BROKER_URL, or broker.url in a file")
	} else if err := withBroker(ctx, cfg, func(b adapters.Broker) error { return s.streams(ctx, b) }); err != nil {
		return err
	}
	url := cmp.Or(string(cfg.Inventory.URL), config.DefaultInventory)
	if !inventory.Exists(url) {
		s.unseen("the inventory", "there is none: spillway collect makes it")
	} else if err := c.withInventory(ctx, false, func(_ *config.Config, store *inventory.Store) error { return s.inventory(ctx, store) }); err != nil {
		return err
	}
	slices.SortStableFunc(s.found.Places, func(a, b place) int { return a.since().Compare(b.since()) })
	switch c.output {
	case "json":
		err = c.json(s.found)
	case "jsonl":
		for _, p := range s.found.Places {
			if err := c.json(p); err != nil {
				return err
			}
		}
	default:
		err = s.found.print(c.out)
	}
	if err == nil && len(s.found.Places) == 0 {
		err = codedError{exitNothing, fmt.Errorf("%s was not found", quoted(s.found.ID))}
	}
	return err
}

func quoted(s string) string { return fmt.Sprintf("%q", shorten(s, 100)) }

// since is the time by which places are in order.
func (p place) since() time.Time {
	return *cmp.Or(p.FirstAttempt, p.FailedAt, new(time.Time))
}

// search collects what is found.
type search struct {
	cfg    *config.Config
	redact *poison.Redactor
	limit  int
	found  whereabouts
}

func (s *search) unseen(stream, why string) {
	s.found.NotLookedInto = append(s.found.NotLookedInto, unseen{Stream: stream, Why: why})
}

// streams looks into those of the configured consumers.
func (s *search) streams(ctx context.Context, b adapters.Broker) error {
	if len(s.cfg.Consumers) == 0 {
		s.unseen("all streams", "the configuration lists no consumers")
	}
	for _, consumer := range s.cfg.Consumers {
		for _, which := range []adapters.Stream{adapters.StreamRetry, adapters.StreamSuspect, adapters.StreamParking, adapters.StreamDeadLetter} {
			if err := s.stream(ctx, b, which, streamOf(s.cfg, which, consumer)); err != nil {
				return err
			}
		}
	}
	return nil
}

// errEnough ends a look into a stream.
var errEnough = errors.New("enough was found")

func (s *search) stream(ctx context.Context, b adapters.Broker, which adapters.Stream, name string) error {
	err := adapters.ErrUnsupported
	if peeker, ok := b.(adapters.Peeker); ok {
		n := 0
		err = peeker.Peek(ctx, name, func(_ context.Context, r adapters.Record) error {
			p, ok := s.lying(b, which, name, r)
			if !ok {
				return nil
			}
			s.found.Places = append(s.found.Places, p)
			if n++; n == s.limit {
				return errEnough
			}
			return nil
		})
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errEnough):
		s.unseen(name, fmt.Sprintf("the rest of it, after %d: --limit", s.limit))
		return nil
	case !errors.Is(err, adapters.ErrUnsupported):
		return fmt.Errorf("where: %w", err)
	}
	u := unseen{Stream: name, Why: "the broker cannot be looked into without taking what lies there"}
	if counter, ok := b.(adapters.Counter); ok {
		n, err := counter.Count(ctx, name)
		if err == nil && n == 0 {
			// It does not count what waits for its due time elsewhere.
			if which == adapters.StreamDeadLetter || which == adapters.StreamSuspect {
				return nil
			}
		}
		if err == nil {
			u.Records = &n
		}
	}
	s.found.NotLookedInto = append(s.found.NotLookedInto, u)
	return nil
}

// lying is the place of a record of a stream, if it is the one.
func (s *search) lying(b adapters.Broker, which adapters.Stream, name string, r adapters.Record) (place, bool) {
	if which == adapters.StreamDeadLetter {
		d, _ := foreign.Decode(r, foreign.From{Broker: b.Capabilities().Broker, Stream: name, Names: s.cfg.Spillway.Names, Redactor: s.redact})
		if !s.is(d.ID, d.FailedMessage.ID, d.FailedMessage.Aggregate, string(d.FailedMessage.Key), d.Replay.Of) {
			return place{}, false
		}
		p := s.dead(d)
		p.Place, p.Stream, p.Next = inStream, name, "not collected yet: spillway collect"
		return p, true
	}
	now := time.Now()
	st := envelope.Parse(r.Headers, now)
	s.cfg.Spillway.Metadata.Describe(&st, r.Headers)
	if !s.is(r.ID, st.Aggregate, string(r.Key), st.ReplayOf) {
		return place{}, false
	}
	p := place{
		Place: inRetry, Stream: name, Topic: st.Source.Topic, Consumer: st.ConsumerGroup, Version: st.ConsumerVersion, Handler: st.Handler,
		MessageID: r.ID, Key: string(r.Key), Aggregate: st.Aggregate, ReplayOf: st.ReplayOf, Attempts: st.Attempt - 1, FirstAttempt: known(st.FirstAttemptAt),
		Class: string(st.Class), Code: string(st.Code), Message: s.redact.Text(st.Message), Reference: st.Reference, DueAt: known(st.DueAt),
	}
	again := fmt.Sprintf("attempt %d", st.Attempt)
	if !st.ParkedAt.IsZero() { // parking does not count on, so that the number is that of the attempt before it
		p.Attempts, again = st.Attempt, "another look"
	}
	switch which {
	case adapters.StreamParking:
		p.Place, p.Next = inParking, s.parked(st, now)
	case adapters.StreamSuspect:
		p.Place, p.Next = inSuspect, again+", alone, because it may have ended a process"
	default:
		p.Next = again + ", which is due"
		if st.DueAt.After(now) {
			p.Next = fmt.Sprintf("%s at %s", again, clock(st.DueAt))
		}
	}
	return p, true
}

// parked says what becomes of a parked message, by the policy of the
// configuration.
func (s *search) parked(st envelope.State, now time.Time) string {
	next := "looked at again when it is due"
	if st.DueAt.After(now) {
		next = "looked at again at " + clock(st.DueAt)
	}
	p := s.cfg.Spillway.Policy.Merge(s.cfg.Spillway.HandlerPolicies[st.Handler])
	f := failure.Failure{Nature: st.Nature, Class: st.Class, Code: st.Code, Reference: st.Reference, Park: true}
	h := policy.History{Attempts: st.Attempt, FirstAttemptAt: st.FirstAttemptAt, ParkedAt: st.ParkedAt, ReplayCount: st.ReplayCount}
	switch d := policy.Decide(p, f, h, now, 0.5).(type) {
	case policy.Park:
		next += ", and given up at " + clock(d.Deadline)
	case policy.DeadLetter:
		next += ", and given up then: " + string(d.Reason)
	}
	return next
}

// is reports whether one of the ids is that which is looked for.
func (s *search) is(ids ...string) bool { return slices.Contains(ids, s.found.ID) }

func (s *search) dead(d envelope.DeadLetter) place {
	m, f := d.FailedMessage, d.Failure
	return place{
		Topic: d.Source.Topic, Consumer: d.Consumer.Group, Version: d.Consumer.Version, Handler: d.Consumer.Handler,
		MessageID: m.ID, Key: string(m.Key), Aggregate: m.Aggregate, DeadLetterID: d.ID, ReplayOf: d.Replay.Of, Attempts: f.Attempts,
		FirstAttempt: known(f.FirstAttemptAt), FailedAt: known(f.FailedAt), Class: string(f.Class), Code: string(f.Code),
		Message: s.redact.Text(f.Message), Reason: f.Reason, Reference: d.Reference,
	}
}

// inventory looks among what was collected.
func (s *search) inventory(ctx context.Context, store *inventory.Store) error {
	entries, err := store.Find(ctx, s.found.ID, s.limit)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	if len(entries) == s.limit {
		s.unseen("the inventory", fmt.Sprintf("the rest of it, after %d: --limit", s.limit))
	}
	t, err := triageOf(ctx, s.cfg, store)
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := s.dead(e.DeadLetter)
		p.Place, p.Stream, p.Group = isOpen, e.Stream, e.Group
		i := slices.IndexFunc(t.Report.Groups, func(g triage.Group) bool { return g.ID == e.Group })
		if e.State == inventory.MessageOpen && i >= 0 {
			p.Next = t.Report.Groups[i].Suggestion
		}
		if e.LeftOut {
			p.Next = "only looked at, not collected yet: spillway collect"
		}
		if e.State == inventory.MessageClosed {
			p.Place, p.Next = isClosed, "nothing"
			decisions, err := store.Dispositions(ctx, inventory.DispositionFilter{Group: e.Group})
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(decisions, func(d inventory.Disposition) bool { return d.Seq == e.ClosedBy }); i >= 0 {
				p.Next = "nothing: " + decisions[i].String()
			}
		}
		s.found.Places = append(s.found.Places, p)
	}
	return nil
}

// clock is a time for people: to the second, in UTC.
func clock(t time.Time) string { return t.UTC().Format(time.DateTime) }

func (w whereabouts) print(out io.Writer) error {
	for i, p := range w.Places {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s\n", p.Place, clean(p.Stream))
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		row := func(name string, parts ...string) {
			parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
			if len(parts) > 0 {
				fmt.Fprintf(tw, "  %s\t%s\n", name, clean(strings.Join(parts, ", ")))
			}
		}
		row("consumer", labelled("", strings.TrimSpace(p.Consumer+" "+p.Version)), labelled("topic ", p.Topic), labelled("handler ", p.Handler))
		row("message", p.MessageID, labelled("key ", p.Key), labelled("about ", p.Aggregate), labelled("replay of ", p.ReplayOf))
		row("dead letter", p.DeadLetterID)
		happened := []string{labelled("after ", attempts(p.Attempts))}
		if p.FirstAttempt != nil {
			happened = append(happened, "first tried at "+clock(*p.FirstAttempt))
		}
		if p.FailedAt != nil {
			happened = append(happened, "failed at "+clock(*p.FailedAt))
		}
		row("happened", append(happened, labelled("because ", p.Reason))...)
		row("error", strings.TrimSuffix(strings.TrimSpace(p.Class+" "+p.Code)+": "+p.Message, ": "))
		row("waits for", p.Reference)
		row("group", p.Group)
		row("next", p.Next)
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if len(w.NotLookedInto) == 0 {
		return nil
	}
	if len(w.Places) > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "not looked into")
	for _, u := range w.NotLookedInto {
		holds := ""
		if u.Records != nil {
			holds = fmt.Sprintf(" (%s ready)", number(*u.Records))
		}
		if _, err := fmt.Fprintf(out, "  %s%s: %s\n", clean(u.Stream), holds, u.Why); err != nil {
			return err
		}
	}
	return nil
}

func labelled(label, s string) string {
	if s == "" {
		return ""
	}
	return label + s
}

func attempts(n int) string {
	if n < 1 {
		return ""
	}
	return count(n, "attempt")
}
