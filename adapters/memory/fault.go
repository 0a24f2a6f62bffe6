package memory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// ErrInjected is the error of a fault that was given none.
var ErrInjected = errors.New("injected fault")

// Op is an operation that a fault can hit.
type Op string

const (
	Publish   Op = "publish"   // of one message to a topic
	Handoff   Op = "hand-off"  // to one of a consumer's own streams
	Deliver   Op = "deliver"   // one record, to a subscription
	Ack       Op = "ack"       // of one delivery
	Return    Op = "return"    // of one delivery
	Drain     Op = "drain"     // of one record
	Ensure    Op = "ensure"    // of a consumer; Stream is its topic
	Subscribe Op = "subscribe" // of a consumer; Stream is its topic
)

// Always as Fault.Times never stops.
const Always = math.MaxInt

// Fault is a line of a script: what goes wrong, with which operation, when.
type Fault struct {
	// On is the operation that goes wrong.
	On Op
	// Stream is the name of the topic or stream that is written to or read
	// from, such as "orders.billing.dlq". Empty means any.
	Stream string
	// Group is the consumer group. Empty means any. Publish and Drain have none.
	Group string
	// ID is the record's, which is the message's UUID. Empty means any. Ensure
	// and Subscribe have none.
	ID string
	// Skip lets so many operations pass that match.
	Skip int
	// Times is how many of the operations after that are hit, one after the
	// other. Zero means once; see [Always].
	Times int
	// Do is what happens.
	Do Effect
}

// String describes f on a line, for the failure messages of tests.
func (f Fault) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "on %s", f.On)
	for _, part := range []struct{ name, value string }{{"stream", f.Stream}, {"group", f.Group}, {"id", f.ID}} {
		if part.value != "" {
			fmt.Fprintf(&s, " %s %q", part.name, part.value)
		}
	}
	if f.Skip > 0 {
		fmt.Fprintf(&s, ", skip %d", f.Skip)
	}
	switch {
	case f.Times == Always:
		s.WriteString(", always")
	case f.Times > 1:
		fmt.Fprintf(&s, ", %d times", f.Times)
	}
	fmt.Fprintf(&s, ": %v", f.Do)
	return s.String()
}

// Effect is what a fault does. Make it with one of the functions that return
// one: [Fail], [FailAfter], [Lose], [Twice], [Hold], [Delay], [Crash],
// [Disconnect], [Undecodable].
type Effect struct {
	kind  kind
	err   error
	until <-chan struct{}
	delay time.Duration
}

type kind string

const (
	fail        kind = "fail"
	failAfter   kind = "fail after"
	lose        kind = "lose"
	twice       kind = "twice"
	hold        kind = "hold"
	delay       kind = "delay"
	crash       kind = "crash"
	disconnect  kind = "disconnect"
	undecodable kind = "undecodable"
)

// possible says which effects an operation can have.
var possible = map[Op][]kind{
	Publish:   {fail, failAfter, twice, hold, delay, crash},
	Handoff:   {fail, failAfter, twice, hold, delay, crash},
	Deliver:   {twice, hold, delay, crash, disconnect, undecodable},
	Ack:       {fail, failAfter, lose, hold, delay, crash, disconnect},
	Return:    {fail, hold, delay, crash, disconnect},
	Drain:     {fail, failAfter, hold, delay, crash},
	Ensure:    {fail, hold, delay, crash},
	Subscribe: {fail, hold, delay, crash},
}

// Fail makes the operation return err, wrapped, without having any effect.
// After a failed Ack or Return the record is delivered again. Give it
// adapters.ErrRefused or adapters.ErrTooLarge for an end that no repetition
// changes. A nil err means [ErrInjected].
func Fail(err error) Effect { return Effect{kind: fail, err: orInjected(err)} }

// FailAfter makes the operation return err, wrapped, though it was carried
// out: the confirmation got lost. A nil err means [ErrInjected].
func FailAfter(err error) Effect { return Effect{kind: failAfter, err: orInjected(err)} }

// Lose makes an Ack return nil though it never arrives: the record is
// delivered again.
func Lose() Effect { return Effect{kind: lose} }

// Twice makes Deliver offer the record once more while the first delivery is
// unsettled, and makes Publish and Handoff write it two times. Whichever
// delivery is acknowledged first removes the record. The second needs a free
// place in a subscription of the group, which with a single one of Concurrency
// 1, or from the suspect stream, there is not before the first is settled.
func Twice() Effect { return Effect{kind: twice} }

// Hold makes the operation wait until release is closed and then go on. It
// ends earlier, with an error, with the operation's context, the process or
// the broker; a held Deliver ends with its subscription. A nil release waits
// for one of those. A held Deliver occupies its place among the Concurrency of
// its subscription; with 1, what comes after it waits too.
func Hold(release <-chan struct{}) Effect { return Effect{kind: hold, until: release} }

// Delay makes the operation wait for d, otherwise like [Hold].
func Delay(d time.Duration) Effect { return Effect{kind: delay, delay: d} }

// Crash kills the process at the start of the operation, which is not carried
// out and returns adapters.ErrClosed. At Deliver, the process dies of the
// record: the delivery is counted. On Ack, it dies between hand-off and ack.
// See [Broker.Crash] for what that means. The publisher of a Broker belongs to
// no process; with it, only the operation fails.
func Crash() Effect { return Effect{kind: crash} }

// Disconnect breaks the subscription at the start of the operation. See
// [Broker.Disconnect] for what that means.
func Disconnect() Effect { return Effect{kind: disconnect} }

// Undecodable marks the delivery as one whose framing could not be read. A nil
// err means [ErrInjected].
func Undecodable(err error) Effect { return Effect{kind: undecodable, err: orInjected(err)} }

func orInjected(err error) error {
	if err == nil {
		return ErrInjected
	}
	return err
}

// String names the effect.
func (e Effect) String() string {
	switch {
	case e.err != nil:
		return fmt.Sprintf("%s: %v", e.kind, e.err)
	case e.kind == delay:
		return fmt.Sprintf("delay %v", e.delay)
	}
	return string(e.kind)
}

func (e Effect) waits() bool { return e.kind == hold || e.kind == delay }

// wait keeps the caller as long as e wants; not at all for most effects. It
// returns an error if ctx or gone ended it.
func (e Effect) wait(ctx context.Context, gone <-chan struct{}) error {
	var timer <-chan time.Time
	switch e.kind {
	case delay:
		t := time.NewTimer(e.delay)
		defer t.Stop()
		timer = t.C
	case hold:
	default:
		return nil
	}
	select {
	case <-e.until:
		return nil
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-gone:
		return adapters.ErrClosed
	}
}

// scripted is a fault that was injected.
type scripted struct {
	Fault
	hit bool
}

// Inject appends faults to the script. Each operation is shown to the faults
// in their order. One that matches either lets it pass, which costs one of its
// Skip, or takes it, which costs one of its Times; what one took the others do
// not see. Inject panics if a fault cannot happen, such as a redelivery on
// Publish: that is a mistake in the test.
func (b *Broker) Inject(faults ...Fault) {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			panic(fmt.Errorf("memory: inject: %v: %w", f, err))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range faults {
		f.Times = max(f.Times, 1)
		b.faults = append(b.faults, &scripted{Fault: f})
	}
}

// FaultsLeft returns the faults that have not fully happened yet, with what is
// left of their Skip and Times. A fault that happens [Always] is left until it
// has happened once.
func (b *Broker) FaultsLeft() []Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []Fault
	for _, f := range b.faults {
		if f.Times != Always || !f.hit {
			left = append(left, f.Fault)
		}
	}
	return left
}

// ClearFaults forgets the script. What waits already goes on waiting.
func (b *Broker) ClearFaults() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
}

func (f Fault) validate() error {
	effects, known := possible[f.On]
	switch {
	case !known:
		return fmt.Errorf("there is no operation %q", f.On)
	case f.Do.kind == "":
		return errors.New("field Do is not set")
	case !slices.Contains(effects, f.Do.kind):
		return fmt.Errorf("%s cannot have the effect %q", f.On, f.Do.kind)
	case f.Skip < 0 || f.Times < 0:
		return errors.New("fields Skip and Times cannot be negative")
	case f.Group != "" && (f.On == Publish || f.On == Drain):
		return fmt.Errorf("%s has no group", f.On)
	case f.ID != "" && (f.On == Ensure || f.On == Subscribe):
		return fmt.Errorf("%s has no ID", f.On)
	}
	return nil
}

// match returns what the script has for an operation. Called with the lock
// held.
func (b *Broker) match(op Op, stream, group, id string) Effect {
	for i, f := range b.faults {
		switch {
		case f.On != op,
			f.Stream != "" && f.Stream != stream,
			f.Group != "" && f.Group != group,
			f.ID != "" && f.ID != id:
			continue
		case f.Skip > 0:
			f.Skip--
			continue
		}
		f.hit = true
		if f.Times != Always {
			f.Times--
		}
		if f.Times == 0 {
			b.faults = slices.Delete(b.faults, i, i+1)
		}
		return f.Do
	}
	return Effect{}
}
