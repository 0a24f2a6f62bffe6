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

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
)

func groupsListVerb() verb {
	return verb{
		name:    "groups list",
		summary: "list the groups of the inventory, closed ones too if asked for",
		detail: `Recurring groups come first, then those with most open dead letters. Unlike
spillway triage it can show what is closed, and filter.`,
		examples: []string{
			"spillway groups list --state recurring",
			"spillway groups list --state closed --consumer billing",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		values: map[string]func(*call) []string{"state": func(*call) []string {
			return []string{string(triage.Fresh), string(triage.Recurring), string(triage.Residue), string(triage.Muted), string(triage.Closed), "all"}
		}},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			var f groupFilter
			fs.StringVar(&f.state, "state", "", "the `STATE`: fresh, recurring, residue, muted, closed, or all; default all but closed")
			fs.StringVar(&f.consumer, "consumer", "", "the consumer `GROUP`")
			fs.StringVar(&f.class, "class", "", "the error `CLASS`")
			fs.StringVar(&f.topic, "topic", "", "the `TOPIC`")
			fs.IntVar(&f.limit, "limit", 200, "at most `N` groups; 0 means all")
			return func(ctx context.Context, c *call) error { return listGroups(ctx, c, f) }
		},
	}
}

type groupFilter struct {
	state, consumer, class, topic string
	limit                         int
}

func (f groupFilter) takes(g triage.Group) bool {
	states := map[string]bool{"": g.State != triage.Closed, "all": true, string(g.State): true}
	return states[f.state] && (f.class == "" || f.class == g.Class) &&
		(f.consumer == "" || slices.Contains(strings.Split(g.Consumer, ", "), f.consumer)) &&
		(f.topic == "" || slices.ContainsFunc(g.Topics, func(n triage.NameCount) bool { return n.Name == f.topic }))
}

// groupJSON is a group of the inventory as JSON: that of triage, and more.
type groupJSON struct {
	triage.Group
	Open     int64  `json:"open"`
	Total    int64  `json:"total"`
	StateWhy string `json:"stateReason,omitempty"`
}

func describeGroup(t inventory.Triage, g triage.Group) groupJSON {
	kept := t.Groups[g.ID]
	return groupJSON{Group: g, Open: kept.Open, Total: kept.Total, StateWhy: t.Standings[g.ID].Why}
}

func triageOf(ctx context.Context, cfg *config.Config, s *inventory.Store) (inventory.Triage, error) {
	redact, err := redactor(cfg)
	if err != nil {
		return inventory.Triage{}, err
	}
	return s.Triage(ctx, inventory.TriageOptions{Redact: redact.Text, Thresholds: cfg.Triage.Thresholds})
}

func listGroups(ctx context.Context, c *call, f groupFilter) error {
	if known := []string{"", "all", "fresh", "recurring", "residue", "muted", "closed"}; !slices.Contains(known, f.state) {
		return usagef("--state is %q; there are %s", f.state, strings.Join(known[1:], ", "))
	}
	if f.limit < 0 {
		return usagef("--limit must be 0, for all, or more, is %d", f.limit)
	}
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		t, err := triageOf(ctx, cfg, s)
		if err != nil {
			return err
		}
		var groups []triage.Group
		for _, g := range slices.Concat(t.Report.Groups, t.Closed) {
			if f.takes(g) {
				groups = append(groups, g)
			}
		}
		more := 0
		if f.limit > 0 {
			more = max(0, len(groups)-f.limit)
			groups = groups[:len(groups)-more]
		}
		var none error
		if len(groups) == 0 {
			none = codedError{exitNothing, errors.New("no group matches")}
		}
		switch c.output {
		case "json":
			all := make([]groupJSON, len(groups))
			for i, g := range groups {
				all[i] = describeGroup(t, g)
			}
			return cmp.Or(c.json(map[string]any{"groups": all, "more": more}), none)
		case "jsonl":
			for _, g := range groups {
				if err := c.json(describeGroup(t, g)); err != nil {
					return err
				}
			}
			return none
		}
		tw := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "GROUP\tSTATE\tCLASS\tCONSUMER\tVERSION\tOPEN\tTOTAL\tLAST FAILED\tSIGNATURE")
		for _, g := range groups {
			k := t.Groups[g.ID]
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.ID, g.State, clean(shorten(g.Class, 40)), clean(shorten(g.Consumer, 40)), clean(shorten(g.ConsumerVersion, 40)),
				number(k.Open), number(k.Total), moment(k.LastFailed), clean(shorten(g.Signature, 60)))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		if more > 0 {
			fmt.Fprintf(c.out, "and %s more: --limit\n", number(int64(more)))
		}
		return none
	})
}

// shorten cuts a text for a column.
func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

func groupsShowVerb() verb {
	return verb{
		name:     "groups show",
		args:     "GROUP",
		summary:  "show all that is known of a group: verdict, episodes, decisions, samples",
		detail:   "GROUP is the id that spillway triage prints, or its beginning.",
		examples: []string{"spillway groups show g4kqzr7"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		least:    1,
		most:     1,
		values:   map[string]func(*call) []string{"": groupIDs},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			samples := fs.Int("samples", 5, "show `N` dead letters, those that failed last")
			return func(ctx context.Context, c *call) error { return showGroup(ctx, c, *samples) }
		},
	}
}

// sampleJSON is a dead letter of a group, without its payload.
type sampleJSON struct {
	ID        string     `json:"deadLetterId"`
	State     string     `json:"state"`
	MessageID string     `json:"messageId,omitempty"`
	Aggregate string     `json:"aggregate,omitempty"`
	FailedAt  *time.Time `json:"failedAt"`
	Message   string     `json:"message"`
}

func showGroup(ctx context.Context, c *call, samples int) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		kept, err := s.Group(ctx, c.args[0])
		if err != nil {
			return err
		}
		t, err := triageOf(ctx, cfg, s)
		if err != nil {
			return err
		}
		all := slices.Concat(t.Report.Groups, t.Closed)
		i := slices.IndexFunc(all, func(g triage.Group) bool { return g.ID == kept.ID })
		if i < 0 {
			return fmt.Errorf("group %s: %w", kept.ID, inventory.ErrNotFound)
		}
		g := all[i]
		decisions, err := s.Dispositions(ctx, inventory.DispositionFilter{Class: g.Class, SignatureID: g.SignatureID})
		if err != nil {
			return err
		}
		letters, err := s.DeadLetters(ctx, inventory.Filter{Group: g.ID, Limit: max(samples, 1)})
		if err != nil {
			return err
		}
		redact, err := redactor(cfg)
		if err != nil {
			return err
		}
		list := []sampleJSON{}
		for _, e := range letters[:min(len(letters), max(samples, 0))] {
			d := e.DeadLetter
			list = append(list, sampleJSON{d.ID, string(e.State), d.FailedMessage.ID, d.FailedMessage.Aggregate, known(e.FailedAt), redact.Text(d.Failure.Message)})
		}
		if c.output != "table" {
			described := []dispositionJSON{}
			for _, d := range decisions {
				described = append(described, describeDisposition(d))
			}
			return c.json(map[string]any{"group": describeGroup(t, g), "decisions": described, "samples": list})
		}
		return printGroup(c.out, t, g, decisions, list)
	})
}

func printGroup(out io.Writer, t inventory.Triage, g triage.Group, decisions []inventory.Disposition, samples []sampleJSON) error {
	k, st := t.Groups[g.ID], t.Standings[g.ID]
	fmt.Fprintf(out, "%s  %s\n", g.ID, clean(g.Signature))
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tw, "  %s\t%s\n", name, clean(value))
		}
	}
	state := string(g.State)
	if st.Why != "" {
		state += ": " + st.Why
	}
	row("state", state)
	row("dead letters", fmt.Sprintf("%s open, %s in all", number(k.Open), number(k.Total)))
	row("class", g.Class)
	row("codes", counted(g.Codes))
	row("consumer", g.Consumer+" "+g.ConsumerVersion)
	row("topics", counted(g.Topics))
	row("failed", fmt.Sprintf("%s to %s", moment(k.FirstFailed), moment(k.LastFailed)))
	if g.FirstSeen != nil {
		row("first attempts", fmt.Sprintf("%s to %s", moment(*g.FirstSeen), moment(*g.LastSeen)))
	}
	row("verdict", fmt.Sprintf("%s: %s", g.Verdict, g.VerdictReason))
	for _, s := range g.Suggestions() {
		row("next", s)
	}
	row("signature", g.SignatureID)
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(g.Episodes) > 0 {
		fmt.Fprintln(out, "episodes, of all versions")
		for _, e := range g.Episodes[max(0, len(g.Episodes)-10):] {
			fmt.Fprintf(out, "  %s to %s  %s\n", moment(e.First), moment(e.Last), number(e.Count))
		}
	}
	if len(decisions) > 0 {
		fmt.Fprintln(out, "decisions about this cause, the latest first")
		for _, d := range decisions {
			fmt.Fprintf(out, "  %s: %s\n", cmp.Or(clean(d.Version), "-"), clean(d.String()))
		}
	}
	if len(samples) > 0 {
		fmt.Fprintln(out, "dead letters that failed last")
		tw = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, e := range samples {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\n", clean(shorten(cmp.Or(e.MessageID, e.ID), 60)), e.State, moment(*cmp.Or(e.FailedAt, new(time.Time))), clean(shorten(e.Message, 80)))
		}
		return tw.Flush()
	}
	return nil
}

// counted are names with their counts, in a line.
func counted(list []triage.NameCount) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, fmt.Sprintf("%s (%s)", n.Name, number(n.Count)))
	}
	return strings.Join(parts, ", ")
}
