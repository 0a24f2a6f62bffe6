package adaptertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// lateness are the differences between being due and being handled, of what
// came from the retry stream, sorted. None may be negative.
func (w *world) lateness(ms ...match) []time.Duration {
	w.Helper()
	var late []time.Duration
	for _, e := range w.find(append(ms, is(called), on(adapters.StreamRetry))...) {
		d := e.at.Sub(e.due)
		if d < 0 {
			w.Errorf("%s came %s before it was due", e.id, -d)
		}
		late = append(late, d)
	}
	slices.Sort(late)
	return late
}

func p99(sorted []time.Duration) time.Duration {
	return sorted[max(int(math.Ceil(float64(len(sorted))*0.99))-1, 0)]
}

// Invariant 5; K17, R10, R24: a burst that fails together comes back spread by
// the jitter, never early, on time; in a bubble at the exact instant. Due times
// are those that the policy drew, as far as the broker's step allows.
func retriesAreOnTime(w *world) {
	n := pick(w, 100, 400)
	mean := pick(w, 2*time.Second, time.Minute)
	w.start(app{handle: failFirst, config: func(c *spillway.Config) {
		c.Concurrency = 16
		c.Policy.Backoff = policy.Backoff{Base: mean, Factor: 1, Max: mean, Jitter: policy.JitterProportional}
	}})
	burst := ids("retry", n)
	w.publish(burst...)
	w.wait("retries", n, ended(middleware.OutcomeProcessed))

	late := w.lateness()
	if len(late) != n {
		w.Fatalf("%d retries, want %d", len(late), n)
	}
	if limit := pick(w, w.h.Late, 0); p99(late) > limit {
		w.Errorf("the 99th percentile of lateness is %s, want at most %s; the worst is %s", p99(late), limit, late[n-1])
	}
	failed := map[string]time.Time{}
	for _, e := range w.find(is(finished), on(adapters.StreamMain)) {
		failed[e.id] = e.at
	}
	var releases []time.Duration
	for _, e := range w.find(ended(middleware.OutcomeRetried)) {
		drawn := time.Duration(float64(mean) * (0.5 + policy.Draw(e.id, 1)))
		delay := e.due.Sub(failed[e.id])
		// Deciding takes time on a real clock.
		if slack := pick(w, 500*time.Millisecond, time.Nanosecond); delay < drawn-time.Nanosecond || delay > drawn+w.caps.DelayStep(drawn)+slack {
			w.Errorf("%s is due after %s, want %s and at most the step of %s more", e.id, delay, drawn, w.caps.DelayStep(drawn))
		}
		releases = append(releases, delay)
	}
	// A convoy is what leaves at one instant, here a twentieth of the spread.
	slices.Sort(releases)
	most, from := 0, 0
	for to := range releases {
		for releases[to]-releases[from] > mean/20 {
			from++
		}
		most = max(most, to-from+1)
	}
	share := 0.2
	if w.caps.DelayStep(mean) > mean/10 {
		share = 0.6
	}
	if float64(most) > share*float64(n) {
		w.Errorf("%d of %d retries are due within %s, want a spread over %s", most, n, mean/20, mean)
	}
	if w.caps.DelayStep(mean) == 0 {
		if distinct := len(slices.Compact(slices.Clone(releases))); distinct < n*9/10 {
			w.Errorf("%d retries are due at %d instants, want at least %d", n, distinct, n*9/10)
		}
	}
}

// Invariant 5: the same with a backlog of live traffic on the topic.
func retriesDespiteBacklog(w *world) {
	retries, backlog := pick(w, 20, 100), pick(w, 1000, 4000)
	work := 5 * time.Millisecond
	delay := pick(w, time.Second, time.Second)
	w.ensure(w.consumer(group))
	w.publish(ids("retry", retries)...)
	w.publish(ids("live", backlog)...)
	w.start(app{
		handle: func(c *call) error { time.Sleep(work); return failFirst(c) },
		config: func(c *spillway.Config) {
			c.Concurrency = 4
			c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterProportional}
		},
	})
	w.wait("retries", retries, ended(middleware.OutcomeProcessed), ofPrefix("retry"))
	if n := w.count(ended(middleware.OutcomeProcessed), ofPrefix("live")); w.h.Bubble && n == backlog {
		w.Errorf("the backlog was gone before the retries: the test proves nothing")
	}
	if late := w.lateness(); p99(late) > w.h.Late {
		w.Errorf("the 99th percentile of lateness is %s, want at most %s", p99(late), w.h.Late)
	}
}

// Invariant 5, as a property of Quantize: d <= Quantize(d) <= d + DelayStep(d),
// for delays from nothing to seven days.
func quantize(w *world) {
	check := func(d time.Duration) {
		w.Helper()
		q, step := w.op.Quantize(d), w.caps.DelayStep(d)
		if step < 0 || q < d || q > d+step {
			w.Errorf("Quantize(%s) = %s, want at least that and at most %s more", d, q, step)
		}
	}
	for _, d := range []time.Duration{0, 1, time.Microsecond, time.Millisecond, time.Millisecond + 1, 999 * time.Millisecond,
		time.Second, time.Second + 1, 15 * time.Minute, 15*time.Minute + 1, time.Hour, 24 * time.Hour, policy.MaxDelay - 1, policy.MaxDelay} {
		check(d)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		check(time.Duration(math.Exp(r.Float64() * math.Log(float64(policy.MaxDelay)))))
	}
}

// Invariant 5; S19: a broker that cannot wait so long delivers early, and the
// chain hands off the rest. No attempt is counted, the handler is not called,
// the due time stays.
func earlyDelivery(w *world) {
	// Each quarter is more than the step; in a bubble, a hop that SQS allows.
	delay := pick(w, max(3*time.Second, 8*w.caps.DelayStep(time.Second)), 40*time.Minute)
	const hops = 3
	w.inject(fault{on: opHandoff, stream: adapters.StreamRetry, times: hops, do: func(c *brokerCall) error {
		// The real delay is a quarter of the wanted one.
		h := *c.handoff
		h.Due = time.Now().Add(delay / 4)
		return c.process.seam.Broker.Handoff(c.ctx, h)
	}})
	w.start(app{handle: failFirst, config: func(c *spillway.Config) {
		c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone}
	}})
	w.publish("retry")
	w.wait("processed", 1, ended(middleware.OutcomeProcessed))
	calls := w.find(is(called))
	if len(calls) != 2 || calls[1].attempt != 2 {
		w.Errorf("the handler was called %d times, want twice, attempts 1 and 2", len(calls))
	}
	// Less than a second before its time counts as due, so that real brokers
	// may save the last hop.
	if n := w.count(ended(middleware.OutcomeDelayed)); n > hops || n < hops-1 {
		w.Errorf("%d early deliveries were handed off again, want %d", n, hops)
	}
	want := w.find(ended(middleware.OutcomeRetried))[0].due
	for _, e := range w.find(ended(middleware.OutcomeDelayed)) {
		if !e.due.Equal(want) {
			w.Errorf("after a hop the message is due at %s, want %s as before", e.due, want)
		}
	}
	if early := want.Sub(calls[len(calls)-1].at); early > pick(w, time.Second, 0) {
		w.Errorf("the second attempt was %s early", early)
	}
}

// Invariant 5; S19: delays that are longer than what brokers offer. In real
// time nobody waits for that: the hand-off must be accepted, and not come back.
func longDelay(w *world) {
	delay := 6 * 24 * time.Hour
	if w.h.Bubble && w.h.Polls {
		delay = 4 * time.Hour
	}
	w.start(app{handle: failFirst, config: func(c *spillway.Config) {
		c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone}
	}})
	w.publish("retry")
	w.wait("handed off", 1, ended(middleware.OutcomeRetried))
	w.stays("handler calls", 1, is(called))
	if !w.h.Bubble {
		return
	}
	w.wait("processed", 1, ended(middleware.OutcomeProcessed))
	if late := w.lateness(); late[len(late)-1] != 0 {
		w.Errorf("it came %s late", late[len(late)-1])
	}
}

// Parking: what is parked lies in the parking stream, comes back after the
// interval, uncounted, as often as it must, and is dead-lettered at the deadline.
func parkedComesBack(w *world) {
	w.start(app{
		handle: func(c *call) error {
			if strings.HasPrefix(c.UUID, "never") || c.delivery.State.ParkChecks < 2 {
				return failure.Waiting(errDown, "approval")
			}
			return nil
		},
		// As late as it is allowed to come back, it is in time each time.
		config: func(c *spillway.Config) { c.Policy.Parking.Deadline = 5*w.h.Delay + 3*w.h.Late },
	})
	w.publish("arrives", "never")
	w.wait("processed", 1, ended(middleware.OutcomeProcessed), of("arrives"))
	w.wait("given up", 1, ended(middleware.OutcomeDeadLettered), of("never"))
	w.lateness()
	for _, e := range w.find(is(called)) {
		if e.attempt != 1 {
			w.Errorf("%s was handled as attempt %d, want 1: parking is not counted", e.id, e.attempt)
		}
	}
	l := w.only(adapters.StreamDeadLetter, "never")
	if l.state.Reason != string(policy.ReasonParkingDeadline) || l.state.ParkedAt.IsZero() {
		w.Errorf("the dead letter has the reason %q, parked at %s, want parking_deadline with the time", l.state.Reason, l.state.ParkedAt)
	}
	w.empty(adapters.StreamParking, group)
	for _, id := range []string{"arrives", "never"} {
		// From call to call, because a slow hand-off does not move what is due. The
		// last one may be sooner: at the deadline.
		calls := w.find(is(called), of(id))
		for i := 1; i < len(calls)-1; i++ {
			if waited := calls[i].at.Sub(calls[i-1].at); waited < w.h.Delay {
				w.Errorf("%s was looked at again after %s, want at least %s", id, waited, w.h.Delay)
			}
		}
	}
}

// Invariant 6; K13, K19, K33, and Watermill's Retry: healthy messages behind
// failing ones, with one worker, wait for no backoff. Each is handled once.
func failingDelaysNobody(w *world) {
	delay := pick(w, 25*w.h.Delay, time.Hour)
	n := pick(w, 100, 500)
	w.ensure(w.consumer(group))
	for i, id := range ids("fine", n) {
		if i%10 == 0 {
			w.publish(fmt.Sprintf("retry-%d", i), fmt.Sprintf("park-%d", i), fmt.Sprintf("dead-%d", i))
		}
		w.publish(id)
	}
	w.start(app{handle: failFirst, config: func(c *spillway.Config) {
		c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone}
		c.Policy.Parking.Interval = delay
	}})
	start := time.Now()
	w.wait("healthy messages", n, ended(middleware.OutcomeProcessed), ofPrefix("fine"))
	if took := time.Since(start); took >= delay {
		w.Errorf("%d healthy messages took %s beside failing ones, want less than their delay of %s", n, took, delay)
	}
	if calls := w.count(is(called), ofPrefix("fine")); calls != n {
		w.Errorf("healthy messages were handled %d times, want each once: %d", calls, n)
	}
}

// Invariants 1 and 6; R20: a hand-off that the broker does not answer blocks its
// own slot and no other one.
func slowHandoff(w *world) {
	release := make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	defer open()
	w.inject(fault{on: opHandoff, id: "dead", do: heldUntil(release)})
	w.start(app{handle: failFirst, config: func(c *spillway.Config) { c.Concurrency = 2 }})
	w.publish("dead")
	w.wait("the handler has failed", 1, is(finished), of("dead"))
	n := 20
	w.publish(ids("fine", n)...)
	w.publish("retry")
	w.wait("messages on the other slot", n+1, ended(middleware.OutcomeProcessed))
	if w.count(is(acked), of("dead")) != 0 {
		w.Errorf("the message was acknowledged before its hand-off was answered")
	}
	open()
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), of("dead"))
	w.only(adapters.StreamDeadLetter, "dead")
}
