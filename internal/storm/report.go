package storm

import (
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// shownEach is how many violations of a kind, and duplicates of a hop, are
// printed in full.
const shownEach = 5

// OK reports a storm without violations, after which nothing is held anywhere.
func (r *Report) OK() bool { return len(r.Violations) == 0 && len(r.Held) == 0 }

// Print writes the report as tables.
func (r *Report) Print(w io.Writer) error {
	p := &printer{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	c := r.Config
	p.row("STORM", "")
	p.row("broker", "%s %s", c.Broker, r.Version)
	p.row("built with", "%s", strings.Join(versions(r.Clients), ", "))
	p.row("seed", "%d", c.Seed)
	p.row("faults for", "%s, quiet after another %s", c.Duration, r.Drained.Round(100*time.Millisecond))
	p.row("messages", "%d published, %d confirmed, to %s", r.Published, r.Confirmed, plural(r.Groups, "group"))
	p.row("consumers", "%d act, %d watch, concurrency %d", c.Consumers, watchers*(r.Groups-1), c.Concurrency)
	p.row("processes", "%d lives, %d of them not ended in good order", r.Lives, r.Killed)
	p.row("deliveries", "%d, handler called %d times, %d confirmed hand-offs", r.Deliveries, r.Attempts, r.HandedOff)
	p.row("retries late by", "p50 %s, p99 %s, max %s, outages included; earliest %s", quantile(r.Lateness, 0.5), quantile(r.Lateness, 0.99), quantile(r.Lateness, 1), quantile(r.Lateness, 0))
	p.row("crash blamed", "%d by script, %d others that were alone when processes died", r.CrashScripted, r.CrashOthers)
	if len(r.Mended) > 0 {
		p.row("mended by the operator", "%s", strings.Join(r.Mended, ", "))
	}

	p.row("", "")
	p.row("FAULT", "TIMES")
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		p.row(name, "%d", r.Faults[name])
	}

	p.row("", "")
	groups := slices.Sorted(maps.Keys(r.States))
	p.row("END STATE", "%s", strings.Join(groups, "\t"))
	states := map[string]bool{}
	for _, g := range groups {
		for s := range r.States[g] {
			states[s] = true
		}
	}
	for _, s := range slices.Sorted(maps.Keys(states)) {
		p.counts(s, groups, func(g string) int { return r.States[g][s] })
	}
	p.counts("in none", groups, func(g string) int { return r.None[g] })

	p.row("", "")
	p.row("DUPLICATES BY HOP", "%s", strings.Join(groups, "\t"))
	for _, hop := range []string{HopPublish, HopHandoff, HopUnacked, HopDoubt, HopMove} {
		p.counts(hop, groups, func(g string) (n int) {
			for _, d := range r.Duplicates {
				if d.Hop == hop && d.Group == g {
					n++
				}
			}
			return n
		})
	}

	p.row("", "")
	p.row("VIOLATIONS", "%d", len(r.Violations))
	for _, problem := range []Problem{Lost, Stuck, Early, Foreign, Changed, Unexplained, Blamed, OutputLost, OutputEarly, Stranger} {
		n := 0
		for _, v := range r.Violations {
			if v.Problem == problem {
				n++
			}
		}
		p.row(string(problem), "%d", n)
	}
	for _, stream := range slices.Sorted(maps.Keys(r.Held)) {
		p.row("held, and not to be had", "%d in %s", r.Held[stream], stream)
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	return r.printDetails(w)
}

func (r *Report) printDetails(w io.Writer) error {
	var b strings.Builder
	shown := map[string]int{}
	for _, d := range r.Duplicates {
		if shown[d.Hop]++; shown[d.Hop] <= shownEach {
			fmt.Fprintf(&b, "duplicate  %s  %s  %s: %s\n", d.ID, d.Group, d.Hop, d.Detail)
		}
	}
	for _, v := range r.Violations {
		if shown[string(v.Problem)]++; shown[string(v.Problem)] > shownEach {
			continue
		}
		fmt.Fprintf(&b, "\n%s  %s  %s  %s\n", strings.ToUpper(string(v.Problem)), v.ID, v.Group, v.Detail)
		for _, e := range v.Steps {
			fmt.Fprintf(&b, "    %s\n", e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if more := shown[name] - shownEach; more > 0 {
			fmt.Fprintf(&b, "and %d more: %s\n", more, name)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+b.String())
	return err
}

const watermillPath = "github.com/ThreeDotsLabs/watermill"

// versions are those of Go, Watermill and the broker's clients.
func versions(clients []string) []string {
	v := []string{runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, dep := range info.Deps {
		if dep.Path == watermillPath || slices.Contains(clients, dep.Path) {
			v = append(v, path.Base(strings.TrimSuffix(dep.Path, "/v3"))+" "+dep.Version)
		}
	}
	return v
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(100 * time.Microsecond)
}

// printer writes rows. A tabwriter reports its errors when it is flushed.
type printer struct{ w *tabwriter.Writer }

func (p *printer) row(name, format string, args ...any) {
	fmt.Fprintf(p.w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

func (p *printer) counts(name string, groups []string, count func(group string) int) {
	cells := make([]string, len(groups))
	for i, g := range groups {
		cells[i] = fmt.Sprint(count(g))
	}
	p.row(name, "%s", strings.Join(cells, "\t"))
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
