package adaptertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// fates are what can become of a message, by the beginning of its id. Each says
// where it must end.
var fates = []struct {
	prefix string
	end    adapters.Stream // main means processed
	handle func(*call) error
}{
	{"fine", adapters.StreamMain, func(*call) error { return nil }},
	{"flaky", adapters.StreamMain, func(c *call) error {
		if c.attempt < 3 {
			return failure.Transient(errDown)
		}
		return nil
	}},
	{"panic", adapters.StreamMain, func(c *call) error {
		if c.attempt < 2 {
			panic("a bug in the handler")
		}
		return nil
	}},
	{"waits", adapters.StreamMain, func(c *call) error {
		if c.delivery.State.ParkedAt.IsZero() {
			return failure.Waiting(errDown, "approval")
		}
		return nil
	}},
	{"poison", adapters.StreamDeadLetter, func(*call) error { return failure.Permanent(errors.New("bad input")) }},
	{"hopeless", adapters.StreamDeadLetter, func(*call) error { return failure.Transient(errDown) }},
	{"parked", adapters.StreamParking, func(*call) error { return failure.Missing("customer", "4711") }},
}

// ledger plays fates, and says at the end where every id is.
type ledger struct {
	w   *world
	ids []string
}

// newLedger publishes so many messages of each fate.
func (w *world) newLedger(each int) *ledger {
	w.Helper()
	w.ensure(w.consumer(group))
	l := &ledger{w: w}
	l.publish(each)
	return l
}

func (l *ledger) publish(each int) {
	l.w.Helper()
	for range each {
		number := len(l.ids) / len(fates)
		for _, f := range fates {
			id := fmt.Sprintf("%s-%03d", f.prefix, number)
			l.ids = append(l.ids, id)
			l.w.publish(id)
		}
	}
}

func (l *ledger) app(concurrency int) app {
	return app{
		handle: func(c *call) error {
			time.Sleep(l.w.h.Delay / 50) // so that something is always going on
			for _, f := range fates {
				if strings.HasPrefix(c.UUID, f.prefix+"-") {
					return f.handle(c)
				}
			}
			return nil
		},
		config: func(c *spillway.Config) {
			c.Concurrency = concurrency
			c.Policy.Attempts.Transient = 3
			c.Policy.Attempts.Ambiguous = 1
			// The missing customer never comes while anybody looks.
			c.Policy.Classes = map[failure.Class]policy.Override{
				failure.ClassReferenceNotFound: {Parking: policy.Parking{Interval: 160 * time.Hour, Deadline: 165 * time.Hour, DeadlineWithoutReference: 165 * time.Hour}},
			}
		},
	}
}

// wait waits until every id has reached its end, and for what may come after.
func (l *ledger) wait() {
	l.w.Helper()
	timeout := time.NewTimer(2 * l.w.h.Within)
	defer timeout.Stop()
	reached := map[string]bool{}
	for seen := 0; ; {
		l.w.mu.Lock()
		news, changed := l.w.events[seen:], l.w.changed
		seen = len(l.w.events)
		l.w.mu.Unlock()
		for _, e := range news {
			if e.err == nil && (e.kind == finished ||
				e.kind == handedOff && e.stream == adapters.StreamDeadLetter ||
				e.kind == handedOff && e.stream == adapters.StreamParking && strings.HasPrefix(e.id, "parked")) {
				reached[e.id] = true
			}
		}
		if len(reached) == len(l.ids) {
			break
		}
		select {
		case <-changed:
		case <-timeout.C:
			return // audit says what is missing
		}
	}
	l.w.quiet()
}

// audit compares the ends with the fates. Copies are allowed of what was
// unsettled when a process was killed, at most one for each kill.
func (l *ledger) audit() {
	l.w.Helper()
	where := map[adapters.Stream]map[string]int{
		adapters.StreamMain: {}, adapters.StreamDeadLetter: {}, adapters.StreamParking: {},
	}
	for _, e := range l.w.find(is(finished), confirmed) {
		where[adapters.StreamMain][e.id]++
	}
	for _, s := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking} {
		for _, r := range l.w.drain(s, group) {
			where[s][r.ID]++
		}
	}
	explained := map[string]int{}
	for _, e := range l.w.find(is(killed)) {
		for _, id := range e.ids {
			explained[id]++
		}
	}
	copies := 0
	for _, id := range l.ids {
		for _, f := range fates {
			if !strings.HasPrefix(id, f.prefix+"-") {
				continue
			}
			n := where[f.end][id]
			if n == 0 {
				l.w.Errorf("%s is lost: it should be in %s, and is processed %d, dead-lettered %d, parked %d times",
					id, f.end, where[adapters.StreamMain][id], where[adapters.StreamDeadLetter][id], where[adapters.StreamParking][id])
			}
			// A copy that was in flight at a kill makes one more at each of the
			// later kills that it lives through.
			if l.w.h.Moves && f.prefix == "waits" && l.w.count(is(killed)) > 0 {
				explained[id]++
			}
			if most := 1 << explained[id]; n > most {
				l.w.Errorf("%s is in %s %d times; it was in flight at %d kills, which explain %d", id, f.end, n, explained[id], most)
			}
			copies += max(n-1, 0)
			for other, ids := range where {
				if other != f.end && ids[id] > 0 {
					l.w.Errorf("%s is in %s, where it does not belong", id, other)
				}
			}
		}
	}
	l.w.Logf("%d messages, %d kills, %d copies", len(l.ids), l.w.count(is(killed)), copies)
}

// Invariant 2; K1, K30, S25: SIGKILL in the handler, before a hand-off, between
// a hand-off and its ack, before the ack of a success, for each of the streams,
// with other messages in flight. Every id is at its end afterwards.
func conservationThroughKills(w *world) {
	l := w.newLedger(pick(w, 6, 12))
	a := l.app(4)
	kills := []fault{
		{on: opHandoff, stream: adapters.StreamRetry, skip: 1, do: killBefore()},
		{on: opHandoff, stream: adapters.StreamRetry, skip: 2, do: killAfter()},
		{on: opHandoff, stream: adapters.StreamDeadLetter, skip: 1, do: killAfter()},
		{on: opHandoff, stream: adapters.StreamDeadLetter, do: killBefore()},
		{on: opHandoff, stream: adapters.StreamParking, skip: 1, do: killAfter()},
		{on: opAck, stream: adapters.StreamMain, skip: 2, do: killBefore()},
		{on: opAck, stream: adapters.StreamRetry, skip: 1, do: killBefore()},
		{on: opAck, stream: adapters.StreamRetry, do: killAfter()},
	}
	first := a
	var calls atomic.Int64
	first.handle = func(c *call) error {
		if calls.Add(1) == 6 {
			return c.kill()
		}
		return a.handle(c)
	}
	p := w.start(first)
	w.wait("the process is killed in its handler", 1, is(killed), by(p))
	for _, kill := range kills {
		w.inject(kill)
		l.publish(2) // so that the fault has something to hit
		p := w.start(a)
		w.wait("the process is killed at its "+kill.String(), 1, is(killed), by(p))
	}
	w.start(a)
	l.wait()
	w.closeAll()
	l.audit()
}

// closeAll ends all programs.
func (w *world) closeAll() {
	w.Helper()
	for _, p := range w.all() {
		p.close()
	}
	w.dying.Wait()
}

// Invariants 2 and 7: deployments in the middle of everything. Nothing is lost,
// and as nobody was killed nothing is doubled.
func conservationThroughRestarts(w *world) {
	l := w.newLedger(pick(w, 4, 20))
	a := l.app(4)
	for range 6 {
		p := w.start(a)
		w.wait("something happens", 5, is(finished), by(p))
		p.close()
	}
	w.start(a)
	l.wait()
	w.closeAll()
	l.audit()
}

// Invariants 1 and 2; K27, S25: the copies of one dead letter share its id, so
// that tools can fold them.
func deathBetweenHandoffAndAck(w *world) {
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, do: killAfter()})
	p := w.start(app{handle: failFirst})
	w.publish("dead")
	w.wait("the process is killed", 1, is(killed), by(p))
	w.start(app{handle: failFirst})
	w.wait("dead letter of the next process", 1, ended(middleware.OutcomeDeadLettered), of("dead"))
	dead := w.drain(adapters.StreamDeadLetter, group)
	if len(dead) != 2 {
		w.Fatalf("%d dead letters, want the first and its copy", len(dead))
	}
	if a, b := dead[0].state, dead[1].state; a.DeadLetterID != b.DeadLetterID || a.DeadLetterID == "" {
		w.Errorf("the copies have the ids %q and %q, want one", a.DeadLetterID, b.DeadLetterID)
	}
}

// Invariant 2; R5: the broker itself restarts with messages everywhere.
func brokerRestart(w *world) {
	l := w.newLedger(3)
	p := w.start(l.app(4))
	w.wait("something happens", 5, is(finished))
	// The copies of the messages in flight are explained by the restart.
	w.log(event{kind: killed, process: p, ids: slices.Clone(l.ids)})
	if w.target.Restart != nil && !w.h.Parallel {
		if err := w.target.Restart(); err != nil {
			w.Fatalf("restart the broker: %v", err)
		}
	} else {
		// A broker that cannot be restarted: all connections end instead.
		p.kill()
		w.start(l.app(4))
	}
	l.wait()
	w.closeAll()
	l.audit()
}
