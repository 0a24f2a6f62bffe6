package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// The seam: Ensure can be repeated, by several processes, and what is published
// after it is kept for the group although nobody subscribes yet.
func ensureKeeps(w *world) {
	c := w.consumer(group)
	w.ensure(c)
	w.publish("a", "b")
	w.ensure(c)
	other, err := w.open()
	if err != nil {
		w.Fatalf("open: %v", err)
	}
	if err := errors.Join(other.Ensure(context.Background(), c), other.Close(context.Background())); err != nil {
		w.Fatalf("ensure in another process: %v", err)
	}
	w.publish("c")
	w.start(app{handle: func(*call) error { return nil }})
	w.wait("messages", 3, ended(middleware.OutcomeProcessed))
	w.stays("handler calls", 3, is(called))
}

// K26: what was written to the retry stream before anybody read it is handled.
func retryFromTheBeginning(w *world) {
	c := w.consumer(group)
	w.ensure(c)
	state := envelope.State{Attempt: 4, ConsumerGroup: group, Source: envelope.Position{Topic: w.topic}}
	pairs, _ := state.Pairs(0)
	h := adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "early", Payload: []byte("body")}, State: pairs, Due: time.Now().Add(time.Millisecond)}
	if err := w.op.Handoff(context.Background(), h); err != nil {
		w.Fatalf("hand-off: %v", err)
	}
	w.quiet()
	w.start(app{handle: func(*call) error { return nil }})
	w.wait("processed", 1, ended(middleware.OutcomeProcessed), of("early"))
	if e := w.find(is(called))[0]; e.attempt != 4 || e.stream != adapters.StreamRetry {
		w.Errorf("it came from %s as attempt %d, want from retry as 4", e.stream, e.attempt)
	}
}

// K22: messages wait under one policy, and are found under another one.
func policyChange(w *world) {
	delay := pick(w, max(10*time.Second, 25*w.h.Delay), time.Hour) // none must come back before the policy changes
	p := w.start(app{handle: failFirst, config: func(c *spillway.Config) {
		c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterFull}
		c.Policy.Parking.Interval = delay
	}})
	n := 10
	w.publish(ids("retry", n)...)
	w.publish(ids("park", n)...)
	w.wait("all wait", 2*n, is(acked), confirmed, on(adapters.StreamMain))
	p.close()
	w.start(app{
		handle: func(*call) error { return failure.Transient(errDown) },
		config: func(c *spillway.Config) {
			c.Policy = policy.Policy{
				Attempts: policy.Attempts{Transient: 2},
				Backoff:  policy.Backoff{Base: w.h.Delay / 3, Factor: 3, Max: w.h.Delay},
				Parking:  policy.Parking{Interval: w.h.Delay / 2},
			}
			c.Concurrency = 3
		},
	})
	w.wait("given up by the new policy", 2*n, ended(middleware.OutcomeDeadLettered))
	if got := len(w.drain(adapters.StreamDeadLetter, group)); got != 2*n {
		w.Errorf("%d dead letters, want %d", got, 2*n)
	}
	w.empty(adapters.StreamParking, group)
	w.lateness()
}

// K23, R10: streams and subscriptions do not multiply with attempts, delays,
// or messages.
func streamCount(w *world) {
	p := w.start(app{handle: failFirst, config: func(c *spillway.Config) {
		c.Policy.Backoff.Jitter = policy.JitterFull
	}})
	count := func() int {
		if w.target.Streams == nil {
			return 0
		}
		n, err := w.target.Streams(w.topic)
		if err != nil {
			w.Fatalf("count streams: %v", err)
		}
		return n
	}
	run := func(n int, salt string) {
		w.publish(ids("retry-"+salt, n)...)
		w.publish(ids("dead-"+salt, n)...)
		w.publish(ids("park-"+salt, n)...)
		w.wait("all are done", 2*n, ended(middleware.OutcomeProcessed), func(e event) bool { return strings.Contains(e.id, "-"+salt+"-") })
	}
	run(5, "first")
	before := count()
	run(30, "second")
	if after := count(); after != before {
		w.Errorf("there were %d streams, and %d after more retries", before, after)
	}
	if n := w.count(is(subscribed), by(p)); n != 1 {
		w.Errorf("%d subscriptions for one handler, want 1", n)
	}
}

// Capabilities; D11: what the broker cannot do is refused at start, by the
// facade and by the seam, with ErrUnsupported.
func undeclared(w *world) {
	if w.caps.Broker == "" || w.caps.DelayStep == nil {
		w.Errorf("Capabilities.Broker is %q, DelayStep nil: %v; want both set", w.caps.Broker, w.caps.DelayStep == nil)
	}
	inPlace := w.consumer(group)
	inPlace.Retry = adapters.RetryInPlace
	sw, err := spillway.Open(context.Background(), w.target.URL, spillway.Config{Group: group, Retry: adapters.RetryInPlace, ConsumerVersion: "v1"}, w.target.Opener)
	if w.caps.InPlaceRetry {
		if err != nil {
			w.Fatalf("open with the declared InPlaceRetry: %v", err)
		}
		if err := errors.Join(sw.Close(context.Background()), w.op.Ensure(context.Background(), inPlace)); err != nil {
			w.Errorf("in-place retry is declared: %v", err)
		}
		if limit := w.caps.MaxInPlaceDelay; limit > 0 {
			tooLong := policy.Policy{Backoff: policy.Backoff{Base: limit + time.Second, Max: limit + time.Second, Jitter: policy.JitterNone}}
			_, err := spillway.Open(context.Background(), w.target.URL, spillway.Config{
				Group: group, Retry: adapters.RetryInPlace, ConsumerVersion: "v1", HandlerPolicies: map[string]policy.Policy{"h": tooLong},
			}, w.target.Opener)
			if !errors.Is(err, adapters.ErrUnsupported) {
				w.Errorf("open with a delay in place of more than %s: %v, want ErrUnsupported", limit, err)
			}
		}
		return
	}
	if !errors.Is(err, adapters.ErrUnsupported) {
		w.Errorf("open with in-place retry: %v, want ErrUnsupported", err)
	}
	if err := w.op.Ensure(context.Background(), inPlace); !errors.Is(err, adapters.ErrUnsupported) {
		w.Errorf("ensure with in-place retry: %v, want ErrUnsupported", err)
	}
	w.ensure(w.consumer(group))
	if _, err := w.op.Subscribe(context.Background(), inPlace); !errors.Is(err, adapters.ErrUnsupported) {
		w.Errorf("subscribe with in-place retry: %v, want ErrUnsupported", err)
	}
}

// Capabilities.InPlaceRetry: a failed message comes again as its next attempt
// when it is due, and is a dead letter after its last one. Where CountedInPlace is
// declared it is not handed off.
func retryInPlace(w *world) {
	if !w.caps.InPlaceRetry {
		return // see undeclared
	}
	const limit = 4
	w.start(app{
		handle: func(c *call) error {
			if c.UUID == "dead" || c.attempt < limit {
				return failure.Transient(errDown)
			}
			return nil
		},
		config: func(c *spillway.Config) {
			c.Retry = adapters.RetryInPlace
			c.Policy.Attempts.Transient = limit
			c.Concurrency = 2
		},
	})
	w.publish("retry", "dead")
	w.wait("processed", 1, ended(middleware.OutcomeProcessed), of("retry"))
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), of("dead"))
	stream, handoffs := adapters.StreamRetry, 2*(limit-1)+1
	if w.caps.CountedInPlace {
		stream, handoffs = adapters.StreamMain, 1
	}
	for _, id := range []string{"retry", "dead"} {
		calls, outcomes := w.find(is(called), of(id)), w.find(is(outcome), of(id))
		if len(calls) != limit {
			w.Errorf("%s was handled %d times, want %d", id, len(calls), limit)
		}
		for i := 1; i < min(len(calls), len(outcomes)); i++ {
			if due := outcomes[i-1].due; calls[i].at.Before(due) || calls[i].attempt != i+1 || calls[i].stream != stream {
				w.Errorf("%s: call %d is attempt %d from %s, %s after it was due", id, i+1, calls[i].attempt, calls[i].stream, calls[i].at.Sub(due))
			}
		}
	}
	if n := w.count(is(handedOff)); n != handoffs {
		w.Errorf("%d hand-offs, want %d", n, handoffs)
	}
	if l := w.only(adapters.StreamDeadLetter, "dead"); l.state.Attempt != limit {
		w.Errorf("the dead letter counts %d attempts, want %d", l.state.Attempt, limit)
	}
}

// Section 7: two consumers whose streams would share a name are refused at
// start. The adapter's own mapping must not make two names of one: names that
// differ in a separator stay apart.
func collidingNames(w *world) {
	a := adapters.Consumer{Topic: w.topic + ".x", Group: "y", Concurrency: 1}
	b := adapters.Consumer{Topic: w.topic, Group: "x.y", Concurrency: 1}
	// "a.x" + "." + "y" and "a" + "." + "x.y" are one name.
	sw, err := spillway.Open(context.Background(), w.target.URL, spillway.Config{ConsumerVersion: "v1"}, w.target.Opener)
	if err != nil {
		w.Fatalf("open: %v", err)
	}
	defer func() {
		if err := sw.Close(context.Background()); err != nil {
			w.Errorf("close: %v", err)
		}
	}()
	initialize := func(c adapters.Consumer) error {
		return sw.SubscriberFor(c.Group).(message.SubscribeInitializer).SubscribeInitialize(c.Topic)
	}
	if err := initialize(a); err != nil {
		w.Fatalf("the first of two colliding consumers: %v", err)
	}
	if err := initialize(b); err == nil || !strings.Contains(err.Error(), "names:") {
		w.Errorf("the second of two colliding consumers: %v, want an error that says so", err)
	}

	// Groups, or topics, whose names differ only in what brokers like to replace.
	names := []string{"x-y", "x_y", "x.y.z", "x-y-z", "X-Y"}
	var consumers []adapters.Consumer
	for _, name := range names {
		c := w.consumer(name)
		if w.caps.OneGroup {
			c = adapters.Consumer{Topic: w.topic + "." + name, Group: group, Concurrency: 1}
		}
		consumers = append(consumers, c)
		w.ensure(c)
		h := adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: name, Payload: []byte(name)}}
		if err := w.op.Handoff(context.Background(), h); err != nil {
			w.Fatalf("hand-off of %s: %v", name, err)
		}
	}
	for i, c := range consumers {
		got := w.drainOf(adapters.StreamDeadLetter, c)
		if want := names[i]; len(got) != 1 || got[0].ID != want {
			w.Errorf("the dead letter stream of %s holds %d records, want its own one", want, len(got))
		}
	}
}

// Two processes of one group share the messages: each is handled once, and
// both have work.
func competingConsumers(w *world) {
	n := pick(w, 60, 200)
	work := pick(w, 10*time.Millisecond, time.Second)
	w.ensure(w.consumer(group))
	a := app{handle: func(*call) error { time.Sleep(work); return nil }, config: func(c *spillway.Config) { c.Concurrency = 2 }}
	first, second := w.start(a), w.start(a)
	for _, id := range ids("m", n) {
		w.publish(id)
	}
	w.wait("messages", n, ended(middleware.OutcomeProcessed))
	// One may have finished before the other has joined.
	for began := time.Now(); w.count(is(called), by(first)) == 0 || w.count(is(called), by(second)) == 0; {
		if time.Since(began) > w.h.Within {
			w.Fatalf("one of two processes has nothing to do: %d and %d of %d calls", w.count(is(called), by(first)), w.count(is(called), by(second)), n)
		}
		n++
		w.publish(fmt.Sprintf("more-%d", n))
		w.wait("messages", n, ended(middleware.OutcomeProcessed))
	}
	w.stays("handler calls", n, is(called))
	// When one goes, the other goes on.
	first.close()
	w.publish("after")
	w.wait("processed by the other one", 1, ended(middleware.OutcomeProcessed), of("after"), by(second))
}

// The seam: never more than Concurrency unsettled deliveries; with 1, the order
// of publishing.
func concurrency(w *world) {
	const bound = 3
	n := pick(w, 40, 100)
	var now, most atomic.Int64
	p := w.start(app{
		handle: func(*call) error {
			running := now.Add(1)
			defer now.Add(-1)
			for {
				old := most.Load()
				if running <= old || most.CompareAndSwap(old, running) {
					break
				}
			}
			time.Sleep(pick(w, 50*time.Millisecond, time.Second)) // longer than a publish takes
			return nil
		},
		config: func(c *spillway.Config) { c.Concurrency = bound },
	})
	w.publish(ids("m", n)...)
	w.wait("messages", n, ended(middleware.OutcomeProcessed))
	if got := most.Load(); got != bound {
		w.Errorf("%d messages were handled at once, want %d", got, bound)
	}
	p.close()

	// The raw subscription keeps the bound too, whoever asks.
	c := w.consumer(group)
	c.Concurrency = bound
	w.publish(ids("raw", 2*bound)...)
	ctx, cancel := context.WithTimeout(context.Background(), w.h.Within)
	defer cancel()
	sub, err := w.op.Subscribe(ctx, c)
	if err != nil {
		w.Fatalf("subscribe: %v", err)
	}
	var out []*adapters.Delivery
	for range bound {
		select {
		case d := <-sub.Deliveries():
			out = append(out, d)
		case <-ctx.Done():
			w.Fatalf("%d deliveries, want %d", len(out), bound)
		}
	}
	w.quiet()
	select {
	case d := <-sub.Deliveries():
		w.Errorf("%s was delivered beside %d unsettled ones", d.ID, bound)
	default:
	}
	for _, d := range out {
		if err := d.Settler.Ack(ctx, d); err != nil {
			w.Errorf("ack: %v", err)
		}
	}
	for range bound {
		select {
		case d := <-sub.Deliveries():
			if err := d.Settler.Ack(ctx, d); err != nil {
				w.Errorf("ack: %v", err)
			}
		case <-ctx.Done():
			w.Fatal("nothing is delivered after acks")
		}
	}
	if err := sub.Close(ctx); err != nil {
		w.Errorf("close: %v", err)
	}

	p = w.start(app{handle: func(*call) error { return nil }})
	for _, id := range ids("ordered", n) {
		w.publishRecord(adapters.Record{ID: id, Key: orderKey(w), Payload: []byte(id)})
	}
	w.wait("ordered messages", n, ended(middleware.OutcomeProcessed), by(p))
	for i, e := range w.find(is(called), by(p)) {
		if want := fmt.Sprintf("ordered-%04d", i); e.id != want && !w.h.Unordered {
			w.Errorf("call %d was %s, want %s", i, e.id, want)
			break
		}
	}
}

// orderKey puts records into one partition.
func orderKey(w *world) []byte {
	if w.caps.Keys && w.target.Publish != nil {
		return []byte("one")
	}
	return nil
}

// Section 8: Publisher().Close is for the Router, and closes nothing.
func publisherClose(w *world) {
	p := w.start(app{handle: func(*call) error { return nil }})
	for range 2 {
		if err := p.sw.Publisher().Close(); err != nil {
			w.Errorf("close the publisher: %v", err)
		}
	}
	if err := p.sw.Publisher().Publish(w.topic, message.NewMessage("a", []byte("body"))); err != nil {
		w.Fatalf("publish after the publisher was closed: %v", err)
	}
	w.wait("processed", 1, ended(middleware.OutcomeProcessed), of("a"))
	for range 2 {
		if err := p.sw.Close(context.Background()); err != nil {
			w.Errorf("close: %v", err)
		}
	}
	if err := p.sw.Publisher().Publish(w.topic, message.NewMessage("b", nil)); err == nil {
		w.Errorf("a publish after Spillway.Close said that it was confirmed")
	}
}

// D15: credentials that are wrong are in no error, neither raw nor escaped; not
// in the facade's, and not in the adapter's own, which other callers log.
func passwordInNoError(w *world) {
	ctx, cancel := context.WithTimeout(context.Background(), w.h.Within)
	defer cancel()
	for _, secret := range []string{"hunter2", "hun/ter%2 s@cret"} {
		u, err := url.Parse(w.target.URL)
		if err != nil {
			w.Fatal(err)
		}
		u.User = url.UserPassword("nobody", secret)
		var errs []error
		sw, err := spillway.Open(ctx, u.String(), spillway.Config{Group: group, ConsumerVersion: "v1"}, w.target.Opener)
		if err == nil { // a broker that does not ask for credentials
			err = sw.Close(ctx)
		}
		errs = append(errs, err)
		b, err := w.target.Opener.Open(ctx, adapters.OpenParams{URL: u, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = b.Close(ctx)
		}
		errs = append(errs, err)
		for _, err := range errs {
			for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), "hunter2", "hun/ter", "hun%2Fter"} {
				if err != nil && strings.Contains(err.Error(), form) {
					w.Errorf("the error of a wrong password shows it: %q", err)
					break
				}
			}
		}
	}
}
