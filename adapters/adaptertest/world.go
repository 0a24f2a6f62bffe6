package adaptertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// group is the consumer group of most subtests.
const group = "billing"

// closeLimit is what "bounded" means for Close, above CloseGrace.
const closeLimit = 10 * time.Second

// maxEvents is more than any subtest needs.
const maxEvents = 100_000

// world is what one subtest plays in: a broker, processes on it, a script of
// faults, and a log.
type world struct {
	*testing.T
	h      Harness
	target Target
	// op is a connection that no fault hits: the operator's.
	op    adapters.Broker
	caps  adapters.Capabilities
	topic string

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced with every event
	events    []event
	faults    []*fault
	processes []*process
	dying     sync.WaitGroup
}

type kind string

const (
	ensured    kind = "ensured"
	subscribed kind = "subscribed"
	started    kind = "started" // OnStart
	called     kind = "called"  // the handler
	finished   kind = "finished"
	handedOff  kind = "handed off" // one try
	published  kind = "published"  // an output
	acked      kind = "acked"
	returned   kind = "returned"
	outcome    kind = "outcome" // OnOutcome
	killed     kind = "killed"
)

// event is a line of the log.
type event struct {
	at       time.Time
	kind     kind
	process  *process
	id       string
	stream   adapters.Stream
	attempt  int
	due      time.Time
	err      error
	outcome  middleware.Outcome
	info     middleware.OutcomeInfo
	handoff  adapters.Handoff
	delivery *adapters.Delivery
	ids      []string // unsettled when the process was killed
}

func (e event) String() string {
	s := fmt.Sprintf("%s %-10s %s", e.at.Format("15:04:05.000000"), e.kind, e.id)
	if e.process != nil {
		s = fmt.Sprintf("%s process %d", s, e.process.number)
	}
	if e.stream != "" {
		s += " " + string(e.stream)
	}
	if e.attempt > 0 {
		s += fmt.Sprintf(" attempt %d", e.attempt)
	}
	if e.outcome != "" {
		s += " " + string(e.outcome)
	}
	if len(e.ids) > 0 {
		s += fmt.Sprintf(" with %q", e.ids)
	}
	if e.err != nil {
		text := e.err.Error()
		s += ": " + text[:min(len(text), 200)]
	}
	return s
}

func newWorld(t *testing.T, h Harness) *world {
	w := &world{T: t, h: h, target: h.Start(t), changed: make(chan struct{})}
	w.topic = w.name("t")
	var err error
	if w.op, err = w.open(); err != nil {
		t.Fatalf("open the operator's connection: %v", err)
	}
	w.caps = w.op.Capabilities()
	t.Cleanup(w.end)
	return w
}

// open opens a connection without faults.
func (w *world) open() (adapters.Broker, error) {
	u, err := url.Parse(w.target.URL)
	if err != nil {
		return nil, err
	}
	return w.target.Opener.Open(context.Background(), adapters.OpenParams{
		URL: u, Names: adapters.Names{}.WithDefaults(), Logger: slog.New(slog.DiscardHandler),
	})
}

// name makes a topic name that nobody else has.
func (w *world) name(hint string) string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return w.h.Topic("spillwaytest-" + hint + "-" + hex.EncodeToString(b[:]))
}

// end closes what is open, and looks at what must hold after every subtest.
func (w *world) end() {
	for _, p := range w.all() {
		p.close()
	}
	w.dying.Wait()
	w.mu.Lock()
	for _, f := range w.faults {
		if f.times > 0 {
			w.Errorf("a planned fault did not happen: %v", f)
		}
	}
	w.mu.Unlock()
	if err := w.op.Close(context.Background()); err != nil {
		w.Errorf("close the operator's connection: %v", err)
	}
	if w.Failed() {
		w.dump()
	}
}

func (w *world) dump() {
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 200
	lines := w.events[max(len(w.events)-most, 0):]
	var s strings.Builder
	for _, e := range lines {
		fmt.Fprintln(&s, e)
	}
	w.Logf("the last %d of %d events:\n%s", len(lines), len(w.events), s.String())
}

func (w *world) all() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

func (w *world) log(e event) {
	e.at = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	close(w.changed)
	w.changed = make(chan struct{})
}

// inject appends to the script.
func (w *world) inject(faults ...fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range faults {
		f.times = max(f.times, 1)
		w.faults = append(w.faults, &f)
	}
}

func (w *world) match(on op, stream adapters.Stream, id string) effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if f.times == 0 || f.on != on || f.stream != "" && f.stream != stream || f.id != "" && f.id != id {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		f.times--
		return f.do
	}
	return nil
}

// match selects events.
type match func(event) bool

func is(k kind) match { return func(e event) bool { return e.kind == k } }

func of(id string) match { return func(e event) bool { return e.id == id } }

func ofPrefix(prefix string) match {
	return func(e event) bool { return strings.HasPrefix(e.id, prefix) }
}

func on(s adapters.Stream) match { return func(e event) bool { return e.stream == s } }

func ended(o middleware.Outcome) match {
	return func(e event) bool { return e.kind == outcome && e.outcome == o }
}

func by(p *process) match { return func(e event) bool { return e.process == p } }

func confirmed(e event) bool { return e.err == nil }

func (w *world) find(ms ...match) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return selected(w.events, ms)
}

func selected(events []event, ms []match) []event {
	var found []event
	for _, e := range events {
		if !slices.ContainsFunc(ms, func(m match) bool { return !m(e) }) {
			found = append(found, e)
		}
	}
	return found
}

func (w *world) count(ms ...match) int { return len(w.find(ms...)) }

// wait returns the events that match as soon as there are n of them.
func (w *world) wait(what string, n int, ms ...match) []event {
	w.Helper()
	timeout := time.NewTimer(w.h.Within)
	defer timeout.Stop()
	var found []event
	for seen := 0; ; {
		w.mu.Lock()
		found = append(found, selected(w.events[seen:], ms)...)
		changed := w.changed
		seen = len(w.events)
		w.mu.Unlock()
		if len(found) >= n {
			return found
		}
		if seen > maxEvents {
			w.Fatalf("%s: happened %d times, want %d, among %d events: something goes round in circles", what, len(found), n, seen)
		}
		select {
		case <-changed:
		case <-timeout.C:
			w.Fatalf("%s: happened %d times within %s, want %d", what, len(found), w.h.Within, n)
		}
	}
}

// stays checks that the events that match are n, and remain n for a while.
func (w *world) stays(what string, n int, ms ...match) {
	w.Helper()
	w.quiet()
	if got := w.count(ms...); got != n {
		w.Errorf("%s: happened %d times, want %d", what, got, n)
	}
}

// quiet lets pass the time in which what must not happen would.
func (w *world) quiet() { time.Sleep(w.h.Quiet) }

// pick is one value for real time, and another one for the bubble.
func pick[T any](w *world, real, bubble T) T {
	if w.h.Bubble {
		return bubble
	}
	return real
}

// consumer is that of a group on the subtest's topic.
func (w *world) consumer(g string) adapters.Consumer {
	return adapters.Consumer{Topic: w.topic, Group: g, Concurrency: 1}
}

func (w *world) ensure(c adapters.Consumer) {
	w.Helper()
	if err := w.op.Ensure(context.Background(), c); err != nil {
		w.Fatalf("ensure: %v", err)
	}
}

// policy retries soon, always after the same time.
func (w *world) policy() policy.Policy {
	return policy.Policy{
		Attempts: policy.Attempts{Transient: 5, Unknown: 5},
		Backoff:  policy.Backoff{Base: w.h.Delay, Factor: 1, Max: w.h.Delay, Jitter: policy.JitterNone},
		Parking:  policy.Parking{Interval: w.h.Delay},
	}
}

// parkLong keeps parked messages where they are while a subtest looks.
func parkLong(c *spillway.Config) {
	c.Policy.Parking = policy.Parking{Interval: 100 * time.Hour, Deadline: 160 * time.Hour, DeadlineWithoutReference: 160 * time.Hour}
}

// app is a program: a handler on a topic.
type app struct {
	topic, group string // default to the subtest's
	handle       func(*call) error
	outputs      string // topic of c.outputs
	config       func(*spillway.Config)
	router       func(*message.Router)
}

// call is one call of a handler.
type call struct {
	*message.Message
	delivery *adapters.Delivery
	attempt  int
	process  *process
	outputs  []*message.Message
}

// killed ends the process from within the handler, which never returns.
func (c *call) kill() error {
	c.process.kill()
	<-c.Context().Done()
	return adapters.ErrClosed
}

// process is a running program.
type process struct {
	world   *world
	number  int
	grace   time.Duration
	seam    *seam
	sw      *spillway.Spillway
	router  *message.Router
	stop    context.CancelFunc // ends Run
	running chan error         // what Run returned

	closeOnce, killOnce sync.Once
	took                time.Duration
}

// start runs a program.
func (w *world) start(a app) *process {
	w.Helper()
	p := &process{world: w, running: make(chan error, 1)}
	cfg := spillway.Config{
		Group: group, Policy: w.policy(), CloseGrace: 2 * time.Second, ConsumerVersion: "v1",
		Logger: slog.New(slog.DiscardHandler), Hooks: p.hooks(),
	}
	if a.group != "" {
		cfg.Group = a.group
	}
	if a.config != nil {
		a.config(&cfg)
	}
	p.grace = cfg.CloseGrace
	opener := w.target.Opener
	sw, err := spillway.Open(context.Background(), w.target.URL, cfg, adapters.Opener{
		Schemes: opener.Schemes,
		Open: func(ctx context.Context, params adapters.OpenParams) (adapters.Broker, error) {
			inner, err := opener.Open(ctx, params)
			if err != nil {
				return nil, err
			}
			p.seam = newSeam(inner, p)
			return p.seam, nil
		},
	})
	if err != nil {
		w.Fatalf("open: %v", err)
	}
	p.sw = sw
	p.router = message.NewDefaultRouter(watermill.NopLogger{})
	sw.Install(p.router)
	if a.router != nil {
		a.router(p.router)
	}
	if a.topic == "" {
		a.topic = w.topic
	}
	handler := func(msg *message.Message) ([]*message.Message, error) { return p.handle(a, msg) }
	if a.outputs != "" {
		p.router.AddHandler("handler", a.topic, sw.Subscriber(), a.outputs, sw.Publisher(), handler)
	} else {
		p.router.AddConsumerHandler("handler", a.topic, sw.Subscriber(), func(msg *message.Message) error {
			_, err := handler(msg)
			return err
		})
	}
	w.mu.Lock()
	w.processes = append(w.processes, p)
	p.number = len(w.processes)
	w.mu.Unlock()

	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() { p.running <- p.router.Run(ctx) }()
	select {
	case <-p.router.Running():
	case err := <-p.running:
		p.running <- err
		w.Fatalf("the Router does not run: %v", err)
	}
	return p
}

func (p *process) handle(a app, msg *message.Message) ([]*message.Message, error) {
	if p.seam.isDead() {
		return nil, adapters.ErrClosed
	}
	d, ok := spillway.DeliveryFrom(msg.Context())
	if !ok {
		p.world.Errorf("the context of %q has no delivery", msg.UUID)
		return nil, nil
	}
	c := &call{Message: msg, delivery: d, attempt: d.State.Attempt, process: p}
	p.world.log(event{kind: called, process: p, id: d.ID, stream: d.Stream, attempt: c.attempt, due: d.State.DueAt, delivery: d})
	err := a.handle(c)
	if p.seam.isDead() {
		return nil, adapters.ErrClosed
	}
	p.world.log(event{kind: finished, process: p, id: d.ID, stream: d.Stream, attempt: c.attempt, err: err})
	return c.outputs, err
}

func (p *process) hooks() middleware.Hooks {
	return middleware.Hooks{
		OnStart: func(_ context.Context, i *middleware.StartInfo) {
			if p.seam.isDead() {
				return
			}
			p.world.log(event{kind: started, process: p, id: i.MessageID, stream: i.Stream, attempt: i.Attempt, due: i.DueAt})
		},
		OnOutcome: func(_ context.Context, i *middleware.OutcomeInfo) {
			if p.seam.isDead() {
				return
			}
			p.world.log(event{kind: outcome, process: p, id: i.MessageID, stream: i.Stream, attempt: i.Attempt, outcome: i.Outcome, due: i.DueAt, info: *i})
		},
	}
}

// close ends the program as a deployment does, and returns how long that took.
func (p *process) close() time.Duration {
	p.world.Helper()
	p.closeOnce.Do(func() {
		if p.seam.isDead() {
			return
		}
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- p.shutDown() }()
		limit := time.NewTimer(p.grace + closeLimit)
		defer limit.Stop()
		select {
		case err := <-done:
			if err != nil && !p.seam.isDead() {
				p.world.Errorf("close process %d: %v", p.number, err)
			}
		case <-limit.C:
			p.world.Errorf("process %d did not close within %s", p.number, p.grace+closeLimit)
			<-done
		}
		p.took = time.Since(start)
		if p.seam.isDead() {
			return
		}
		// Every delivery that entered the chain left it, once (invariant 15).
		in, out := p.world.count(is(started), by(p)), p.world.count(is(outcome), by(p))
		if in != out {
			p.world.Errorf("process %d: %d deliveries entered the chain, %d outcomes were reported", p.number, in, out)
		}
	})
	return p.took
}

// shutDown uses the two ways there are of ending a Router. In a bubble only one
// of them works: Close holds a mutex while handlers run, for which the Router
// waits when a message arrives just then, and a bubble's clock stands still
// while anybody waits for a mutex.
func (p *process) shutDown() error {
	if p.world.h.Bubble || p.number%2 == 0 {
		p.stop()
	} else if err := p.router.Close(); err != nil {
		return err
	}
	return errors.Join(<-p.running, p.sw.Close(context.Background()))
}

// kill ends the program as a SIGKILL does. What is left of it unwinds aside.
func (p *process) kill() {
	p.killOnce.Do(func() {
		ids := p.seam.die()
		p.world.log(event{kind: killed, process: p, ids: ids})
		p.world.dying.Go(func() { _ = p.shutDown() })
	})
}

// publish publishes small messages, each with its id as payload, as a service
// without Spillway does.
func (w *world) publish(ids ...string) {
	w.Helper()
	for _, id := range ids {
		w.publishTo(w.topic, message.NewMessage(id, []byte(id)))
	}
}

func (w *world) publishTo(topic string, msgs ...*message.Message) {
	w.Helper()
	if err := w.op.Publisher().Publish(topic, msgs...); err != nil {
		w.Fatalf("publish: %v", err)
	}
}

// ids makes n ids.
func ids(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return all
}

// letter is a record in one of a consumer's streams, and the state in it.
type letter struct {
	adapters.Record
	state envelope.State
}

// drain empties a stream of a group.
func (w *world) drain(s adapters.Stream, g string) []letter {
	w.Helper()
	return w.drainOf(s, w.consumer(g))
}

// drainOf empties a stream of a consumer.
func (w *world) drainOf(s adapters.Stream, c adapters.Consumer) []letter {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.h.Within)
	defer cancel()
	var all []letter
	err := w.op.Drain(ctx, adapters.Names{}.Of(s, c), func(_ context.Context, r adapters.Record) error {
		all = append(all, letter{r, envelope.Parse(r.Headers, time.Now())})
		return nil
	})
	if err != nil {
		w.Fatalf("drain %s: %v", s, err)
	}
	return all
}

// only drains a stream that must hold one message, with this id.
func (w *world) only(s adapters.Stream, id string) letter {
	w.Helper()
	all := w.drain(s, group)
	if len(all) != 1 || all[0].ID != id {
		var got []string
		for _, l := range all {
			got = append(got, l.ID)
		}
		w.Fatalf("the %s stream holds %q, want %q alone", s, got, id)
	}
	return all[0]
}

// empty checks that nothing is in a stream.
func (w *world) empty(s adapters.Stream, g string) {
	w.Helper()
	for _, l := range w.drain(s, g) {
		w.Errorf("the %s stream of %s holds %q: %s", s, g, l.ID, l.state.Message)
	}
}
