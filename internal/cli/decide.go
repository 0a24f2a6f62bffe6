package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
)

func closeVerb() verb {
	return verb{
		name:    "close",
		args:    "GROUP",
		summary: "record why the open dead letters of a group need nothing more",
		detail: `Closes all dead letters of the group that are open, and those that failed before
now and are collected later. What fails afterwards is open again, and shows this
decision. The reasons are a closed list:

  entity_deleted     what the message refers to is gone
  window_expired     the event has lost its validity
  producer_retired   the format is of a producer that is no more
  already_processed  another path did the work
  fixed_in_code      a version has the fix, which --version names
  handled_by_hand    somebody did what the message asked for
  accepted_loss      nobody will do it
  test_data          it was a test

GROUP is the id that spillway triage prints, or its beginning.`,
		examples: []string{
			"spillway close g4kqzr7 --reason entity_deleted --note 'tenants that left in May'",
			"# Later failures of versions below 1.9.0 are residue then, and raise no alarm:",
			"spillway close g4kqzr7 --reason fixed_in_code --version 1.9.0",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		least:   1,
		most:    1,
		values:  map[string]func(*call) []string{"": groupIDs, "reason": func(*call) []string { return reasons() }},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			d := decisionFlags(fs)
			reason := fs.String("reason", "", "the `REASON`, of the list")
			version := fs.String("version", "", "the `VERSION` of the consumer that has the fix")
			return func(ctx context.Context, c *call) error {
				d.Reason, d.FixedIn = inventory.Reason(*reason), *version
				return decide(ctx, c, d, (*inventory.Store).CloseGroup)
			}
		},
	}
}

func reopenVerb() verb {
	return verb{
		name:     "reopen",
		args:     "GROUP",
		summary:  "take back the latest closing of a group",
		detail:   "Opens the dead letters again that it closed. Both decisions stay on record.",
		examples: []string{"spillway reopen g4kqzr7 --note 'the wrong group'"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		least:    1,
		most:     1,
		values:   map[string]func(*call) []string{"": groupIDs},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			d := decisionFlags(fs)
			return func(ctx context.Context, c *call) error { return decide(ctx, c, d, (*inventory.Store).Reopen) }
		},
	}
}

func muteVerb() verb {
	return verb{
		name:    "mute",
		args:    "GROUP",
		summary: "have a group raise no alarm until a time, a number or a rate",
		detail: `What comes first ends it; a rate ends it for as long as it lasts. It closes nothing: what is muted is counted and shown, and the age of the oldest
dead letter goes on growing.`,
		examples: []string{
			"spillway mute g4kqzr7 --until 2026-12-24",
			"spillway mute g4kqzr7 --until 36h",
			"spillway mute g4kqzr7 --until 7d --until-more 1000 --until-rate 60",
			"spillway mute g4kqzr7 --until now",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		least:   1,
		most:    1,
		values:  map[string]func(*call) []string{"": groupIDs},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			d := decisionFlags(fs)
			until := fs.String("until", "", "the `TIME`: a date, a time as 2026-12-24T18:00:00Z, or how long from now; now ends it")
			fs.Int64Var(&d.UntilMore, "until-more", 0, "until `N` more dead letters of the group have come")
			fs.Int64Var(&d.UntilRate, "until-rate", 0, "until more than `N` of the group fail in an hour")
			return func(ctx context.Context, c *call) error {
				switch *until {
				case "":
					if d.UntilMore == 0 && d.UntilRate == 0 {
						return usagef("mute needs --until, --until-more or --until-rate: muting has an end")
					}
				case "now":
					if d.UntilMore != 0 || d.UntilRate != 0 {
						return usagef("--until now ends it, and stands alone")
					}
				default:
					var err error
					if d.Until, err = moreLater(*until); err != nil {
						return usagef("--until: %v", err)
					}
					if d.Until.IsZero() { // which would end it
						return usagef("--until: %s is not in the future", *until)
					}
				}
				return decide(ctx, c, d, (*inventory.Store).Mute)
			}
		},
	}
}

func decisionFlags(fs *flag.FlagSet) *inventory.Decision {
	d := new(inventory.Decision)
	fs.StringVar(&d.Note, "note", "", "what else is to be known, as `TEXT`")
	fs.StringVar(&d.Author, "author", "", "the `NAME` of who decides; default inventory.author, else the user of the system")
	fs.BoolVar(&d.DryRun, "dry-run", false, "only say what would be recorded")
	return d
}

func reasons() (names []string) {
	for _, r := range inventory.Reasons() {
		names = append(names, string(r))
	}
	return names
}

// groupIDs completes groups that have something open.
func groupIDs(c *call) (ids []string) {
	_ = c.withInventory(context.Background(), false, func(_ *config.Config, s *inventory.Store) error {
		groups, err := s.Groups(context.Background())
		for _, g := range groups {
			ids = append(ids, g.ID)
		}
		return err
	})
	return ids
}

func decide(ctx context.Context, c *call, d *inventory.Decision, do func(*inventory.Store, context.Context, inventory.Decision) (inventory.Disposition, error)) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		var err error
		if d.Author, err = author(d.Author, cfg); err != nil {
			return err
		}
		d.Group = c.args[0]
		done, err := do(s, ctx, *d)
		if errors.Is(err, inventory.ErrRefused) {
			return codedError{exitRefused, err}
		}
		if err != nil {
			return err
		}
		if c.output != "table" {
			return c.json(map[string]any{"dryRun": d.DryRun, "decision": describeDisposition(done)})
		}
		what := ""
		if d.DryRun {
			what = "would be "
		}
		if done.Action != inventory.ActionMute {
			_, err = fmt.Fprintf(c.out, "%s: %s %s%s\n", done.Group, deadLetters(done.Affected), what, clean(done.String()))
		} else {
			_, err = fmt.Fprintf(c.out, "%s: %s%s\n", done.Group, what, clean(done.String()))
		}
		return err
	})
}

// deadLetters is a number of them.
func deadLetters(n int64) string {
	if n == 1 {
		return "1 dead letter"
	}
	return number(n) + " dead letters"
}

// dispositionJSON is a decision as JSON. Its names are stable.
type dispositionJSON struct {
	Seq             int64      `json:"seq,omitempty"`
	At              time.Time  `json:"at"`
	Author          string     `json:"author"`
	Action          string     `json:"action"`
	Group           string     `json:"group"`
	Class           string     `json:"class"`
	SignatureID     string     `json:"signatureId"`
	Signature       string     `json:"signature"`
	Consumer        string     `json:"consumer"`
	ConsumerVersion string     `json:"consumerVersion"`
	Reason          string     `json:"reason,omitempty"`
	FixedIn         string     `json:"fixedIn,omitempty"`
	Note            string     `json:"note,omitempty"`
	Affected        int64      `json:"affected"`
	FirstSeen       *time.Time `json:"firstSeen,omitempty"`
	LastSeen        *time.Time `json:"lastSeen,omitempty"`
	Until           *time.Time `json:"until,omitempty"`
	UntilTotal      int64      `json:"untilTotal,omitempty"`
	UntilRate       int64      `json:"untilRate,omitempty"`
	TakesBack       int64      `json:"takesBack,omitempty"`
}

func describeDisposition(d inventory.Disposition) dispositionJSON {
	return dispositionJSON{
		Seq: d.Seq, At: d.At.UTC(), Author: d.Author, Action: string(d.Action), Group: d.Group, Class: d.Class,
		SignatureID: d.SignatureID, Signature: d.Signature, Consumer: d.Consumers, ConsumerVersion: d.Version,
		Reason: string(d.Reason), FixedIn: d.FixedIn, Note: d.Note, Affected: d.Affected,
		FirstSeen: known(d.FirstSeen), LastSeen: known(d.LastSeen), Until: known(d.Until), UntilTotal: d.UntilTotal, UntilRate: d.UntilRate, TakesBack: d.Of,
	}
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// moreLater reads a time after now: a date, a time, or a length of time, which
// may be in days.
func moreLater(s string) (time.Time, error) {
	if d, ok := lengthOf(s); ok {
		return time.Now().Add(d).UTC(), nil
	}
	return momentOf(s)
}

// since reads a time before now, in the same forms.
func since(s string) (time.Time, error) {
	if d, ok := lengthOf(s); ok {
		return time.Now().Add(-d).UTC(), nil
	}
	return momentOf(s)
}

func momentOf(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("want a date, a time such as 2026-12-24T18:00:00Z, or a length such as 36h or 7d, not %q", s)
}

var days = regexp.MustCompile(`^(\d{1,4})(d|w)$`)

func lengthOf(s string) (time.Duration, bool) {
	if m := days.FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[1])
		if m[2] == "w" {
			n *= 7
		}
		return time.Duration(n) * 24 * time.Hour, true
	}
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	return d, err == nil && d > 0
}
