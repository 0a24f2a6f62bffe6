package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// report is what is shown at the end.
type report struct {
	account     *account
	job         job
	took        time.Duration
	interrupted bool
	lastResort  string // directory
	p50, p99    time.Duration
	// handledOthers counts messages of other runs that this one handled.
	handledOthers int
}

// lineWidth that the report keeps to, in characters.
const lineWidth = 96

func (d *display) report(r report) {
	var b strings.Builder
	d.erase(&b)
	if !d.redraw {
		b.WriteString("\n")
	}
	a, p := r.account, d.paint
	if r.interrupted {
		fmt.Fprintf(&b, "%s\n\n", p.yellow(fmt.Sprintf("Interrupted: %s of %s messages were published.", thousands(a.published), thousands(r.job.count))))
	}

	row := func(paint func(string) string, name string, n int, remark string) {
		line := fmt.Sprintf("  %s %9s", paint(fmt.Sprintf("%-13s", name)), thousands(n))
		if remark != "" {
			line += "   " + p.dim(remark)
		}
		b.WriteString(line + "\n")
	}
	row(p.green, "processed", a.processed, r.speed())
	row(p.blue, "parked", a.parked, "")
	row(p.red, "dead letters", a.deadLettered, "")
	keep := ""
	if a.lastResort > 0 {
		keep = "kept in " + r.lastResort
	}
	row(p.red, "last resort", a.lastResort, keep)
	if a.pending > 0 {
		row(p.yellow, "on their way", a.pending, "still in the topic, or waiting for the next attempt")
	}
	row(p.bold, "published", a.published, fmt.Sprintf("in %.1f s; %s of them retried, %s retries in all", r.took.Seconds(), thousands(a.retried), thousands(a.retries)))

	c := adapters.Consumer{Topic: r.job.topic, Group: r.job.group}
	r.deadLetters(&b, p, adapters.Names{}.Of(adapters.StreamDeadLetter, c))
	r.parked(&b, p, adapters.Names{}.Of(adapters.StreamParking, c))
	r.verdict(&b, p)
	io.WriteString(d.out, b.String())
}

func (r report) speed() string {
	if r.p99 == 0 {
		return ""
	}
	return fmt.Sprintf("at the first try within %s (half), %s (99%%)", short(r.p50), short(r.p99))
}

// short rounds to two digits or so.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// cause is what dead letters are grouped by.
type cause struct{ class, code, reason string }

func (r report) deadLetters(b *strings.Builder, p painter, stream string) {
	groups := map[cause][]envelope.DeadLetter{}
	for _, d := range r.account.letters {
		k := cause{string(d.Failure.Class), string(d.Failure.Code), d.Failure.Reason}
		groups[k] = append(groups[k], d)
	}
	if len(groups) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s  %s\n", p.bold("Dead letters by cause"), p.dim("as read from "+stream))
	keys := slices.SortedFunc(maps.Keys(groups), func(x, y cause) int {
		return cmp.Or(len(groups[y])-len(groups[x]), cmp.Compare(x.class, y.class), cmp.Compare(x.code, y.code), cmp.Compare(x.reason, y.reason))
	})
	for _, k := range keys {
		letters := groups[k]
		example := slices.MinFunc(letters, func(x, y envelope.DeadLetter) int {
			return x.Failure.FirstAttemptAt.Compare(y.Failure.FirstAttemptAt)
		})
		what := k.class
		if k.code != "" {
			what += " · " + k.code
		}
		fmt.Fprintf(b, "  %5s  %s  %s\n", thousands(len(letters)), p.red(what), p.dim(strings.ReplaceAll(k.reason, "_", " ")+", "+attempts(letters)))
		text := strings.Join(strings.Fields(example.Failure.Message), " ")
		fmt.Fprintf(b, "         %s\n", cut(text, lineWidth-9))
		fmt.Fprintf(b, "         %s\n", p.dim(cut("first at "+place(example), lineWidth-9)))
	}
}

// attempts of letters, which were tried a different number of times if they
// were parked in between.
func attempts(letters []envelope.DeadLetter) string {
	least, most := letters[0].Failure.Attempts, letters[0].Failure.Attempts
	for _, d := range letters {
		least, most = min(least, d.Failure.Attempts), max(most, d.Failure.Attempts)
	}
	switch {
	case least != most:
		return fmt.Sprintf("%d to %d attempts", least, most)
	case most == 1:
		return "1 attempt"
	default:
		return fmt.Sprintf("%d attempts", most)
	}
}

// place is where the message of a dead letter was first delivered from, as far
// as the broker has positions.
func place(d envelope.DeadLetter) string {
	text := d.Source.Topic
	if d.Source.Partition != nil && d.Source.Offset != nil {
		text += fmt.Sprintf(", partition %d, offset %d", *d.Source.Partition, *d.Source.Offset)
	}
	text += ": " + d.FailedMessage.Type
	if d.FailedMessage.Aggregate != "" {
		text += " " + d.FailedMessage.Aggregate
	}
	return text
}

func (r report) parked(b *strings.Builder, p painter, stream string) {
	if len(r.account.inParking) == 0 {
		return
	}
	// References of many messages are shown one by one, and those that each
	// have one message together, by kind.
	byReference := map[string][]parked{}
	for _, m := range r.account.inParking {
		byReference[m.reference] = append(byReference[m.reference], m)
	}
	groups := map[string][]parked{}
	for reference, messages := range byReference {
		kind, _, named := strings.Cut(reference, "/")
		if len(messages) == 1 && named {
			reference = kind + "/…"
		}
		groups[reference] = append(groups[reference], messages...)
	}
	fmt.Fprintf(b, "\n%s  %s\n", p.bold("Parked, waiting for"), p.dim("as read from "+stream))
	keys := slices.SortedFunc(maps.Keys(groups), func(x, y string) int {
		return cmp.Or(len(groups[y])-len(groups[x]), cmp.Compare(x, y))
	})
	for _, k := range keys {
		messages := groups[k]
		first := slices.MinFunc(messages, func(x, y parked) int { return x.due.Compare(y.due) })
		what := k
		switch {
		case what == "":
			what = "nothing that has a name"
		case strings.HasSuffix(what, "/…") && len(messages) == 1:
			what = first.reference
		case strings.HasSuffix(what, "/…"):
			what += ", such as " + first.reference
		}
		fmt.Fprintf(b, "  %5s  %s  %s\n", thousands(len(messages)), p.blue(what),
			p.dim(fmt.Sprintf("looked at next at %s, in %s", first.due.Local().Format("15:04:05"), max(0, time.Until(first.due)).Round(time.Second))))
	}
}

func (r report) verdict(b *strings.Builder, p painter) {
	a := r.account
	sum := fmt.Sprintf("%s published = %s processed + %s parked + %s dead letters + %s in the last resort",
		thousands(a.published), thousands(a.processed), thousands(a.parked), thousands(a.deadLettered), thousands(a.lastResort))
	if a.pending > 0 {
		sum += fmt.Sprintf("\n+ %s on their way", thousands(a.pending))
	}
	if a.addsUp() {
		fmt.Fprintf(b, "\n%s\n%s\n", sum, p.green("Each was looked for by its id, and found with the body it was published with. Lost: 0."))
	} else {
		fmt.Fprintf(b, "\n%s\n%s\n", strings.Replace(sum, "=", "≠", 1), p.red(fmt.Sprintf("THE COUNT DOES NOT ADD UP. Lost: %d. With another body: %d.", len(a.lost), a.altered)))
		for _, id := range a.lost[:min(len(a.lost), 5)] {
			fmt.Fprintf(b, "  lost: %s\n", id)
		}
	}
	if a.pending > 0 && !r.interrupted {
		fmt.Fprintf(b, "%s\n", p.red(fmt.Sprintf("Not everything came to rest within %s.", limit)))
	}
	if a.twice > 0 {
		fmt.Fprintf(b, "In two places, and counted in the first: %s. Delivery is at least once.\n", plural(a.twice, "message"))
	}
	if a.others > 0 {
		fmt.Fprintf(b, "Found besides, and taken out: %s of other runs.\n", plural(a.others, "message"))
	}
	if r.handledOthers > 0 {
		fmt.Fprintf(b, "Handled besides: %s of other runs. Of two at a time, each handles messages of the other.\n", plural(r.handledOthers, "message"))
	}
}

// cut shortens a text to so many characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// summary is the object that -json writes.
type summary struct {
	Published    int `json:"published"`
	Processed    int `json:"processed"`
	Retried      int `json:"retried"` // messages that were retried at least once
	Parked       int `json:"parked"`
	DeadLettered int `json:"deadLettered"`
	LastResort   int `json:"lastResort"`
	Lost         int `json:"lost"`
	// Pending messages are on their way; only after an interrupt.
	Pending int `json:"pending,omitempty"`
	// Others are records of other runs, which were taken out of the streams.
	Others int `json:"others,omitempty"`
}

func writeJSON(w io.Writer, a *account) error {
	return json.NewEncoder(w).Encode(summary{
		Published: a.published, Processed: a.processed, Retried: a.retried, Parked: a.parked,
		DeadLettered: a.deadLettered, LastResort: a.lastResort, Lost: len(a.lost), Pending: a.pending, Others: a.others,
	})
}
