package cli

import (
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

func triageVerb() verb {
	return verb{
		name:    "triage",
		summary: "group dead letters by cause, each with a verdict and a next step",
		detail: `Reads the inventory: what is open, with what was decided earlier. Or, with
--input, dead letters as JSON lines, in Spillway's own form or in a flat one, in
one pass with bounded memory. A group is error class, consumer version and
signature. Lines that are no dead letter are counted and located, and the rest
goes on. Dead letters with the same deadLetterId count once.

Thresholds are also keys of the configuration, in the section triage; a flag comes
before them. The table shows recurring groups first, then the largest. --output json and
jsonl show all of them in a form that is stable.`,
		examples: []string{
			"# What is open?",
			"spillway triage --config spillway.yaml",
			"# What lies in this export?",
			"spillway triage --input dead.jsonl",
			"# All groups, for another program",
			"spillway triage --input - --output json < dead.jsonl",
			"# As of then: an export of last week shows what was going on when it was made",
			"spillway triage --input dead.jsonl --now 2026-11-30T12:00:00Z",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			var o triageOptions
			fs.StringVar(&o.input, "input", "", "a `FILE` of JSON lines, or - for the standard input; default the inventory")
			fs.Func("now", "the `TIME`, in RFC 3339, that counts as the present; the clock's, or the latest failure's if that is up to a day later", func(s string) (err error) {
				o.now, err = time.Parse(time.RFC3339, s)
				return err
			})
			fs.IntVar(&o.limit, "limit", 20, "`N` groups in the table; 0 for all")
			fs.BoolVar(&o.explain, "explain", false, "show the thresholds and the episodes that verdicts are drawn from")
			t := triage.Thresholds{}.WithDefaults()
			o.thresholds = t
			fs.IntVar(&o.thresholds.Handful, "handful", t.Handful, "`N` messages or fewer are isolated")
			fs.Float64Var(&o.thresholds.Share, "share", t.Share, "the `PART` that one episode holds in an incident")
			fs.Float64Var(&o.thresholds.MixedShare, "mixed-share", t.MixedShare, "the `PART` that it holds where others are mixed in")
			fs.DurationVar(&o.thresholds.Short, "short", t.Short, "an incident lasts no longer than this `TIME`")
			fs.IntVar(&o.thresholds.ManyDays, "many-days", t.ManyDays, "failures on `N` days or more are structural")
			fs.IntVar(&o.thresholds.ManyEpisodes, "many-episodes", t.ManyEpisodes, "failures in `N` episodes or more are structural")
			fs.DurationVar(&o.thresholds.Silence, "silence", t.Silence, "a silence of this `TIME` or less ends no episode")
			fs.Float64Var(&o.thresholds.Density, "density", t.Density, "nor does one of `N` times the usual one or less")
			l := triage.Limits{}.WithDefaults()
			fs.IntVar(&o.limits.Signatures, "max-signatures", l.Signatures, "`N` signatures of a consumer are told apart")
			fs.IntVar(&o.limits.Groups, "max-groups", l.Groups, "`N` groups are told apart")
			return func(ctx context.Context, c *call) error {
				cfg, err := c.load()
				if err != nil {
					return err
				}
				o.configured(cfg, fs)
				return printTriage(ctx, c, cfg, o)
			}
		},
	}
}

type triageOptions struct {
	input      string
	now        time.Time
	limit      int
	explain    bool
	thresholds triage.Thresholds
	limits     triage.Limits
}

// configured takes what the configuration says where the command line says
// nothing.
func (o *triageOptions) configured(cfg *config.Config, fs *flag.FlagSet) {
	t, d := cfg.Triage, cfg.Triage.WithDefaults()
	l := triage.Limits{Signatures: t.MaxSignatures, Groups: t.MaxGroups}.WithDefaults()
	take := map[string]func(){
		"handful":        func() { o.thresholds.Handful = d.Handful },
		"share":          func() { o.thresholds.Share = d.Share },
		"mixed-share":    func() { o.thresholds.MixedShare = d.MixedShare },
		"short":          func() { o.thresholds.Short = d.Short },
		"many-days":      func() { o.thresholds.ManyDays = d.ManyDays },
		"many-episodes":  func() { o.thresholds.ManyEpisodes = d.ManyEpisodes },
		"silence":        func() { o.thresholds.Silence = d.Silence },
		"density":        func() { o.thresholds.Density = d.Density },
		"max-signatures": func() { o.limits.Signatures = l.Signatures },
		"max-groups":     func() { o.limits.Groups = l.Groups },
	}
	fs.Visit(func(f *flag.Flag) { delete(take, f.Name) })
	for _, from := range take {
		from()
	}
}

func printTriage(ctx context.Context, c *call, cfg *config.Config, o triageOptions) error {
	if err := o.thresholds.Validate(); err != nil {
		return usagef("%w", err)
	}
	if o.limit < 0 || o.limits.Signatures < 1 || o.limits.Groups < 1 {
		return usagef("--limit is 0 or more, --max-signatures and --max-groups are 1 or more")
	}
	if o.input == "" {
		return triageInventory(ctx, c, o)
	}
	redactor, err := redactor(cfg)
	if err != nil {
		return err
	}
	in, closeInput, err := c.input(ctx, o.input)
	if err != nil {
		return err
	}
	defer closeInput()
	pass, err := triage.Read(ctx, in, o.limits)
	if err != nil {
		return fmt.Errorf("read %s: %w", inputName(o.input), err)
	}
	if o.now.IsZero() {
		o.now = triage.Present(pass.Groups)
	}
	report := triage.NewReport(pass.Groups, triage.Options{
		Now: o.now, Thresholds: o.thresholds, Redact: redactor.Text,
	})
	report.Undecodable = pass.Undecodable

	if err := writeReport(c, o, pass, report); err != nil {
		return err
	}
	notes(c.Stderr, pass, c.output != "table")
	switch {
	case pass.Messages > 0:
		return nil
	case pass.Undecodable > 0:
		return fmt.Errorf("none of %s of %s is a dead letter: one is expected on each line; jq -c '.[]' makes lines of a list, and jq -c . of what is indented", count(int(pass.Undecodable), "line"), inputName(o.input))
	default:
		return codedError{exitNothing, fmt.Errorf("there are no dead letters in %s", inputName(o.input))}
	}
}

// triageInventory prints what one pass over a file would, of what is kept.
func triageInventory(ctx context.Context, c *call, o triageOptions) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		redact, err := redactor(cfg)
		if err != nil {
			return err
		}
		if o.now.IsZero() {
			o.now = time.Now()
		}
		t, err := s.Triage(ctx, inventory.TriageOptions{Now: o.now, Thresholds: o.thresholds, Redact: redact.Text})
		if err != nil {
			return err
		}
		pass := new(triage.Pass)
		for _, g := range t.Report.Groups {
			if g.Signature == triage.Overflow {
				pass.Overflowed += g.Count
			}
		}
		if err := writeReport(c, o, pass, t.Report); err != nil {
			return err
		}
		notes(c.Stderr, pass, c.output != "table")
		if err := tellStale(ctx, c.Stderr, s); err != nil {
			return err
		}
		if t.Messages == 0 {
			return codedError{exitNothing, errors.New("no dead letter is open")}
		}
		return nil
	})
}

func writeReport(c *call, o triageOptions, pass *triage.Pass, report triage.Report) error {
	switch c.output {
	case "json":
		return c.json(report)
	case "jsonl":
		for _, g := range report.Groups {
			if err := c.json(g); err != nil {
				return err
			}
		}
	default:
		printGroups(c, o, pass, report)
	}
	return nil
}

func inputName(input string) string {
	switch input {
	case "":
		return "the inventory"
	case "-":
		return "the standard input"
	}
	return input
}

// notes tell what the groups do not.
func notes(w io.Writer, pass *triage.Pass, all bool) {
	for _, bad := range pass.BadLines {
		fmt.Fprintf(w, "line %d: %s\n", bad.Number, clean(redact(bad.Err.Error())))
	}
	if more := pass.Undecodable - int64(len(pass.BadLines)); more > 0 {
		fmt.Fprintf(w, "and %s that are no dead letter\n", count(int(more), "more line"))
	}
	if !all {
		return
	}
	if pass.Duplicates > 0 {
		fmt.Fprintf(w, "note: %s with a deadLetterId that was there before: counted once\n", count(int(pass.Duplicates), "line"))
	}
	if pass.Overflowed > 0 {
		fmt.Fprintf(w, "note: %s in groups named %s: more signatures than are told apart\n", count(int(pass.Overflowed), "message"), triage.Overflow)
	}
}

func printGroups(c *call, o triageOptions, pass *triage.Pass, r triage.Report) {
	fmt.Fprintf(c.out, "1 pass over %s: %s in %s", inputName(o.input), count(int(r.Messages), "message"), count(len(r.Groups), "group"))
	if r.Window != nil {
		fmt.Fprintf(c.out, ", first attempts %s to %s", minute(r.Window.From), minute(r.Window.To))
	}
	fmt.Fprintf(c.out, ", as of %s\n", minute(o.now))
	switch {
	case r.Undecodable > 0 && o.input == "":
		fmt.Fprintf(c.out, "%s undecodable: spillway quarantine list\n", count(int(r.Undecodable), "record"))
	case r.Undecodable > 0:
		fmt.Fprintf(c.out, "%s undecodable\n", count(int(r.Undecodable), "line"))
	}
	if pass.Duplicates > 0 {
		fmt.Fprintf(c.out, "%s with a deadLetterId that was there before, counted once\n", count(int(pass.Duplicates), "line"))
	}
	if pass.Overflowed > 0 {
		fmt.Fprintf(c.out, "truncated: %s in groups named %s, because there are more signatures than are told apart\n",
			count(int(pass.Overflowed), "message"), triage.Overflow)
	}
	shown := r.Groups
	if o.limit > 0 && len(shown) > o.limit {
		shown = shown[:o.limit]
		fmt.Fprintf(c.out, "the first %s; --limit 0 shows all\n", count(o.limit, "group"))
	}
	if len(shown) > 0 {
		fmt.Fprintln(c.out)
		table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NO\tGROUP\tSTATE\tCOUNT\tVERDICT\tCLASS\tVERSION\tFIRST SEEN\tSPAN\tSIGNATURE")
		for i, g := range shown {
			first, length := "-", "-"
			if g.FirstSeen != nil {
				first, length = minute(*g.FirstSeen), triage.Span(g.LastSeen.Sub(*g.FirstSeen))
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, g.ID, g.State, g.Count, g.Verdict,
				cell(g.Class, 24), cell(g.ConsumerVersion, 20), first, length, cell(g.Signature, 72))
		}
		_ = table.Flush()
		printSteps(c.out, shown)
	}
	if o.explain {
		printEpisodes(c.out, shown)
		fmt.Fprint(c.out, "\n", o.thresholds)
	}
}

// printSteps prints what to do, once for all groups of a cause.
func printSteps(w io.Writer, groups []triage.Group) {
	fmt.Fprintln(w, "\nNext steps")
	done := make([]bool, len(groups))
	for i, g := range groups {
		if done[i] {
			continue
		}
		numbers := []int{i + 1}
		for j := i + 1; j < len(groups); j++ {
			if same := groups[j]; same.Class == g.Class && same.SignatureID == g.SignatureID && same.VerdictReason == g.VerdictReason && same.Suggestion == g.Suggestion {
				done[j] = true
				numbers = append(numbers, j+1)
			}
		}
		fmt.Fprintf(w, "%s  %s: %s.\n", ranges(numbers), g.Verdict, clean(g.VerdictReason))
		for _, step := range g.Suggestions() {
			fmt.Fprintf(w, "    %s\n", clean(step))
		}
		if p := g.PreviousDisposition; p != nil {
			fmt.Fprintf(w, "    Before: closed as %s by %s on %s. %s\n", clean(p.Reason), clean(p.Author), minute(p.At), clean(p.Note))
		}
	}
}

func printEpisodes(w io.Writer, groups []triage.Group) {
	fmt.Fprintln(w, "\nEpisodes of class and signature, across versions")
	for i, g := range groups {
		fmt.Fprintf(w, "%d  %s\n", i+1, g.SignatureID)
		for k, e := range g.Episodes {
			if k == 10 {
				fmt.Fprintf(w, "    and %s\n", count(len(g.Episodes)-k, "more episode"))
				break
			}
			fmt.Fprintf(w, "    %s, for %s: %s\n", minute(e.First), triage.Span(e.Last.Sub(e.First)), count(int(e.Count), "message"))
		}
	}
}

// ranges writes numbers in order: 1-3,5.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(numbers[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

// cell cuts a text for a column, and marks an empty one.
func cell(s string, runes int) string {
	if s = clean(s); s == "" {
		return "-"
	}
	r := []rune(s)
	if len(r) > runes {
		r = append(slices.Clone(r[:runes-1]), '…')
	}
	return string(r)
}
