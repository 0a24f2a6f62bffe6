package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
)

func reportVerb() verb {
	return verb{
		name:    "report",
		summary: "print the weekly review of an owner's dead letters, on one page",
		detail: `Owners are those of the configured consumers. The page has five lists: what needs
a decision, what is new, what came back after it was closed, what is oldest, and
what was decided. Without --owner there is a page for each owner, and one for
what belongs to nobody.

A group is an owner's if one of the owner's consumers, or the topic where the
consumer is not known, is among those of its dead letters.`,
		examples: []string{
			"spillway report --owner team-billing --since 7d",
			"# For a wiki or a chat, from cron:",
			"spillway report --output markdown > review.md",
		},
		formats: []string{"text", "markdown", "json"},
		config:  true,
		values:  map[string]func(*call) []string{"owner": owners},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			owner := fs.String("owner", "", "the `OWNER`; default all of them")
			from := fs.String("since", "7d", "from this `TIME` on: a date, a time, or how long ago")
			limit := fs.Int("limit", 5, "at most `N` groups in each list; 0 means all")
			return func(ctx context.Context, c *call) error {
				at, err := since(*from)
				if err != nil {
					return usagef("--since: %v", err)
				}
				return report(ctx, c, *owner, at, *limit)
			}
		},
	}
}

// nobody owns what no configured consumer accounts for.
const nobody = "(nobody)"

func owners(c *call) []string {
	cfg, err := c.load()
	if err != nil {
		return nil
	}
	return ownersOf(cfg)
}

func ownersOf(cfg *config.Config) (names []string) {
	for _, consumer := range cfg.Consumers {
		names = append(names, consumer.Owner)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// review is a page of the report. The names of its JSON form are stable.
type review struct {
	Owner   string    `json:"owner"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Streams []string  `json:"streams"`
	// DeadLetters and OpenGroups are those that are open.
	DeadLetters int64 `json:"deadLetters"`
	OpenGroups  int   `json:"openGroups"`

	NeedsDecision reviewList `json:"needsDecision"`
	New           reviewList `json:"new"`
	Recurring     reviewList `json:"recurring"`
	Oldest        reviewList `json:"oldest"`
	Decided       struct {
		Total     int               `json:"total"`
		Decisions []dispositionJSON `json:"decisions"`
	} `json:"decided"`
	// Groups are those of the lists, each once.
	Groups []groupJSON `json:"groups"`

	decisions []inventory.Disposition
}

// reviewList is the beginning of a list of groups, and how long the whole is.
type reviewList struct {
	Total int      `json:"total"`
	IDs   []string `json:"ids"`

	groups []groupJSON
}

func report(ctx context.Context, c *call, owner string, from time.Time, limit int) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		names := append(ownersOf(cfg), nobody)
		if owner != "" {
			if !slices.Contains(names, owner) {
				return usagef("no consumer of the configuration has the owner %s%s", owner, orNearest(owner, names))
			}
			names = []string{owner}
		}
		t, err := triageOf(ctx, cfg, s)
		if err != nil {
			return err
		}
		decisions, err := s.Dispositions(ctx, inventory.DispositionFilter{Since: from})
		if err != nil {
			return err
		}
		redact, err := redactor(cfg)
		if err != nil {
			return err
		}
		for i := range decisions {
			decisions[i].Signature = redact.Text(decisions[i].Signature)
		}
		pages := []review{}
		for _, name := range names {
			r := newReview(cfg, t, decisions, name, from, limit)
			if name == nobody && owner == "" && r.OpenGroups == 0 && r.New.Total == 0 && r.Decided.Total == 0 {
				continue
			}
			pages = append(pages, r)
		}
		if c.output == "json" {
			return c.json(map[string]any{"reports": pages})
		}
		for i, r := range pages {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			if err := r.page().print(c.out, c.output == "markdown"); err != nil {
				return err
			}
		}
		return nil
	})
}

func newReview(cfg *config.Config, t inventory.Triage, decisions []inventory.Disposition, owner string, from time.Time, limit int) review {
	r := review{Owner: owner, From: from, To: time.Now().UTC(), Streams: []string{}, Groups: []groupJSON{}}
	for _, consumer := range cfg.Consumers {
		if consumer.Owner == owner {
			r.Streams = append(r.Streams, streamOf(cfg, adapters.StreamDeadLetter, consumer))
		}
	}
	var pending, fresh, back, open []triage.Group
	mine := map[string]bool{}
	for _, g := range slices.Concat(t.Report.Groups, t.Closed) {
		if !owns(cfg, owner, g) {
			continue
		}
		mine[g.ID] = true
		if !sighted(t, g).Before(from) {
			fresh = append(fresh, g)
		}
		if g.State == triage.Closed {
			continue
		}
		r.OpenGroups++
		r.DeadLetters += t.Groups[g.ID].Open
		open = append(open, g)
		switch g.State {
		case triage.Recurring:
			back = append(back, g)
			pending = append(pending, g)
		case triage.Fresh:
			pending = append(pending, g)
		}
	}
	slices.SortStableFunc(open, func(a, b triage.Group) int { return began(a).Compare(began(b)) })
	list := func(groups []triage.Group) reviewList {
		l := reviewList{Total: len(groups), IDs: []string{}}
		for _, g := range atMost(groups, limit) {
			described := describeGroup(t, g)
			l.IDs, l.groups = append(l.IDs, g.ID), append(l.groups, described)
			if !slices.ContainsFunc(r.Groups, func(have groupJSON) bool { return have.ID == g.ID }) {
				r.Groups = append(r.Groups, described)
			}
		}
		return l
	}
	r.NeedsDecision, r.New, r.Recurring, r.Oldest = list(pending), list(fresh), list(back), list(open)

	decisions = slices.DeleteFunc(slices.Clone(decisions), func(d inventory.Disposition) bool { return !mine[d.Group] })
	r.Decided.Total, r.Decided.Decisions = len(decisions), []dispositionJSON{}
	r.decisions = atMost(decisions, limit)
	for _, d := range r.decisions {
		r.Decided.Decisions = append(r.Decided.Decisions, describeDisposition(d))
	}
	return r
}

// sighted is when the cause of a group was first seen, in whichever version of
// the consumer.
func sighted(t inventory.Triage, of triage.Group) (first time.Time) {
	for _, g := range t.Groups {
		if g.Class != of.Class || g.SignatureID != of.SignatureID {
			continue
		}
		if at := cmp.Or(g.FirstFailed, g.CollectedAt); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// began is the first attempt of what is open of a group; at the end of time
// where it is not known.
func began(g triage.Group) time.Time {
	if g.FirstSeen == nil {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return *g.FirstSeen
}

func atMost[T any](list []T, limit int) []T {
	if limit <= 0 {
		return list
	}
	return list[:min(len(list), limit)]
}

// owns reports whether a group is an owner's.
func owns(cfg *config.Config, owner string, g triage.Group) bool {
	groups := strings.Split(g.Consumer, ", ")
	known := false
	for _, c := range cfg.Consumers {
		byTopic := slices.ContainsFunc(g.Topics, func(n triage.NameCount) bool { return n.Name == c.Topic })
		byGroup := slices.Contains(groups, c.Group)
		if byTopic && byGroup || byTopic && g.Consumer == "" || byGroup && len(g.Topics) == 0 {
			if c.Owner == owner {
				return true
			}
			known = true
		}
	}
	return owner == nobody && !known
}

// page is a review as people read it.
type page struct {
	title string
	facts [][2]string
	lists []pageList
}

type pageList struct {
	title string
	head  []string
	rows  [][]string
	more  int
	notes []string
}

func (r review) page() page {
	p := page{
		title: fmt.Sprintf("Dead letters of %s, %s to %s", r.Owner, moment(r.From), moment(r.To)),
		facts: [][2]string{
			{"streams", cmp.Or(strings.Join(r.Streams, ", "), "none")},
			{"open", fmt.Sprintf("%s in %s", count(int(r.DeadLetters), "dead letter"), count(r.OpenGroups, "group"))},
		},
	}
	add := func(title string, l reviewList, head []string, row func(groupJSON) []string) *pageList {
		list := pageList{title: title, head: append([]string{"GROUP"}, append(head, "SIGNATURE")...), more: l.Total - len(l.groups)}
		for _, g := range l.groups {
			list.rows = append(list.rows, append([]string{g.ID}, append(row(g), shorten(g.Signature, 60))...))
		}
		p.lists = append(p.lists, list)
		return &p.lists[len(p.lists)-1]
	}
	list := add("Needs a decision", r.NeedsDecision, []string{"STATE", "VERDICT", "CLASS", "OPEN"}, func(g groupJSON) []string {
		return []string{string(g.State), string(g.Verdict), g.Class, number(g.Open)}
	})
	list.notes = suggestions(r.NeedsDecision.groups)
	add("New", r.New, []string{"STATE", "CLASS", "VERSION", "TOTAL"}, func(g groupJSON) []string {
		return []string{string(g.State), g.Class, cmp.Or(g.ConsumerVersion, "-"), number(g.Total)}
	})
	add("Back after it was closed", r.Recurring, []string{"OPEN", "CLOSED AS", "BY", "ON"}, func(g groupJSON) []string {
		d := cmp.Or(g.PreviousDisposition, new(triage.Disposition))
		return []string{number(g.Open), strings.TrimSpace(d.Reason + " " + d.Version), d.Author, moment(d.At)}
	})
	add("Oldest", r.Oldest, []string{"STATE", "OPEN", "FIRST ATTEMPT", "AGE"}, func(g groupJSON) []string {
		if g.FirstSeen == nil {
			return []string{string(g.State), number(g.Open), "unknown", "-"}
		}
		return []string{string(g.State), number(g.Open), moment(*g.FirstSeen), triage.Span(r.To.Sub(*g.FirstSeen))}
	})
	decided := pageList{title: "Decided", head: []string{"GROUP", "DEAD LETTERS", "DECISION", "SIGNATURE"}, more: r.Decided.Total - len(r.decisions)}
	for _, d := range r.decisions {
		decided.rows = append(decided.rows, []string{d.Group, number(d.Affected), d.String(), shorten(d.Signature, 60)})
	}
	p.lists = append(p.lists, decided)
	return p
}

// suggestions are the next steps of groups. Those of one cause in several
// versions often have the same.
func suggestions(groups []groupJSON) (lines []string) {
	ids := map[string][]string{}
	var texts []string
	for _, g := range groups {
		if ids[g.Suggestion] == nil {
			texts = append(texts, g.Suggestion)
		}
		ids[g.Suggestion] = append(ids[g.Suggestion], g.ID)
	}
	for _, text := range texts {
		lines = append(lines, strings.Join(ids[text], ", ")+": "+text)
	}
	return lines
}

func (p page) print(out io.Writer, markdown bool) error {
	if markdown {
		return p.markdown(out)
	}
	fmt.Fprintln(out, clean(p.title))
	for _, f := range p.facts {
		fmt.Fprintf(out, "  %-8s %s\n", f[0], clean(f[1]))
	}
	for _, l := range p.lists {
		fmt.Fprintf(out, "\n%s: ", l.title)
		if len(l.rows) == 0 {
			fmt.Fprintln(out, "nothing")
			continue
		}
		fmt.Fprintln(out, len(l.rows)+l.more)
		tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{l.head}, l.rows...) {
			cells := make([]string, len(row))
			for i := range row {
				cells[i] = clean(row[i])
			}
			fmt.Fprintln(tw, "  "+strings.Join(cells, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		if l.more > 0 {
			fmt.Fprintf(out, "  and %s more: --limit\n", number(int64(l.more)))
		}
		for _, n := range l.notes {
			fmt.Fprintln(out, "  "+clean(n))
		}
	}
	return nil
}

// inMarkdown keeps a text from outside a text: error texts have all of its
// signs, and a link or an image in one must not become one.
var inMarkdown = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "<", `\<`, ">", `\>`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`, "!", `\!`, "#", `\#`, "~", `\~`, "&", `\&`, "://", `:\//`, "@", `\@`,
)

func (p page) markdown(out io.Writer) error {
	text := func(s string) string { return inMarkdown.Replace(clean(s)) }
	fmt.Fprintf(out, "## %s\n\n", text(p.title))
	for _, f := range p.facts {
		fmt.Fprintf(out, "* %s: %s\n", f[0], text(f[1]))
	}
	for _, l := range p.lists {
		fmt.Fprintf(out, "\n### %s: %d\n", l.title, len(l.rows)+l.more)
		if len(l.rows) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n| %s |\n|%s\n", strings.ToLower(strings.Join(l.head, " | ")), strings.Repeat("---|", len(l.head)))
		for _, row := range l.rows {
			cells := make([]string, len(row))
			for i := range row {
				cells[i] = text(row[i])
			}
			fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
		}
		if l.more > 0 {
			fmt.Fprintf(out, "\nand %s more\n", number(int64(l.more)))
		}
		if len(l.notes) > 0 {
			fmt.Fprintln(out)
		}
		for _, n := range l.notes {
			fmt.Fprintf(out, "* %s\n", text(n))
		}
	}
	return nil
}
