package adaptertest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// Invariant 8; K15, K26, R26: the process is replaced after each attempt, by
// deployment and by SIGKILL in turn. Two messages that fail, with healthy ones
// between them, are each tried exactly as often as the policy says.
func countersSurvive(w *world) {
	const limit = 5
	var process atomic.Int32
	handle := func(c *call) error {
		if !strings.HasPrefix(c.UUID, "bad") {
			return nil
		}
		if c.attempt > int(process.Load()) {
			// It waits for the next process: this one may be killed at any moment,
			// and a kill between hand-off and ack makes a copy.
			<-c.Context().Done()
			return c.Context().Err()
		}
		return failure.Transient(errDown)
	}
	a := app{handle: handle, config: func(c *spillway.Config) {
		c.Policy.Attempts.Transient = limit
		c.Concurrency = 4
	}}
	w.ensure(w.consumer(group))
	for attempt := 1; attempt <= limit; attempt++ {
		process.Store(int32(attempt))
		p := w.start(a)
		if attempt == 1 {
			w.publish("bad-1", "fine-1", "bad-2", "fine-2")
		} else {
			w.publish(fmt.Sprintf("fine-%d", attempt+1))
		}
		match := func(e event) bool { return e.attempt == attempt && strings.HasPrefix(e.id, "bad") }
		w.wait(fmt.Sprintf("attempt %d", attempt), 2, is(outcome), match)
		w.wait("their acks", 2*attempt, is(acked), ofPrefix("bad"))
		if attempt%2 == 0 {
			time.Sleep(w.h.AckWithin) // a kill before makes copies
			p.kill()
		} else {
			p.close()
		}
	}
	w.start(a)
	failed := func(e event) bool { return errors.Is(e.err, errDown) }
	w.stays("handler calls of failing messages", 2*limit, is(finished), ofPrefix("bad"), failed)
	for _, l := range w.drain(adapters.StreamDeadLetter, group) {
		if l.state.Attempt != limit || l.state.Reason != string(policy.ReasonAttemptsExhausted) {
			w.Errorf("%s is dead after %d attempts for %q, want %d, attempts_exhausted", l.ID, l.state.Attempt, l.state.Reason, limit)
		}
	}
	if n := w.count(ended(middleware.OutcomeDeadLettered)); n != 2 {
		w.Errorf("%d dead letters, want 2", n)
	}
}

// Invariant 8; R6: one message kills its process whenever it is handled.
// Deliveries that its neighbours share with it make them suspects at most; in
// the suspect stream, alone, they are processed, and it is dead-lettered as
// consumer_crash.
func crashingMessage(w *world) {
	if !w.caps.DeliveryCount {
		noCount(w)
		return
	}
	neighbours := 6
	a := app{
		handle: func(c *call) error {
			if c.UUID == "bomb" {
				return c.kill()
			}
			// In flight beside the bomb, as long as that has not gone off.
			pause := time.NewTimer(w.h.Delay / 4)
			defer pause.Stop()
			select {
			case <-pause.C:
				return nil
			case <-c.Context().Done():
				return c.Context().Err()
			}
		},
		config: func(c *spillway.Config) { c.Concurrency = 4 },
	}
	w.ensure(w.consumer(group))
	w.publish("bomb")
	w.publish(ids("near", neighbours)...)
	done := func() bool {
		return w.count(ended(middleware.OutcomeDeadLettered), of("bomb")) > 0
	}
	for deaths := 0; !done(); deaths++ {
		if deaths > 2*middleware.SuspectAfter+2 {
			w.Fatalf("the message was let kill %d processes", deaths)
		}
		p := w.start(a)
		w.wait("the process dies, or the message is found", 1, func(e event) bool {
			return e.process == p && (e.kind == killed || e.id == "bomb" && e.outcome == middleware.OutcomeDeadLettered)
		})
	}
	w.wait("neighbours", neighbours, ended(middleware.OutcomeProcessed), ofPrefix("near"))
	l := w.only(adapters.StreamDeadLetter, "bomb")
	if l.state.Reason != string(policy.ReasonConsumerCrash) || l.state.Class != failure.ClassConsumerCrash {
		w.Errorf("the dead letter has the reason %q and class %q, want consumer_crash", l.state.Reason, l.state.Class)
	}
	calls := w.find(is(called), of("bomb"))
	if len(calls) > 2*middleware.SuspectAfter {
		w.Errorf("the message was handled %d times, want at most %d", len(calls), 2*middleware.SuspectAfter)
	}
	alone := 0
	for _, e := range calls {
		if e.stream == adapters.StreamSuspect {
			alone++
		}
	}
	if alone == 0 {
		w.Errorf("the message was never handled alone, in the suspect stream")
	}
	for _, e := range w.find(is(killed)) {
		suspects := 0
		for _, s := range w.find(is(called), on(adapters.StreamSuspect), by(e.process)) {
			if !s.at.After(e.at) && w.count(is(finished), of(s.id), by(e.process)) == 0 {
				suspects++
			}
		}
		if suspects > 1 {
			w.Errorf("%d suspects were handled at a time, want one alone", suspects)
		}
	}
}

// noCount checks that a broker without delivery counts invents none.
func noCount(w *world) {
	w.start(app{handle: failFirst})
	w.publish("retry")
	w.wait("processed", 1, ended(middleware.OutcomeProcessed))
	for _, d := range w.deliveries() {
		if d.Count != 0 {
			w.Errorf("the broker declares no delivery count, and says %d", d.Count)
		}
	}
}

// Invariants 7 and 8: ten deployments, each of which interrupts the same
// handlers. Nothing is dead-lettered, nothing is counted.
func rollingRestarts(w *world) {
	w.ensure(w.consumer(group))
	slow := ids("slow", 3)
	w.publish(slow...)
	a := app{
		handle: func(c *call) error { <-c.Context().Done(); return c.Context().Err() },
		config: func(c *spillway.Config) { c.Concurrency = 3 },
	}
	for range 10 {
		p := w.start(a)
		w.wait("a handler runs", 1, is(called), by(p))
		p.close()
	}
	if n := w.count(ended(middleware.OutcomeDeadLettered)); n != 0 {
		w.Errorf("%d dead letters because of deployments", n)
	}
	a.handle = func(*call) error { return nil }
	p := w.start(a)
	w.wait("processed", len(slow), ended(middleware.OutcomeProcessed), by(p))
	for _, e := range w.find(is(called)) {
		if e.attempt != 1 {
			w.Errorf("%s is attempt %d after deployments, want 1", e.id, e.attempt)
		}
	}
	w.empty(adapters.StreamDeadLetter, group)
}

// Invariant 8; K6, K10: 300 attempts are 300, and one call each.
func manyAttempts(w *world) {
	limit := pick(w, 12, 300)
	delay := pick(w, 10*time.Millisecond, time.Second)
	w.start(app{
		handle: func(*call) error { return failure.Transient(errDown) },
		config: func(c *spillway.Config) {
			c.Policy.Attempts.Transient = limit
			c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone}
		},
	})
	w.publish("bad")
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	for i, e := range w.find(is(called)) {
		if e.attempt != i+1 {
			w.Fatalf("call %d of the handler is attempt %d", i+1, e.attempt)
		}
	}
	if n := w.count(is(called)); n != limit {
		w.Errorf("the handler was called %d times, want %d", n, limit)
	}
	if l := w.only(adapters.StreamDeadLetter, "bad"); l.state.Attempt != limit {
		w.Errorf("the dead letter counts %d attempts, want %d", l.state.Attempt, limit)
	}
}
