package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// display shows what happens: a few lines that are drawn again and again on a
// terminal, and else a line each second.
type display struct {
	out    io.Writer
	paint  painter
	redraw bool
	job    job
	start  time.Time

	frame  int       // lines on the terminal to draw over
	next   time.Time // of the next plain line
	status string    // that was shown last
}

func newDisplay(out io.Writer, verbose bool, j job, broker string) *display {
	tty := isTerminal(out)
	d := &display{
		out: out, job: j, start: time.Now(),
		// A log on the same terminal would be drawn over.
		redraw: tty && !verbose && os.Getenv("TERM") != "dumb",
		paint:  painter(tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"),
	}
	fmt.Fprintf(out, "%s\n\n", d.paint.bold(fmt.Sprintf("%s, on %s", j.title, broker)))
	return d
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// update shows the numbers of now.
func (d *display) update(t tally) {
	status := ""
	if d.job.status != nil {
		status = d.job.status()
	}
	if d.redraw {
		d.draw(t, status)
		return
	}
	now := time.Now()
	at := fmt.Sprintf("%5.1f s  ", now.Sub(d.start).Seconds())
	if status != d.status {
		d.status = status
		fmt.Fprintln(d.out, at+status)
	}
	if now.Before(d.next) {
		return
	}
	d.next = now.Add(time.Second)
	fmt.Fprintf(d.out, "%spublished %s  processed %s  to retry %s  parked %s  dead letters %s\n", at,
		thousands(t.published), thousands(t.processed), thousands(t.waiting), thousands(t.parked), thousands(t.deadLettered))
}

// barWidth is that of the bar in characters; the frame is narrower than any
// terminal, because a line that wraps could not be drawn over.
const barWidth = 40

func (d *display) draw(t tally, status string) {
	done := barWidth * t.published / d.job.count
	var b strings.Builder
	d.erase(&b)
	fmt.Fprintf(&b, "  %s%s  %s of %s published   %.1f s\n", d.paint.blue(strings.Repeat("█", done)), strings.Repeat("░", barWidth-done),
		thousands(t.published), thousands(d.job.count), time.Since(d.start).Seconds())
	fmt.Fprintf(&b, "  %s   %s   %s   %s\n",
		d.paint.green("processed "+thousands(t.processed)), d.paint.yellow("to retry "+thousands(t.waiting)),
		d.paint.blue("parked "+thousands(t.parked)), d.paint.red("dead letters "+thousands(t.deadLettered)))
	d.frame = 2
	if status != "" {
		fmt.Fprintf(&b, "  %s\n", status)
		d.frame++
	}
	io.WriteString(d.out, b.String())
}

// erase goes back to where the frame begins, and clears it.
func (d *display) erase(w io.Writer) {
	if d.frame > 0 {
		fmt.Fprintf(w, "\x1b[%dA\x1b[J", d.frame)
		d.frame = 0
	}
}

// painter colours text, or does not.
type painter bool

func (p painter) in(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p painter) bold(text string) string   { return p.in("1", text) }
func (p painter) dim(text string) string    { return p.in("2", text) }
func (p painter) red(text string) string    { return p.in("31", text) }
func (p painter) green(text string) string  { return p.in("32", text) }
func (p painter) yellow(text string) string { return p.in("33", text) }
func (p painter) blue(text string) string   { return p.in("34", text) }

// thousands writes n with commas.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}
