package adaptertest

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// Invariant 7; D1, S5, R28: a handler that a shutdown interrupts has not
// failed. Nothing is counted, parked or dead-lettered, and the next process
// begins with attempt 1.
func shutdownDuringHandler(w *world) {
	interrupted := func(c *call) error { <-c.Context().Done(); return c.Context().Err() }
	w.ensure(w.consumer(group))
	w.publish("a", "b")
	p := w.start(app{handle: interrupted, config: func(c *spillway.Config) { c.Concurrency = 2 }})
	w.wait("handlers run", 2, is(called))
	if took := p.close(); took > p.grace {
		w.Errorf("Close took %s though the handlers returned at once", took)
	}
	if n := w.count(ended(middleware.OutcomeReturned)); n != 2 {
		w.Errorf("%d deliveries were returned, want 2", n)
	}
	if n := w.count(is(handedOff)); n != 0 {
		w.Errorf("%d hand-offs because of a shutdown, want none", n)
	}
	p = w.start(app{handle: func(*call) error { return nil }})
	w.wait("processed", 2, ended(middleware.OutcomeProcessed), by(p))
	for _, e := range w.find(is(called), by(p)) {
		if e.attempt != 1 {
			w.Errorf("%s is attempt %d after a shutdown, want 1", e.id, e.attempt)
		}
	}
	w.empty(adapters.StreamDeadLetter, group)
	w.empty(adapters.StreamParking, group)
}

// Invariant 7; S4: a handler that finishes its work during Close is
// acknowledged. The next process does not see the message.
func finishedWorkIsAcked(w *world) {
	work := pick(w, 500*time.Millisecond, time.Second)
	p := w.start(app{handle: func(*call) error { time.Sleep(work); return nil }})
	w.publish("a")
	w.wait("the handler runs", 1, is(called))
	p.close()
	if w.count(is(acked), of("a"), confirmed) != 1 || w.count(ended(middleware.OutcomeProcessed)) != 1 {
		w.Errorf("the message whose handler finished during Close was not acknowledged")
	}
	w.start(app{handle: func(*call) error { return nil }})
	w.stays("handler calls", 1, is(called))
}

// Invariant 7: a handler that heeds no context keeps Close for CloseGrace, and
// no longer; its message is another process's then.
func handlerOutlivesGrace(w *world) {
	release := make(chan struct{})
	p := w.start(app{handle: func(*call) error { <-release; return nil }})
	w.publish("a")
	w.wait("the handler runs", 1, is(called))
	closed := make(chan struct{})
	start := time.Now()
	go func() { defer close(closed); p.close() }()
	w.wait("given back", 1, is(returned), of("a"))
	if took := time.Since(start); took < p.grace || took > p.grace+closeLimit {
		w.Errorf("the message was given back after %s, want after the grace of %s", took, p.grace)
	}
	next := w.start(app{handle: func(*call) error { return nil }})
	w.wait("processed elsewhere", 1, ended(middleware.OutcomeProcessed), by(next))
	close(release)
	<-closed
}

// Invariant 7; K20: a retry that is due much later does not keep Close, and
// is handled by a later process, at its time and as its attempt.
func closeDuringBackoff(w *world) {
	delay := pick(w, 5*time.Second, time.Minute)
	a := app{handle: failFirst, config: func(c *spillway.Config) {
		c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone}
	}}
	p := w.start(a)
	w.publish("retry")
	w.wait("waits for its retry", 1, is(acked))
	if took := p.close(); took > time.Second {
		w.Errorf("Close took %s with a retry pending, want at most 1 s", took)
	}
	p = w.start(a)
	w.wait("processed", 1, ended(middleware.OutcomeProcessed), by(p))
	if n := w.count(is(called)); n != 2 {
		w.Errorf("the handler was called %d times, want 2", n)
	}
	w.lateness()
}

// Invariant 7; S25: a hand-off that is on its way when Close begins ends, is
// acknowledged, and leaves one copy.
func closeDuringHandoff(w *world) {
	begun := make(chan struct{})
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, do: func(c *brokerCall) error {
		close(begun)
		time.Sleep(pick(w, 200*time.Millisecond, time.Second))
		return c.real()
	}})
	p := w.start(app{handle: failFirst})
	w.publish("dead")
	<-begun
	p.close()
	if w.count(ended(middleware.OutcomeDeadLettered)) != 1 || w.count(is(acked), confirmed) != 1 {
		w.Errorf("the hand-off that Close met was not finished and acknowledged")
	}
	w.start(app{handle: failFirst})
	w.stays("handler calls", 1, is(called))
	w.only(adapters.StreamDeadLetter, "dead")
}

// Invariants 1 and 7: a hand-off that keeps failing ends with Close; the
// message goes back, uncounted.
func closeDuringFailingHandoff(w *world) {
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, times: 5, do: failWith(errInjected)})
	p := w.start(app{handle: failFirst})
	w.publish("dead")
	w.wait("failing hand-offs", 5, is(handedOff))
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, do: failWith(errInjected)})
	w.wait("one more", 6, is(handedOff))
	if took := p.close(); took > p.grace {
		w.Errorf("Close took %s", took)
	}
	if w.count(is(acked)) != 0 || w.count(ended(middleware.OutcomeReturned)) != 1 {
		w.Errorf("the message whose hand-off failed until Close was not returned")
	}
	p = w.start(app{handle: failFirst})
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), by(p))
	if l := w.only(adapters.StreamDeadLetter, "dead"); l.state.Attempt != 1 {
		w.Errorf("the dead letter counts %d attempts, want 1", l.state.Attempt)
	}
}

// The seam: after Stop nothing is delivered, what was received can still be
// settled; Close gives back the rest. A second call of each does nothing. A
// repeated settlement is ignored. S3, S8, S32.
func stopAndClose(w *world) {
	c := w.consumer(group)
	c.Concurrency = 2
	w.ensure(c)
	w.publish("a", "b", "c")
	ctx, cancel := context.WithTimeout(context.Background(), w.h.Within)
	defer cancel()
	sub, err := w.op.Subscribe(ctx, c)
	if err != nil {
		w.Fatalf("subscribe: %v", err)
	}
	receive := func(sub adapters.Subscription) *adapters.Delivery {
		w.Helper()
		select {
		case d, ok := <-sub.Deliveries():
			if !ok {
				w.Fatal("the deliveries are closed")
			}
			return d
		case <-ctx.Done():
			w.Fatal("no delivery")
			return nil
		}
	}
	first, second := receive(sub), receive(sub)
	if err := sub.Stop(ctx); err != nil {
		w.Errorf("stop: %v", err)
	}
	for d := range sub.Deliveries() {
		w.Errorf("%s was delivered after Stop", d.ID)
	}
	if err := sub.Stop(ctx); err != nil {
		w.Errorf("a second stop: %v", err)
	}
	if err := first.Settler.Ack(ctx, first); err != nil {
		w.Errorf("ack after Stop: %v", err)
	}
	_ = first.Settler.Return(ctx, first) // ignored, whatever it says
	for range 2 {
		if err := sub.Close(ctx); err != nil {
			w.Errorf("close: %v", err)
		}
	}
	if err := second.Settler.Ack(ctx, second); err == nil {
		w.Errorf("an ack after Close said that it was carried out")
	}

	if sub, err = w.op.Subscribe(ctx, c); err != nil {
		w.Fatalf("subscribe again: %v", err)
	}
	got := map[string]bool{}
	for range 2 {
		d := receive(sub)
		got[d.ID] = true
		if err := d.Settler.Ack(ctx, d); err != nil {
			w.Errorf("ack: %v", err)
		}
	}
	if got[first.ID] || !got[second.ID] {
		w.Errorf("after Close there came %v, want what was not acknowledged: all but %s", got, first.ID)
	}
	w.quiet()
	select {
	case d := <-sub.Deliveries():
		w.Errorf("%s was delivered once more", d.ID)
	default:
	}
	if err := sub.Close(ctx); err != nil {
		w.Errorf("close: %v", err)
	}
}
