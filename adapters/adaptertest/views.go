package adaptertest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// Invariant 12: a handler that returns outputs and an error publishes nothing.
// The attempt that succeeds publishes once.
func outputsOfFailedAttempts(w *world) {
	out := w.name("out")
	w.ensure(adapters.Consumer{Topic: out, Group: group, Concurrency: 1})
	next := w.start(app{topic: out, handle: func(*call) error { return nil }})
	p := w.start(app{outputs: out, handle: func(c *call) error {
		c.outputs = append(c.outputs, message.NewMessage(fmt.Sprintf("output of %s, attempt %d", c.UUID, c.attempt), nil))
		return failFirst(c)
	}})
	w.publish("retry", "dead", "fine")
	w.wait("processed", 2, ended(middleware.OutcomeProcessed), by(p))
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), by(p))
	w.stays("outputs", 2, is(called), by(next))
	for _, id := range []string{"output of retry, attempt 2", "output of fine, attempt 1"} {
		if n := w.count(is(called), by(next), of(id)); n != 1 {
			w.Errorf("%q was handled %d times, want once", id, n)
		}
	}
}

// Invariant 12: an output that cannot be published is a failure of the attempt:
// classified, counted, retried or dead-lettered. Before that no ack.
func failingOutputs(w *world) {
	out := w.name("out")
	w.ensure(adapters.Consumer{Topic: out, Group: group, Concurrency: 1})
	w.inject(
		fault{on: opPublish, id: "of passing", do: failWith(failure.Transient(errDown))},
		fault{on: opPublish, id: "of bad", do: failWith(failure.Permanent(errors.New("schema mismatch")))},
	)
	next := w.start(app{topic: out, handle: func(*call) error { return nil }})
	p := w.start(app{outputs: out, handle: func(c *call) error {
		c.outputs = append(c.outputs, message.NewMessage("of "+c.UUID, c.Payload))
		return nil
	}})
	w.publish("passing", "bad")
	w.wait("processed", 1, ended(middleware.OutcomeProcessed), of("passing"), by(p))
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), of("bad"), by(p))
	w.wait("output", 1, is(called), by(next))
	w.stays("outputs", 1, is(called), by(next))
	if calls := w.find(is(called), of("passing")); len(calls) != 2 || calls[1].attempt != 2 {
		w.Errorf("the handler was called %d times, want twice", len(calls))
	}
	if l := w.only(adapters.StreamDeadLetter, "bad"); !strings.Contains(l.state.Message, "schema mismatch") {
		w.Errorf("the dead letter says %q, want the error of publishing", l.state.Message)
	}
}

// Invariant 13; K5, R1, O18: what the adapter cannot read is dead-lettered, raw, and what is
// behind it goes on.
func undecodable(w *world) {
	if w.target.PublishUndecodable == nil {
		return // the adapter can read everything
	}
	w.ensure(w.consumer(group))
	raw, err := w.target.PublishUndecodable(w.topic)
	if err != nil {
		w.Fatalf("publish: %v", err)
	}
	w.publish("fine")
	w.start(app{handle: func(*call) error { return nil }})
	w.wait("what is behind it", 1, ended(middleware.OutcomeProcessed), of("fine"))
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	if n := w.count(is(called)); n != 1 {
		w.Errorf("the handler was called %d times, want once: not for what cannot be read", n)
	}
	all := w.drain(adapters.StreamDeadLetter, group)
	if len(all) != 1 {
		w.Fatalf("%d dead letters, want 1", len(all))
	}
	if l := all[0]; string(l.Payload) != string(raw) || l.state.Reason != string(policy.ReasonUndecodable) || l.state.Class != failure.ClassUndecodable {
		w.Errorf("the dead letter has %s, reason %q, class %q, want %s, undecodable", excerpt(l.Payload), l.state.Reason, l.state.Class, excerpt(raw))
	}
}

// Invariant 14: id, payload, metadata, and what Watermill says in the context.
func sameView(w *world) {
	type view struct {
		UUID, Payload                                  string
		Metadata                                       message.Metadata
		SubscribeTopic, Handler, Publisher, Subscriber string
		Topic, Group                                   string
	}
	var views []view
	out := w.name("out")
	w.ensure(adapters.Consumer{Topic: out, Group: group, Concurrency: 1})
	w.start(app{outputs: out, handle: func(c *call) error {
		ctx := c.Context()
		w.mu.Lock()
		views = append(views, view{
			c.UUID, string(c.Payload), maps.Clone(c.Metadata),
			message.SubscribeTopicFromCtx(ctx), message.HandlerNameFromCtx(ctx), message.PublisherNameFromCtx(ctx), message.SubscriberNameFromCtx(ctx),
			c.delivery.Consumer.Topic, c.delivery.Consumer.Group,
		})
		w.mu.Unlock()
		spoil(c.Message)
		switch {
		case c.attempt == 2 && c.delivery.State.ParkedAt.IsZero():
			return failure.Waiting(errDown, "approval")
		case c.attempt < 4:
			return failure.Transient(errDown)
		}
		return nil
	}})
	msg := message.NewMessage("a", []byte("body"))
	msg.Metadata.Set("tenant", "acme")
	msg.Metadata.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	w.publishTo(w.topic, msg)
	w.wait("processed", 1, ended(middleware.OutcomeProcessed))
	if len(views) != 5 {
		w.Fatalf("the handler was called %d times, want 5: four attempts, and one that was parked", len(views))
	}
	if v := views[0]; v.SubscribeTopic != w.topic || v.Topic != w.topic || v.Group != group || v.Handler != "handler" {
		w.Errorf("the first view is %+v, want topic %q and group %q", v, w.topic, group)
	}
	for i, v := range views[1:] {
		if diff := cmp.Diff(views[0], v); diff != "" {
			w.Errorf("the view of call %d differs from the first (-first +later):\n%s", i+2, diff)
		}
	}
}

// K24: traceparent stays one value, and its trace id is in the dead letter.
func traceIsKept(w *world) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	w.start(app{
		handle: func(*call) error { return failure.Transient(errDown) },
		config: func(c *spillway.Config) { c.Policy.Attempts.Transient = 3 },
	})
	msg := message.NewMessage("a", []byte("body"))
	msg.Metadata.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	w.publishTo(w.topic, msg)
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	parents := func(headers []adapters.Header) (n int) {
		for _, h := range headers {
			if strings.EqualFold(h.Key, "traceparent") && strings.Contains(string(h.Value), trace) {
				n++
			}
		}
		return n
	}
	for _, d := range w.deliveries() {
		if n := parents(d.Headers); n != 1 {
			w.Errorf("attempt %d has %d traceparents with the trace id, want 1", d.State.Attempt, n)
		}
	}
	l := w.only(adapters.StreamDeadLetter, "a")
	if l.state.TraceID != trace || parents(l.Headers) != 1 {
		w.Errorf("the dead letter has the trace id %q and %d traceparents, want %q and 1", l.state.TraceID, parents(l.Headers), trace)
	}
}

// Invariant 15: a mix of all outcomes. A dead letter is not a success, and
// every delivery has the one outcome that its handler's result calls for.
func oneOutcome(w *world) {
	n := pick(w, 5, 20)
	l := w.newLedger(n)
	a := l.app(4)
	w.ensure(w.consumer(group))
	w.publish(l.ids...)
	p := w.start(a)
	l.wait()
	p.close()
	l.audit()
	want := map[middleware.Outcome]int{
		middleware.OutcomeProcessed:    4 * n,         // fine, flaky, panic, waits
		middleware.OutcomeRetried:      2*n + n + 2*n, // flaky twice, panic once, hopeless twice
		middleware.OutcomeParked:       2 * n,         // waits, parked
		middleware.OutcomeDeadLettered: 2 * n,         // poison, hopeless
	}
	got := map[middleware.Outcome]int{}
	for _, e := range w.find(is(outcome)) {
		got[e.outcome]++
		switch failed := e.info.Failure.Class != ""; {
		case e.outcome == middleware.OutcomeProcessed && failed:
			w.Errorf("%s was processed, and failed as %s", e.id, e.info.Failure.Class)
		case e.outcome != middleware.OutcomeProcessed && !failed:
			w.Errorf("%s was %s, of no class", e.id, e.outcome)
		case e.outcome == middleware.OutcomeDeadLettered && (e.info.Reason == "" || e.info.DeadLetterID == ""):
			w.Errorf("%s was dead-lettered without reason or id", e.id)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("outcomes differ (-want +got):\n%s", diff)
	}
	if n := w.count(is(acked), confirmed); n != w.count(is(outcome)) {
		w.Errorf("%d acks for %d outcomes", n, w.count(is(outcome)))
	}
}

// Section 4; K8: a consumer of dead letters whose handler fails keeps them where
// they are, with a growing pause: it neither feeds its own queue nor makes a
// dead letter of a dead letter.
func deadLetterConsumer(w *world) {
	w.start(app{handle: failFirst})
	w.publish("dead")
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	stream := adapters.Names{}.Of(adapters.StreamDeadLetter, w.consumer(group))
	p := w.start(app{topic: stream, group: "repair", handle: func(*call) error { return failure.Permanent(errDown) }})
	w.wait("calls", 2, is(called), by(p))
	time.Sleep(pick(w, time.Second, time.Minute))
	if n := w.count(is(called), by(p)); n > 15 {
		w.Errorf("the handler of dead letters was called %d times in a short while, want a growing pause", n)
	}
	if n := w.count(is(handedOff), by(p)); n != 0 {
		w.Errorf("the consumer of dead letters handed off %d times, want never", n)
	}
	p.close()
}
