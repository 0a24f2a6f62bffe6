package cli

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
)

func reportVerb() verb {
	return verb{
		name:    "report",
		summary: "print what an owner of dead letter streams should look at, on one page",
		detail: `For the weekly review: what needs a decision, of which what came back and what is
new comes first, what is oldest, and what was decided, of the streams that the configuration gives to the
owner. It fits a review of fifteen minutes; spillway triage has the rest.`,
		examples: []string{
			"spillway report --owner team-billing --since 7d",
			"# To a wiki or a chat:",
			"spillway report --owner team-billing --since 7d --output markdown",
		},
		formats: []string{"text", "markdown", "json"},
		config:  true,
		values: map[string]func(*call) []string{"owner": func(c *call) []string {
			cfg, err := c.load()
			if err != nil {
				return nil
			}
			return owners(cfg)
		}},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			owner := fs.String("owner", "", "the `OWNER`, as in the configuration; may be left out if there is one")
			from := fs.String("since", "7d", "the beginning of the `WINDOW`: a date, a time, or a length such as 7d or 36h")
			return func(ctx context.Context, c *call) error { return report(ctx, c, *owner, *from) }
		},
	}
}

func owners(cfg *config.Config) (names []string) {
	for _, c := range cfg.Consumers {
		if !slices.Contains(names, c.Owner) {
			names = append(names, c.Owner)
		}
	}
	slices.Sort(names)
	return names
}

// mostRows is how many rows a part of the report has, so that it stays a page.
const mostRows = 8

// The JSON form of a report. Its names are stable; its lists are whole.
type (
	reportJSON struct {
		Owner       string        `json:"owner"`
		Streams     []string      `json:"streams"`
		Since       time.Time     `json:"since"`
		Until       time.Time     `json:"until"`
		Arrived     int64         `json:"arrived"` // dead letters that failed in the window
		Open        int64         `json:"open"`
		Quarantined int64         `json:"quarantined"`
		Oldest      *reportRow    `json:"oldest"`
		Needs       []reportRow   `json:"needsDecision"`
		New         []reportRow   `json:"new"`
		Recurring   []reportRow   `json:"recurring"`
		Quiet       []reportRow   `json:"mutedOrResidue"`
		Decided     []decidedJSON `json:"decided"`
	}
	reportRow struct {
		Group      string       `json:"group"`
		State      triage.State `json:"state"`
		Class      string       `json:"class"`
		Consumer   string       `json:"consumer"`
		Version    string       `json:"consumerVersion"`
		Signature  string       `json:"signature"`
		Open       int64        `json:"open"`
		Arrived    int64        `json:"arrived"`
		Oldest     *time.Time   `json:"oldest"`
		Verdict    string       `json:"verdict"`
		Suggestion string       `json:"suggestion"`
		Previous   string       `json:"previousDecision,omitempty"`
	}
	decidedJSON struct {
		Group     string    `json:"group"`
		Signature string    `json:"signature"`
		At        time.Time `json:"at"`
		Author    string    `json:"author"`
		Action    string    `json:"action"`
		Reason    string    `json:"reason,omitempty"`
		FixedIn   string    `json:"fixedIn,omitempty"`
		Note      string    `json:"note,omitempty"`
		Affected  int64     `json:"affected"`
	}
)

func report(ctx context.Context, c *call, owner, from string) error {
	begin, err := since(from)
	if err != nil {
		return usagef("--since: %v", err)
	}
	if begin.After(time.Now()) {
		return usagef("--since: %s is in the future", clock(begin))
	}
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		known := owners(cfg)
		if owner == "" && len(known) == 1 {
			owner = known[0]
		}
		switch {
		case len(known) == 0:
			return fmt.Errorf("the configuration lists no consumers: add them, each with topic, group and owner")
		case !slices.Contains(known, owner):
			return usagef("--owner is %q; the configuration has %s", owner, strings.Join(known, ", "))
		}
		r, err := makeReport(ctx, cfg, s, owner, begin)
		if err != nil {
			return err
		}
		switch c.output {
		case "json":
			return c.json(r)
		case "markdown":
			return printReport(c, r, markdown{})
		}
		return printReport(c, r, plainText{})
	})
}

func makeReport(ctx context.Context, cfg *config.Config, s *inventory.Store, owner string, begin time.Time) (reportJSON, error) {
	r := reportJSON{
		Owner: owner, Streams: []string{}, Since: begin.Truncate(time.Second), Until: time.Now().UTC().Truncate(time.Second),
		Needs: []reportRow{}, New: []reportRow{}, Recurring: []reportRow{}, Quiet: []reportRow{}, Decided: []decidedJSON{},
	}
	for _, consumer := range cfg.Consumers {
		if consumer.Owner == owner {
			r.Streams = append(r.Streams, streamOf(cfg, adapters.StreamDeadLetter, consumer))
		}
	}
	t, err := triageOf(ctx, cfg, s)
	if err != nil {
		return r, err
	}
	list, quarantined, err := s.Shares(ctx, r.Streams, begin)
	if err != nil {
		return r, err
	}
	r.Quarantined = quarantined
	shares := map[string]inventory.Share{}
	for _, share := range list {
		shares[share.Group] = share
		r.Arrived += share.Recent
		r.Open += share.Open
	}
	var oldest time.Time
	for _, g := range t.Report.Groups { // recurring first
		share, ok := shares[g.ID]
		if !ok || share.Open == 0 {
			continue
		}
		row := reportRow{
			Group: g.ID, State: g.State, Class: g.Class, Consumer: g.Consumer, Version: g.ConsumerVersion, Signature: g.Signature,
			Open: share.Open, Arrived: share.Recent, Oldest: known(share.Oldest), Verdict: string(g.Verdict), Suggestion: g.Suggestion,
		}
		if p := t.Standings[g.ID].Previous; p != nil {
			row.Previous = p.String()
		}
		if oldest.IsZero() || share.Oldest.Before(oldest) {
			oldest = share.Oldest
			r.Oldest = &row
		}
		if !share.First.Before(begin) {
			r.New = append(r.New, row)
		}
		switch g.State {
		case triage.Recurring:
			r.Recurring = append(r.Recurring, row)
			r.Needs = append(r.Needs, row)
		case triage.Muted, triage.Residue:
			r.Quiet = append(r.Quiet, row)
		default:
			r.Needs = append(r.Needs, row)
		}
	}
	decided, err := s.Dispositions(ctx, inventory.DispositionFilter{Since: begin})
	if err != nil {
		return r, err
	}
	for _, d := range decided {
		if _, ours := shares[d.Group]; ours {
			r.Decided = append(r.Decided, decidedJSON{d.Group, d.Signature, d.At.UTC(), d.Author, string(d.Action), string(d.Reason), d.FixedIn, d.Note, d.Affected})
		}
	}
	return r, nil
}

// form is how a report is written.
type form interface {
	title(s string) string
	item(s string) string
	more(n int) string
}

type (
	plainText struct{}
	markdown  struct{}
)

func (plainText) title(s string) string { return "\n" + strings.ToUpper(s[:1]) + s[1:] + "\n" }
func (plainText) item(s string) string  { return "  " + s + "\n" }
func (plainText) more(n int) string     { return fmt.Sprintf("  and %d more\n", n) }

func (markdown) title(s string) string { return "\n### " + strings.ToUpper(s[:1]) + s[1:] + "\n\n" }
func (markdown) item(s string) string  { return "- " + escapeMarkdown(s) + "\n" }
func (markdown) more(n int) string     { return fmt.Sprintf("- and %d more\n", n) }

// escapeMarkdown keeps texts of errors from becoming links, images, markup, or the
// name of somebody who is called then.
// GitHub's and GitLab's make links of bare addresses, too.
func escapeMarkdown(s string) string {
	var b strings.Builder
	for i, r := range s {
		rest := s[i:]
		bare := strings.HasPrefix(rest, "://") || r == '.' && i >= 3 && strings.EqualFold(s[i-3:i], "www")
		if bare || strings.ContainsRune("\\`*_{}[]<>#|!~&@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func printReport(c *call, r reportJSON, f form) error {
	var b strings.Builder
	head := fmt.Sprintf("Dead letters of %s, %s to %s", r.Owner, moment(r.Since), moment(r.Until))
	if _, ok := f.(markdown); ok {
		b.WriteString("## " + escapeMarkdown(clean(head)) + "\n\n")
	} else {
		b.WriteString(clean(head) + "\n")
	}
	facts := []string{
		fmt.Sprintf("%s arrived, %s open, in %s, of which %d need a decision", number(r.Arrived), number(r.Open), count(len(r.Needs)+len(r.Quiet), "group"), len(r.Needs)),
	}
	if r.Oldest != nil {
		facts = append(facts, fmt.Sprintf("the oldest has waited for %s: %s", triage.Span(r.Until.Sub(*r.Oldest.Oldest)), r.Oldest.Group))
	}
	if r.Quarantined > 0 {
		facts = append(facts, fmt.Sprintf("%s could not be stored as dead letters: spillway quarantine list", number(r.Quarantined)))
	}
	facts = append(facts, "streams: "+strings.Join(r.Streams, ", "))
	if len(r.Needs) == 1 {
		facts[0] = strings.Replace(facts[0], "1 need a", "1 needs a", 1)
	}
	for _, fact := range facts {
		b.WriteString(f.item(clean(fact)))
	}
	part := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		b.WriteString(f.title(fmt.Sprintf("%s: %d", title, len(items))))
		for _, item := range items[:min(len(items), mostRows)] {
			b.WriteString(f.item(clean(item)))
		}
		if more := len(items) - mostRows; more > 0 {
			b.WriteString(f.more(more))
		}
	}
	// On the page each group stands once: what is back, what is new, the rest.
	var recurring, fresh, older, quiet, decided []string
	for _, row := range r.Needs {
		line := row.line() + "; " + row.Verdict + ". " + row.Suggestion
		switch {
		case row.State == triage.Recurring:
			if row.Previous != "" {
				line += " Before: " + row.Previous + "."
			}
			recurring = append(recurring, line)
		case slices.ContainsFunc(r.New, func(n reportRow) bool { return n.Group == row.Group }):
			fresh = append(fresh, line)
		default:
			older = append(older, line)
		}
	}
	for _, row := range r.Quiet {
		quiet = append(quiet, string(row.State)+": "+row.line())
	}
	for _, d := range r.Decided {
		what := number(d.Affected) + " " + d.Reason
		switch inventory.Action(d.Action) {
		case inventory.ActionReopen:
			what = number(d.Affected) + " reopened"
		case inventory.ActionClose:
		default:
			what = d.Action
		}
		line := fmt.Sprintf("%s  %s, %s by %s: %s", d.Group, what, moment(d.At), d.Author, shorten(d.Signature, 60))
		if d.Note != "" {
			line += " (" + shorten(d.Note, 60) + ")"
		}
		decided = append(decided, line)
	}
	part("recurring, and needs a decision", recurring)
	part("new, and needs a decision", fresh)
	part("older, and needs a decision", older)
	part("muted or residue, which raises no alarm", quiet)
	part("decided", decided)
	if len(r.Needs) == 0 {
		b.WriteString(f.title("nothing needs a decision"))
	}
	_, err := fmt.Fprint(c.out, b.String())
	return err
}

func (row reportRow) line() string {
	return fmt.Sprintf("%s  %s open, %s arrived: %s, %s: %s", row.Group, number(row.Open), number(row.Arrived), row.Class, strings.TrimSpace(row.Consumer+" "+row.Version), shorten(row.Signature, 70))
}
