package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/policy"
)

func whereVerb() verb {
	return verb{
		name:    "where",
		args:    "ID",
		summary: "find a message: where it is, what happened to it, what happens next",
		detail: `ID is the id of a business object, a message, or a dead letter, or a key. It is
looked for in the inventory, closed dead letters included, and in the retry,
parking, suspect and dead letter streams of the configured consumers, where the
broker can be looked at without taking messages. What could not be looked at is
said, with how much is there.`,
		examples: []string{"spillway where order-4711", "spillway where order-4711 --output json"},
		formats:  []string{"table", "json"},
		config:   true,
		least:    1,
		most:     1,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			kept := fs.Bool("inventory-only", false, "do not look at the broker")
			limit := fs.Int("limit", 20, "at most `N` places")
			return func(ctx context.Context, c *call) error { return where(ctx, c, *kept, *limit) }
		},
	}
}

// The JSON form of what was found. Its names are stable.
type (
	whereJSON struct {
		ID          string      `json:"id"`
		Found       []placeJSON `json:"found"`
		NotLookedAt []gapJSON   `json:"notLookedAt"`
	}
	placeJSON struct {
		Where        string      `json:"where"` // inventory, or the kind of stream
		Stream       string      `json:"stream,omitempty"`
		Consumer     string      `json:"consumer"`
		Topic        string      `json:"topic"`
		MessageID    string      `json:"messageId,omitempty"`
		Aggregate    string      `json:"aggregate,omitempty"`
		DeadLetterID string      `json:"deadLetterId,omitempty"`
		Group        string      `json:"group,omitempty"`
		State        string      `json:"state"`
		History      []eventJSON `json:"history"`
		Next         string      `json:"next"`
	}
	eventJSON struct {
		At   *time.Time `json:"at"`
		What string     `json:"what"`
	}
	gapJSON struct {
		Stream   string `json:"stream"`
		Why      string `json:"why"`
		Messages *int64 `json:"messages,omitempty"`
	}
)

func where(ctx context.Context, c *call, kept bool, limit int) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	w := whereJSON{ID: c.args[0], Found: []placeJSON{}, NotLookedAt: []gapJSON{}}
	if err := w.inInventory(ctx, c, cfg, limit); err != nil {
		return err
	}
	switch {
	case kept:
	case cfg.BrokerURL == "":
		w.NotLookedAt = append(w.NotLookedAt, gapJSON{Stream: "all of them", Why: "no broker is configured"})
	default:
		if err := withBroker(ctx, cfg, func(b adapters.Broker) error { return w.onBroker(ctx, cfg, b, limit) }); err != nil {
			return err
		}
	}
	if c.output == "json" {
		err = c.json(w)
	} else {
		err = w.print(c)
	}
	if err == nil && len(w.Found) == 0 {
		return codedError{exitNothing, fmt.Errorf("%s was not found where it could be looked for", clean(w.ID))}
	}
	return err
}

func (w *whereJSON) inInventory(ctx context.Context, c *call, cfg *config.Config, limit int) error {
	if url := cmp.Or(string(cfg.Inventory.URL), config.DefaultInventory); !inventory.Exists(url) {
		w.NotLookedAt = append(w.NotLookedAt, gapJSON{Stream: "the inventory", Why: "there is none yet: spillway collect makes it"})
		return nil
	}
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		found, err := s.Find(ctx, w.ID, limit)
		if err != nil {
			return err
		}
		redact, err := redactor(cfg)
		if err != nil {
			return err
		}
		for _, e := range found {
			place, err := inventoryPlace(ctx, s, e, redact.Text)
			if err != nil {
				return err
			}
			w.Found = append(w.Found, place)
		}
		return nil
	})
}

func inventoryPlace(ctx context.Context, s *inventory.Store, e inventory.Entry, redact func(string) string) (placeJSON, error) {
	d := e.DeadLetter
	p := placeJSON{
		Where: "inventory", Stream: e.Stream, Consumer: d.Consumer.Group, Topic: d.Source.Topic, MessageID: d.FailedMessage.ID,
		Aggregate: d.FailedMessage.Aggregate, DeadLetterID: d.ID, Group: e.Group, State: string(e.State),
	}
	f := d.Failure
	if d.Replay.Count > 0 {
		p.add(time.Time{}, fmt.Sprintf("sent back %s, the last time as %s of dead letter %s", times(d.Replay.Count), d.Replay.ID, d.Replay.Of))
	}
	if !f.FirstAttemptAt.IsZero() && !f.FirstAttemptAt.Equal(f.FailedAt) {
		p.add(f.FirstAttemptAt, "first attempt")
	}
	p.add(f.FailedAt, fmt.Sprintf("dead-lettered after %s (%s): %s: %s", count(f.Attempts, "attempt"), cmp.Or(f.Reason, "no reason known"), f.Class, shorten(redact(f.Message), 200)))
	if e.LeftOut {
		p.add(e.CollectedAt, "looked at in "+e.Stream+", where it still is; its payload was left out")
	} else {
		p.add(e.CollectedAt, "collected from "+e.Stream)
	}
	g, err := s.Group(ctx, e.Group)
	if err != nil {
		return p, err
	}
	standings, err := s.Standings(ctx, []inventory.Group{g})
	if err != nil {
		return p, err
	}
	if e.State == inventory.MessageClosed {
		decisions, err := s.Dispositions(ctx, inventory.DispositionFilter{Group: e.Group})
		if err != nil {
			return p, err
		}
		for _, decision := range decisions {
			if decision.Seq == e.ClosedBy {
				p.add(e.ClosedAt, decision.String())
			}
		}
	}
	if !e.PurgedAt.IsZero() {
		p.add(e.PurgedAt, "payload, key and headers purged")
	}
	if e.State == inventory.MessageClosed {
		p.Next = "nothing: it is closed; spillway reopen " + e.Group + " takes that back"
	} else {
		p.Next = "nothing by itself: its group " + e.Group + " (" + string(standings[e.Group].State) + ") needs a decision, a replay or spillway close"
	}
	return p, nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (p *placeJSON) add(at time.Time, what string) {
	p.History = append(p.History, eventJSON{known(at), what})
}

// The streams of a consumer that a message may be in.
var lookedAt = []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect, adapters.StreamDeadLetter}

func (w *whereJSON) onBroker(ctx context.Context, cfg *config.Config, b adapters.Broker, limit int) error {
	redact, err := redactor(cfg)
	if err != nil {
		return err
	}
	peeker, peeks := b.(adapters.Peeker)
	for _, consumer := range cfg.Consumers {
		for _, kind := range lookedAt {
			stream := streamOf(cfg, kind, consumer)
			if !peeks {
				w.gap(ctx, b, stream, b.Capabilities().Broker+" shows messages only to those who take them, which counts as a delivery")
				continue
			}
			err := peeker.Peek(ctx, stream, func(_ context.Context, r adapters.Record) error {
				s := envelope.Parse(r.Headers, time.Now())
				if !w.is(cfg, r, s) {
					return nil
				}
				if len(w.Found) >= limit {
					return errEnough
				}
				w.Found = append(w.Found, streamPlace(cfg, kind, stream, consumer, r, s, redact.Text))
				return nil
			})
			switch {
			case errors.Is(err, errEnough):
				return nil
			case errors.Is(err, adapters.ErrUnsupported):
				w.gap(ctx, b, stream, err.Error())
			case err != nil:
				return err
			}
		}
	}
	return nil
}

var errEnough = errors.New("enough was found")

// gap notes a stream that could not be looked into, unless it is known to be
// empty.
func (w *whereJSON) gap(ctx context.Context, b adapters.Broker, stream, why string) {
	g := gapJSON{Stream: stream, Why: why}
	if counter, ok := b.(adapters.Counter); ok {
		n, err := counter.Count(ctx, stream)
		switch {
		case err == nil && n == 0:
			return
		case err == nil:
			g.Messages = &n
		default:
			g.Why += "; and it could not be counted: " + redact(err.Error())
		}
	}
	w.NotLookedAt = append(w.NotLookedAt, g)
}

// is reports whether a record is what is looked for.
func (w *whereJSON) is(cfg *config.Config, r adapters.Record, s envelope.State) bool {
	if s.Aggregate == "" {
		cfg.Spillway.Metadata.Describe(&s, r.Headers)
	}
	return w.ID != "" && slices.Contains([]string{r.ID, string(r.Key), s.Aggregate, s.DeadLetterID, s.ReplayOf, s.Reference}, w.ID)
}

func streamPlace(cfg *config.Config, kind adapters.Stream, stream string, consumer config.Consumer, r adapters.Record, s envelope.State, redact func(string) string) placeJSON {
	p := placeJSON{
		Where: string(kind), Stream: stream, Consumer: consumer.Group, Topic: consumer.Topic, MessageID: r.ID, Aggregate: s.Aggregate, DeadLetterID: s.DeadLetterID,
	}
	if !s.FirstAttemptAt.IsZero() && !s.FirstAttemptAt.Equal(s.DeadLetteredAt) {
		p.add(s.FirstAttemptAt, "first attempt")
	}
	failure := fmt.Sprintf("%s: %s", cmp.Or(string(s.Class), "unknown"), shorten(redact(s.Message), 200))
	switch kind {
	case adapters.StreamRetry:
		p.State = "waits for its next attempt"
		p.add(time.Time{}, "failed last with "+failure)
		p.Next = fmt.Sprintf("attempt %d, due %s", max(s.Attempt, 1), due(s.DueAt))
	case adapters.StreamSuspect:
		p.State = "suspected of having killed its consumer"
		p.Next = "it is handled alone, and dead-lettered as consumer_crash if that ends the process again"
	case adapters.StreamParking:
		p.State = "parked"
		p.add(s.ParkedAt, "parked with "+failure)
		deadline := parking(cfg, s).DeadlineWithoutReference
		if s.Reference != "" {
			p.State += " until " + s.Reference + " exists"
			deadline = parking(cfg, s).Deadline
		}
		p.Next = "tried again " + due(s.DueAt)
		if !s.ParkedAt.IsZero() {
			p.Next += ", and given up about " + moment(s.ParkedAt.Add(deadline))
		}
	default:
		p.State = "dead-lettered, not collected"
		p.add(s.DeadLetteredAt, fmt.Sprintf("dead-lettered after %s (%s): %s", count(max(s.Attempt, 1), "attempt"), cmp.Or(s.Reason, "no reason known"), failure))
		p.Next = "spillway collect brings it into the inventory"
	}
	return p
}

func due(t time.Time) string {
	if t.IsZero() || !t.After(time.Now()) {
		return "now"
	}
	return "at " + t.UTC().Format("2006-01-02 15:04:05")
}

// parking is what the policy says about a parked message.
func parking(cfg *config.Config, s envelope.State) policy.Parking {
	p := cfg.Spillway.Policy.Merge(cfg.Spillway.HandlerPolicies[s.Handler])
	if o, ok := p.Classes[s.Class]; ok {
		p = p.Merge(policy.Policy{Parking: o.Parking})
	}
	return p.WithDefaults().Parking
}

func (w *whereJSON) print(c *call) error {
	for _, p := range w.Found {
		in := p.Where + " stream " + p.Stream
		if p.Where == "inventory" {
			in = "inventory"
		}
		fmt.Fprintf(c.out, "%s of %s, for group %s: %s\n", clean(cmp.Or(p.MessageID, p.DeadLetterID, "a message without an id")), clean(cmp.Or(p.Topic, "an unknown topic")), clean(p.Consumer), clean(p.State))
		fmt.Fprintf(c.out, "  in the %s\n", clean(in))
		for _, e := range p.History {
			at := "                   "
			if e.At != nil {
				at = e.At.Format("2006-01-02 15:04:05")
			}
			fmt.Fprintf(c.out, "  %s  %s\n", at, clean(e.What))
		}
		fmt.Fprintf(c.out, "  next: %s\n", clean(p.Next))
	}
	for _, g := range w.NotLookedAt {
		what := clean(g.Stream)
		if g.Messages != nil {
			what += ", with " + count(int(*g.Messages), "message")
		}
		fmt.Fprintf(c.out, "not looked at: %s: %s\n", what, clean(g.Why))
	}
	return nil
}
