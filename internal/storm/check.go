package storm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// clockSlop is how far two readings of one host's clock may disagree.
const clockSlop = 2 * time.Millisecond

// How far from a disturbance an acknowledgement is still in doubt: it may have
// lain in a buffer, or have been on its way when the driver was about to act.
const (
	doubtBefore = 2 * time.Second
	doubtAfter  = time.Second
)

// StreamLastResort stands for the files of the last resort.
const StreamLastResort adapters.Stream = "last resort"

// History is everything that is known when a storm is over.
type History struct {
	Script Script
	// Topic and Groups of the consumers.
	Topic  string
	Groups []string
	// Acting is the group whose handler follows the script.
	Acting string
	// Events of all ledgers, in any order.
	Events []Event
	// Left is what lies in the streams.
	Left []Left
	// Outputs are the ids of the outputs that were published.
	Outputs []string
}

// Left is a record that lies in a stream at the end.
type Left struct {
	Stream adapters.Stream
	Group  string // empty if the stream belongs to no group
	ID     string
	Digest string
	Owner  string // "topic/group" of its state, if it has any
	Reason string // of a dead letter
}

// Problem is a kind of [Violation].
type Problem string

const (
	Lost        Problem = "lost"        // in no end state
	Stuck       Problem = "stuck"       // in no end state, but still in a stream that should be empty
	Early       Problem = "early"       // handled before its due time
	Foreign     Problem = "foreign"     // another group's, or nobody's, retry was seen
	Changed     Problem = "changed"     // not the original bytes
	Unexplained Problem = "unexplained" // more end states than doubtful hops explain
	Blamed      Problem = "blamed"      // given up though the script lets it succeed
	OutputLost  Problem = "output lost" // processed without its output
	OutputEarly Problem = "output without success"
	Stranger    Problem = "stranger" // a message that nobody published
)

// Violation is one broken promise, with the last known steps of the message.
type Violation struct {
	Problem Problem
	ID      string
	Group   string
	Detail  string
	Steps   []Event
}

// stepsShown is how many of the last steps a violation keeps.
const stepsShown = 16

// Duplicate is one end state too many, with the hop that made it.
type Duplicate struct {
	ID, Group string
	Hop       string // see the constants
	Detail    string
}

// The hops that can make duplicates, where at-least-once allows them.
const (
	HopPublish = "publish repeated"
	HopHandoff = "hand-off repeated"
	HopUnacked = "not acknowledged"
	HopDoubt   = "acknowledged in a fault"
	HopMove    = "moved by a broker that died"
)

// Result is what the checker found.
type Result struct {
	Published, Confirmed int
	// States counts ids by group and end state. Processed is a state; an id in two
	// states counts in both.
	States map[string]map[string]int
	// None counts confirmed ids by group that are in no end state.
	None       map[string]int
	Attempts   int
	Deliveries int
	HandedOff  int
	// CrashBlamed counts dead letters for crashes: those whose script ends
	// processes, and others that the driver's kills hit while they were alone.
	CrashScripted, CrashOthers int
	Duplicates                 []Duplicate
	// Lateness of handled retries, sorted.
	Lateness   []time.Duration
	Violations []Violation
}

// End states that are in ledgers and in no stream.
const (
	stateProcessed = "processed"
	// stateDestroyed is that of messages in a stream that the storm has deleted.
	stateDestroyed = "deleted by the storm"
)

type pair struct{ id, group string }

type checker struct {
	h            History
	r            *Result
	publishes    map[string][]Event
	steps        map[pair][]Event
	left         map[pair][]Left
	disturbances []Event
}

// Check compares ledgers and streams.
func Check(h History) *Result {
	c := &checker{
		h: h, publishes: map[string][]Event{}, steps: map[pair][]Event{}, left: map[pair][]Left{},
		r: &Result{States: map[string]map[string]int{}, None: map[string]int{}},
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	for _, e := range h.Events {
		switch e.Kind {
		case Disturbed:
			c.disturbances = append(c.disturbances, e)
		case Publishing, Confirmed, Unconfirmed:
			c.publishes[e.ID] = append(c.publishes[e.ID], e)
		default:
			p := pair{e.ID, e.Group}
			c.steps[p] = append(c.steps[p], e)
		}
	}
	for _, l := range h.Left {
		groups := []string{l.Group}
		if l.Group == "" {
			groups = h.Groups
		}
		for _, g := range groups {
			p := pair{l.ID, g}
			c.left[p] = append(c.left[p], l)
		}
	}
	for _, g := range h.Groups {
		c.r.States[g] = map[string]int{}
	}
	ids := make([]string, 0, len(c.publishes))
	for id := range c.publishes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		c.message(id)
	}
	c.strangers()
	slices.Sort(c.r.Lateness)
	return c.r
}

func (c *checker) violation(p Problem, at pair, format string, args ...any) {
	v := Violation{Problem: p, ID: at.id, Group: at.group, Detail: fmt.Sprintf(format, args...)}
	v.Steps = append(slices.Clone(c.publishes[at.id]), c.steps[at]...)
	slices.SortStableFunc(v.Steps, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	v.Steps = v.Steps[max(0, len(v.Steps)-stepsShown):]
	c.r.Violations = append(c.r.Violations, v)
}

func has(events []Event, k Kind) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == k })
}

func (c *checker) message(id string) {
	c.r.Published++
	confirmed := has(c.publishes[id], Confirmed)
	if confirmed {
		c.r.Confirmed++
	}
	for _, g := range c.h.Groups {
		p := pair{id, g}
		c.ends(p, confirmed)
		c.bytes(p)
		c.due(p)
		c.owners(p)
		c.verdict(p)
	}
	c.outputs(id)
}

// ends counts the end states of a message in a group.
func (c *checker) ends(p pair, confirmed bool) {
	processed, ends := 0, 0
	for _, e := range c.steps[p] {
		switch e.Kind {
		case Outcome:
			if e.Note == string(middleware.OutcomeProcessed) {
				processed++
			}
		case Delivered:
			c.r.Deliveries++
		case Handling:
			c.r.Attempts++
		case HandedOff:
			c.r.HandedOff++
		}
	}
	states := map[string]bool{}
	if processed > 0 {
		states[stateProcessed] = true
	}
	ends = processed
	waiting := adapters.Stream("")
	for _, l := range c.left[p] {
		states[string(l.Stream)] = true
		if l.Stream == adapters.StreamMain || l.Stream == adapters.StreamSuspect || l.Stream == StreamDelay {
			waiting = l.Stream
			continue
		}
		ends++
	}
	for s := range states {
		c.r.States[p.group][s]++
	}
	if ends == 0 && c.destroyed(p) {
		c.r.States[p.group][stateDestroyed]++
		return
	}
	switch {
	case ends == 0 && waiting != "":
		c.violation(Stuck, p, "still in the %s stream", waiting)
	case ends == 0 && confirmed:
		c.r.None[p.group]++
		c.violation(Lost, p, "confirmed to the producer, and in no end state")
	case ends > 1:
		hops := c.doubts(p)
		for i := range ends - 1 {
			if i >= len(hops) {
				c.violation(Unexplained, p, "%d end states, and %d doubtful hops that can have made them", ends, len(hops))
				break
			}
			c.r.Duplicates = append(c.r.Duplicates, hops[i])
		}
	}
}

// destroyed reports a message that was handed off to a stream of its group, all of
// whose records were deleted after that.
func (c *checker) destroyed(p pair) bool {
	for _, e := range c.steps[p] {
		if e.Kind != HandingOff {
			continue
		}
		for _, d := range c.disturbances {
			if d.Stream != "" && d.Stream == e.Stream && d.Group == p.group && e.At <= d.Due {
				return true
			}
		}
	}
	return false
}

// doubts are the hops of a message that may have made a copy, the surest first.
func (c *checker) doubts(p pair) (hops []Duplicate) {
	add := func(hop, format string, args ...any) {
		hops = append(hops, Duplicate{ID: p.id, Group: p.group, Hop: hop, Detail: fmt.Sprintf(format, args...)})
	}
	publishes := 0
	why := "the producer died"
	for _, e := range c.publishes[p.id] {
		switch e.Kind {
		case Publishing:
			if publishes++; publishes > 1 {
				add(HopPublish, "%s published it again after: %s", e.Process, why)
			}
			why = "the producer died"
		case Unconfirmed:
			why = e.Note
		}
	}

	type delivery struct {
		process string
		number  uint64
	}
	acks := map[delivery]Event{}
	for _, e := range c.steps[p] {
		if e.Kind == Acknowledged {
			acks[delivery{e.Process, e.Number}] = e
		}
	}
	var unacked, doubted, moved []Duplicate
	open := map[string]int{} // hand-offs by process that have neither result nor outcome
	done := map[string]int{} // confirmed ones without an outcome
	for _, e := range c.steps[p] {
		switch e.Kind {
		case HandingOff:
			open[e.Process]++
		case NotHandedOff:
			open[e.Process]--
			add(HopHandoff, "%s to %s was not confirmed: %s", e.Process, e.Stream, e.Note)
		case HandedOff:
			open[e.Process]--
			done[e.Process]++
			if by, hit := c.brokerDied(e); hit && (e.Stream == adapters.StreamRetry || e.Stream == adapters.StreamParking) {
				moved = append(moved, Duplicate{p.id, p.group, HopMove, fmt.Sprintf("handed off to %s by %s, and then: %s", e.Stream, e.Process, by)})
			}
		case Outcome:
			returned := e.Note == string(middleware.OutcomeReturned)
			if done[e.Process] > 0 && e.Note != string(middleware.OutcomeProcessed) {
				done[e.Process]--
				returned = false
			}
			if returned {
				continue
			}
			ack, acked := acks[delivery{e.Process, e.Number}]
			if !acked {
				unacked = append(unacked, Duplicate{p.id, p.group, HopUnacked, fmt.Sprintf("%s by %s#%d, and not acknowledged", e.Note, e.Process, e.Number)})
			} else if by, hit := c.disturbed(ack); hit {
				doubted = append(doubted, Duplicate{p.id, p.group, HopDoubt, fmt.Sprintf("%s by %s#%d, acknowledged during: %s", e.Note, e.Process, e.Number, by)})
			}
		}
	}
	for process, n := range open {
		for range n {
			add(HopHandoff, "%s died during a hand-off", process)
		}
	}
	for process, n := range done {
		for range n {
			unacked = append(unacked, Duplicate{p.id, p.group, HopUnacked, fmt.Sprintf("handed off by %s, which then died", process)})
		}
	}
	return slices.Concat(hops, unacked, doubted, moved)
}

// disturbed reports a fault that may have swallowed an acknowledgement.
func (c *checker) disturbed(ack Event) (by string, hit bool) {
	for _, d := range c.disturbances {
		if d.At-int64(doubtBefore) > ack.At {
			break
		}
		if ack.At <= d.Due+int64(doubtAfter) && covers(d.Scope, ack.Process) {
			return d.Note, true
		}
	}
	return "", false
}

// covers reports whether a fault with this scope hits a process.
func covers(scope, process string) bool {
	return scope == "" || scope == process || strings.HasPrefix(process, scope+"-") || strings.HasPrefix(process, scope+".")
}

// brokerDied reports a death of the broker while it held what e handed off.
func (c *checker) brokerDied(e Event) (by string, hit bool) {
	until := max(e.At, e.Due) + int64(doubtAfter)
	for _, d := range c.disturbances {
		if d.Broker && d.At <= until && d.Due >= e.At-int64(doubtBefore) {
			return d.Note, true
		}
	}
	return "", false
}

// bytes compares everything that was seen with what was published.
func (c *checker) bytes(p pair) {
	want := c.publishes[p.id][0].Digest
	for _, e := range c.steps[p] {
		if e.Kind == Delivered && e.Digest != want {
			c.violation(Changed, p, "delivered from %s to %s with other bytes than were published", e.Stream, e.Process)
			return
		}
	}
	for _, l := range c.left[p] {
		if l.Digest != want {
			c.violation(Changed, p, "lies in %s with other bytes than were published", l.Stream)
			return
		}
	}
}

// due looks at when attempts began, by the state that they came with and by what
// was handed off.
func (c *checker) due(p pair) {
	for i, e := range c.steps[p] {
		if e.Kind != Handling || e.Stream == adapters.StreamMain {
			continue
		}
		if e.Due != 0 {
			late := time.Duration(e.At - e.Due)
			c.r.Lateness = append(c.r.Lateness, late)
			if late < -clockSlop {
				c.violation(Early, p, "attempt %d began %s before its due time", e.Attempt, -late)
				continue
			}
		}
		found, earliest := false, int64(0)
		for _, w := range c.steps[p][:i] {
			if w.Kind == HandingOff && w.Attempt == e.Attempt && w.Checks == e.Checks && leadsTo(w.Stream, e.Stream) {
				if !found || w.Due < earliest {
					earliest = w.Due
				}
				found = true
			}
		}
		switch {
		case !found:
			c.violation(Foreign, p, "attempt %d, check %d came from the %s stream, and the group had not handed it off there", e.Attempt, e.Checks, e.Stream)
		case earliest > e.At+int64(clockSlop):
			c.violation(Early, p, "attempt %d began %s before the time that its hand-off named", e.Attempt, time.Duration(earliest-e.At))
		}
	}
}

// leadsTo reports whether what is handed off to a stream comes back from another.
func leadsTo(to, from adapters.Stream) bool {
	return to == from || to == adapters.StreamParking && from == adapters.StreamRetry
}

// owners looks for what belongs to another group.
func (c *checker) owners(p pair) {
	mine := c.h.Topic + "/" + p.group
	for _, e := range c.steps[p] {
		if e.Kind != Delivered {
			continue
		}
		switch {
		case e.Stream == adapters.StreamMain && e.Owner != "":
			c.violation(Foreign, p, "came from the topic with the state of %s: a retry was published to everyone", e.Owner)
		case e.Stream != adapters.StreamMain && e.Owner != mine:
			c.violation(Foreign, p, "came from the %s stream with the state of %q", e.Stream, e.Owner)
		}
	}
	for _, l := range c.left[p] {
		if l.Owner != "" && l.Owner != mine && l.Group != "" {
			c.violation(Foreign, p, "lies in %s with the state of %q", l.Stream, l.Owner)
		}
	}
}

// verdict looks for messages that were given up without reason.
func (c *checker) verdict(p pair) {
	n, ok := c.h.Script.Number(p.id)
	if !ok {
		return
	}
	healthy := p.group != c.h.Acting || c.h.Script.MustSucceed(n)
	for _, l := range c.left[p] {
		if l.Stream != adapters.StreamDeadLetter {
			continue
		}
		crash := l.Reason == string(policy.ReasonConsumerCrash)
		switch {
		case crash && p.group == c.h.Acting && c.h.Script.Fate(n) == Exits:
			c.r.CrashScripted++
		case crash:
			c.r.CrashOthers++
		case l.Reason == string(policy.ReasonParkingDeadline) && c.h.Script.Fate(n) == Missing:
			// An outage of the storm lasted longer than the deadline.
		case healthy:
			c.violation(Blamed, p, "the script lets it succeed (%s), and it is a dead letter: %q", c.h.Script.Fate(n), l.Reason)
		}
	}
}

// outputs compares what was published for a message with what was processed.
func (c *checker) outputs(id string) {
	n, ok := c.h.Script.Number(id)
	if !ok || c.h.Script.Fate(n) != Output {
		return
	}
	p := pair{id, c.h.Acting}
	processed := slices.ContainsFunc(c.steps[p], func(e Event) bool {
		return e.Kind == Outcome && e.Note == string(middleware.OutcomeProcessed)
	})
	_, published := slices.BinarySearch(c.h.Outputs, id)
	switch {
	case processed && !published:
		c.violation(OutputLost, p, "processed, and its output is nowhere")
	case published && !has(c.steps[p], OutputStarted):
		c.violation(OutputEarly, p, "its output was published, and no attempt of it succeeded")
	}
}

// strangers are messages that were seen and never published.
func (c *checker) strangers() {
	var seen []pair
	for p := range c.steps {
		seen = append(seen, p)
	}
	for p := range c.left {
		seen = append(seen, p)
	}
	slices.SortFunc(seen, func(a, b pair) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.group, b.group)) })
	for _, p := range slices.Compact(seen) {
		if len(c.publishes[p.id]) == 0 {
			c.violation(Stranger, p, "nobody published it")
		}
	}
}
