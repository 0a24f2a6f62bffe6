package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// Delay is the time between a failed attempt and the next one.
type Delay struct {
	// Attempt is the one that failed, from 1.
	Attempt int
	// Min and Max bound what jitter makes of the delay; Mean is its average.
	Min, Mean, Max time.Duration
}

// Schedule lists the delays of a message that fails with the same nature every
// time, asks for no RetryAfter, and has a class without override: one for each
// attempt but the last. For an ambiguous nature it ends where the message is
// parked. Retries that MaxAge forbids on average are left out. The time that
// the handler itself takes is not known here, and not counted.
func (p Policy) Schedule(nature failure.Nature) []Delay {
	p = p.WithDefaults()
	limit := p.Attempts.of(nature)
	var delays []Delay
	var total time.Duration
	for n := 1; n < limit; n++ {
		mean := p.Backoff.mean(n)
		d := Delay{
			Attempt: n,
			Min:     p.Backoff.spread(mean, 0),
			Mean:    p.Backoff.spread(mean, 0.5),
			Max:     p.Backoff.spread(mean, 1),
		}
		total += d.Mean
		if p.MaxAge > 0 && total > p.MaxAge {
			break
		}
		delays = append(delays, d)
	}
	return delays
}

// GivesUpAfter is the expected time from the first failure to the dead letter
// of such a message as [Policy.Schedule] describes. For an ambiguous nature
// that includes the parking lot, for a failure that names a reference.
func (p Policy) GivesUpAfter(nature failure.Nature) time.Duration {
	p = p.WithDefaults()
	delays := p.Schedule(nature)
	total := retriesFor(delays)
	if !p.parks(nature, delays) {
		return total
	}
	total += min(p.Parking.Deadline, math.MaxInt64-total)
	if p.MaxAge > 0 {
		total = min(total, p.MaxAge)
	}
	return total
}

// LongestDelay is the most that p may ask a message to wait between two
// attempts, whatever its nature, class and RetryAfter: jitter included, parking
// and what the handler itself takes not. Zero means that nothing is tried again.
func (p Policy) LongestDelay() time.Duration {
	p = p.WithDefaults()
	longest := p.longestDelay()
	for _, o := range p.Classes {
		longest = max(longest, p.with(o).longestDelay())
	}
	if p.MaxAge > 0 {
		longest = min(longest, p.MaxAge)
	}
	return longest
}

// longestDelay is LongestDelay without classes and age.
func (p Policy) longestDelay() time.Duration {
	limit := 0
	for _, n := range natures {
		limit = max(limit, p.Attempts.of(n))
	}
	if limit < 2 {
		return 0
	}
	delay := max(p.Backoff.mean(1), p.Backoff.mean(limit-1)) // it may shrink
	return max(p.Backoff.spread(delay, 1), p.Backoff.atLeast(p.MaxRetryAfter, 1))
}

// parks says whether a message of that nature comes to the end of its schedule
// and then into the parking lot, rather than to its age limit.
func (p Policy) parks(nature failure.Nature, delays []Delay) bool {
	return nature == failure.NatureAmbiguous && len(delays)+1 >= p.Attempts.of(nature)
}

// retriesFor is how long a schedule takes on average.
func retriesFor(delays []Delay) time.Duration {
	var total time.Duration
	for _, d := range delays {
		total += d.Mean
	}
	return total
}

// natures in the order in which they are printed.
var natures = []failure.Nature{
	failure.NatureTransient, failure.NatureUnknown, failure.NaturePermanent, failure.NatureAmbiguous,
}

// String prints the policy for people, on several lines: for each nature the
// attempts, the delays and when it is given up, then what differs by class.
// The text may change; programs use [Policy.Schedule].
func (p Policy) String() string {
	p = p.WithDefaults()
	var b strings.Builder
	for _, n := range natures {
		fmt.Fprintf(&b, "%s: %s\n", n, p.summary(n))
		writeDelays(&b, p.Schedule(n))
	}
	fmt.Fprintf(&b, "retry-after: heeded up to %s", short(p.MaxRetryAfter))
	if p.Backoff.Jitter != JitterNone {
		b.WriteString(", and up to half as long again for jitter")
	}
	b.WriteString("\n")
	if p.MaxAge > 0 {
		fmt.Fprintf(&b, "age: nothing is scheduled beyond %s after the first attempt\n", short(p.MaxAge))
	} else {
		b.WriteString("age: no limit\n")
	}
	fmt.Fprintf(&b, "replays: dead-lettered at the first failure after %s\n", count(p.MaxReplays, "replay"))
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		p.writeClass(&b, class)
	}
	return b.String()
}

// writeClass prints how failures of a class are treated: by the nature that
// the override sets, or else by each of them, as the classifier says.
func (p Policy) writeClass(b *strings.Builder, class failure.Class) {
	o := p.Classes[class]
	p = p.with(o)
	if o.Nature != "" {
		fmt.Fprintf(b, "class %q: always %s: %s\n", string(class), o.Nature, p.summary(o.Nature))
		writeDelays(b, p.Schedule(o.Nature))
		return
	}
	fmt.Fprintf(b, "class %q:\n", string(class))
	var longest []Delay
	for _, n := range natures {
		fmt.Fprintf(b, "  if %s: %s\n", n, p.summary(n))
		if s := p.Schedule(n); len(s) > len(longest) {
			longest = s
		}
	}
	writeDelays(b, longest)
}

// summary says in one line what happens to failures of a nature.
func (p Policy) summary(n failure.Nature) string {
	delays := p.Schedule(n)
	retries := retriesFor(delays)
	attempts := count(len(delays)+1, "attempt")
	if len(delays)+1 < p.Attempts.of(n) {
		attempts = fmt.Sprintf("%s of %d before the age limit", attempts, p.Attempts.of(n))
	}
	switch {
	case p.parks(n, delays):
		s := attempts
		if len(delays) > 0 {
			s += fmt.Sprintf(" in about %s", short(retries))
		}
		return s + fmt.Sprintf(", then parked: looked at every %s, gives up after %s, or after %s without a reference",
			short(p.Parking.Interval), short(p.Parking.Deadline), short(p.Parking.DeadlineWithoutReference))
	case len(delays) == 0:
		return attempts + ", gives up at once"
	default:
		return fmt.Sprintf("%s, gives up after about %s", attempts, short(retries))
	}
}

// maxRows keeps a policy of thousands of different delays readable.
const maxRows = 20

// writeDelays prints one row for each run of equal delays.
func writeDelays(b *strings.Builder, delays []Delay) {
	for row := 0; len(delays) > 0; row++ {
		if last := delays[len(delays)-1]; row == maxRows {
			fmt.Fprintf(b, "  and so on, up to %s after attempt %d\n", short(last.Mean), last.Attempt)
			return
		}
		first, last := delays[0], delays[0]
		for len(delays) > 0 && delays[0].Mean == first.Mean {
			last, delays = delays[0], delays[1:]
		}
		after := fmt.Sprint(first.Attempt)
		if last != first {
			after = fmt.Sprintf("%d-%d", first.Attempt, last.Attempt)
		}
		fmt.Fprintf(b, "  after attempt %-7s %s", after, short(first.Mean))
		if first.Min != first.Max {
			fmt.Fprintf(b, " (%s to %s)", short(first.Min), short(first.Max))
		}
		b.WriteString("\n")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// short prints a duration without the parts that are zero, and without
// precision that nobody reads: "24h", "2m30s", "17.086s".
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
