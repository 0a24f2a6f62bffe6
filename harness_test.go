package spillway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
)

// The names that all tests of this package use.
const (
	topic     = "orders"
	group     = "billing"
	retryOf   = "orders.billing.retry"
	parkingOf = "orders.billing.parking"
	dlqOf     = "orders.billing.dlq"
	suspectOf = "orders.billing.suspect"
	outTopic  = "invoices"
)

// bubble runs test in a synctest bubble, which also fails it for goroutines
// that do not end.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// service is one process: Spillway and a Router on an embedded broker.
type service struct {
	t       *testing.T
	broker  *memory.Broker
	sw      *spillway.Spillway
	router  *message.Router
	cancel  context.CancelFunc
	running chan error

	mu       sync.Mutex
	starts   int
	outcomes []middleware.OutcomeInfo
	attempts []int // by number, as the handler was called
	handoffs []handoffFailure
	logs     *logBuffer
	changed  chan struct{} // gets a value after an outcome, if nobody looked meanwhile
}

type handoffFailure struct {
	middleware.HandoffFailureInfo
	at time.Time
}

// logBuffer collects everything that a service logs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newService opens a process on a broker of its own, without the chain installed.
func newService(t *testing.T, cfg spillway.Config) *service {
	t.Helper()
	return serviceOn(t, memory.New(memory.Config{}), cfg)
}

// serviceOn opens a process on broker. Its hooks and log are recorded.
func serviceOn(t *testing.T, broker *memory.Broker, cfg spillway.Config) *service {
	t.Helper()
	return serviceThrough(t, broker, broker.Opener(), cfg)
}

// serviceThrough is serviceOn with an opener that puts something before broker.
func serviceThrough(t *testing.T, broker *memory.Broker, opener adapters.Opener, cfg spillway.Config) *service {
	t.Helper()
	s := &service{t: t, broker: broker, logs: &logBuffer{}, running: make(chan error, 1), changed: make(chan struct{}, 1)}
	if cfg.Group == "" {
		cfg.Group = group
	}
	if cfg.ConsumerVersion == "" {
		cfg.ConsumerVersion = "v1"
	}
	logger := slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Logger = logger
	cfg.Hooks = middleware.Tee(middleware.Hooks{
		OnStart: func(context.Context, *middleware.StartInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.starts++
		},
		OnAttempt: func(_ context.Context, i *middleware.AttemptInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.attempts = append(s.attempts, i.Attempt)
		},
		OnHandoffFailure: func(_ context.Context, i *middleware.HandoffFailureInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.handoffs = append(s.handoffs, handoffFailure{*i, time.Now()})
		},
		OnOutcome: func(_ context.Context, i *middleware.OutcomeInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.outcomes = append(s.outcomes, *i)
			select {
			case s.changed <- struct{}{}:
			default:
			}
		},
	}, cfg.Hooks)
	var err error
	if s.sw, err = spillway.Open(t.Context(), "memory://", cfg, opener); err != nil {
		t.Fatal(err)
	}
	s.router = message.NewDefaultRouter(watermill.NewSlogLogger(logger))
	return s
}

// installed is newService with the chain in place.
func installed(t *testing.T, cfg spillway.Config) *service {
	t.Helper()
	return installedOn(t, memory.New(memory.Config{}), cfg)
}

// installedOn is serviceOn with the chain in place.
func installedOn(t *testing.T, broker *memory.Broker, cfg spillway.Config) *service {
	t.Helper()
	s := serviceOn(t, broker, cfg)
	s.sw.Install(s.router)
	return s
}

// consume adds a handler without outputs.
func (s *service) consume(h func(*message.Message) error) *message.Handler {
	return s.router.AddConsumerHandler("charge", topic, s.sw.Subscriber(), h)
}

// produce adds a handler with outputs.
func (s *service) produce(h message.HandlerFunc) *message.Handler {
	return s.router.AddHandler("charge", topic, s.sw.Subscriber(), outTopic, s.sw.Publisher(), h)
}

// start runs the Router and waits until it runs.
func (s *service) start() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.cancel = cancel
	go func() { s.running <- s.router.Run(ctx) }()
	<-s.router.Running()
}

// refused runs the Router and returns the error for which it does not. What a
// Router leaves behind that did not start never ends: not for bubbles.
func (s *service) refused() error {
	s.t.Helper()
	err := s.router.Run(s.t.Context())
	if closeErr := s.sw.Close(s.t.Context()); closeErr != nil {
		s.t.Error(closeErr)
	}
	return err
}

// refusedLater starts a Router, adds a handler to it, and returns the error for
// which that is not started. Not for bubbles, like refused.
func refusedLater(t *testing.T, add func(s *service)) error {
	t.Helper()
	s := newService(t, spillway.Config{})
	var err error
	if s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: time.Millisecond}, nil); err != nil {
		t.Fatal(err)
	}
	s.sw.Install(s.router)
	s.consume(func(*message.Message) error { return nil })
	s.start()
	add(s)
	refusal := s.router.RunHandlers(t.Context())
	if err := s.router.Close(); err == nil {
		t.Error("the Router waits no more for handlers that never started: run this test in a bubble")
	}
	if err := errors.Join(<-s.running, s.sw.Close(t.Context())); err != nil {
		t.Error(err)
	}
	return refusal
}

// stop ends the process in the right order, and everything must end well.
func (s *service) stop() {
	s.t.Helper()
	if err := errors.Join(s.router.Close(), <-s.running, s.sw.Close(s.t.Context())); err != nil {
		s.t.Error(err)
	}
	s.cancel()
}

// end ends a process that may be dead already.
func (s *service) end() {
	s.t.Helper()
	if err := errors.Join(s.router.Close(), <-s.running); err != nil {
		s.t.Error(err)
	}
	if err := s.sw.Close(s.t.Context()); err != nil && !errors.Is(err, memory.ErrInjected) {
		s.t.Error(err)
	}
	s.cancel()
}

// publish sends messages of the given bodies with the UUIDs 1, 2, ...
func (s *service) publish(bodies ...string) {
	s.t.Helper()
	for i, body := range bodies {
		s.send(message.NewMessage(fmt.Sprint(i+1), []byte(body)))
	}
}

func (s *service) send(msgs ...*message.Message) {
	s.t.Helper()
	if err := s.broker.Publisher().Publish(topic, msgs...); err != nil {
		s.t.Fatal(err)
	}
}

// put writes a record to a stream, as any program can. Its body is its id.
func put(t *testing.T, b *memory.Broker, stream, id string, headers ...adapters.Header) {
	t.Helper()
	if err := b.Publish(stream, adapters.Record{ID: id, Payload: []byte(id), Headers: headers}); err != nil {
		t.Fatal(err)
	}
}

// after lets d pass, and all that happens meanwhile.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// work is what a handler does for d, on the clock of its bubble.
func work(d time.Duration) { time.Sleep(d) }

// outcomesNow are the outcomes so far, in order.
func (s *service) outcomesNow() []middleware.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []middleware.Outcome
	for _, o := range s.outcomes {
		all = append(all, o.Outcome)
	}
	return all
}

func (s *service) wantOutcomes(want ...middleware.Outcome) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.outcomesNow()); diff != "" {
		s.t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// wantAttempts compares the numbers of the attempts, in the order in which the
// handler was called.
func (s *service) wantAttempts(want ...int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.attempts); diff != "" {
		s.t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func (s *service) lastOutcome() middleware.OutcomeInfo {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.outcomes) == 0 {
		s.t.Fatal("there was no outcome")
	}
	return s.outcomes[len(s.outcomes)-1]
}

func (s *service) handoffFailures() []handoffFailure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]handoffFailure(nil), s.handoffs...)
}

// depths are the streams that are not empty, without the outputs.
func depths(b *memory.Broker) map[string]int {
	m := map[string]int{}
	for _, stream := range b.Streams() {
		if n := b.Depth(stream); n > 0 {
			m[stream] = n
		}
	}
	return m
}

func wantDepths(t *testing.T, b *memory.Broker, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, depths(b), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("records by stream (-want +got):\n%s", diff)
	}
}

// only is the one record of a stream, with its state.
func only(t *testing.T, b *memory.Broker, stream string) (adapters.Record, envelope.State) {
	t.Helper()
	records := b.Records(stream)
	if len(records) != 1 {
		t.Fatalf("%s holds %d records, want 1; all: %v", stream, len(records), depths(b))
	}
	return records[0], envelope.Parse(records[0].Headers, time.Now())
}

// wantNoFaultsLeft fails a test whose fault never happened.
func wantNoFaultsLeft(t *testing.T, b *memory.Broker) {
	t.Helper()
	if left := b.FaultsLeft(); len(left) > 0 {
		t.Errorf("faults that did not happen: %v", left)
	}
}

func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// connect is a process that has no Router: a person's tool.
func connect(t *testing.T, b *memory.Broker) adapters.Broker {
	t.Helper()
	view, err := b.Opener().Open(t.Context(), adapters.OpenParams{URL: &url.URL{Scheme: "memory"}})
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// replay sends all dead letters back to their consumer, as a person does.
func replay(t *testing.T, b *memory.Broker) {
	t.Helper()
	view := connect(t, b)
	if err := view.Drain(t.Context(), dlqOf, func(ctx context.Context, rec adapters.Record) error {
		st := envelope.Parse(rec.Headers, time.Now())
		st.ReplayOf, st.ReplayID, st.ReplayCount, st.Attempt, st.DueAt = st.DeadLetterID, "r-1", st.ReplayCount+1, 1, time.Time{}
		pairs, _ := st.Pairs(0)
		return view.Handoff(ctx, adapters.Handoff{
			Consumer: adapters.Consumer{Topic: topic, Group: group}, Stream: adapters.StreamRetry, Record: rec, State: pairs,
		})
	}); err != nil {
		t.Fatal(err)
	}
	if err := view.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lastResort reads the dead letters in the files of a last resort.
func lastResort(t *testing.T, dir string) []envelope.DeadLetter {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var letters []envelope.DeadLetter
	for _, file := range files {
		torn, err := poison.ReadLastResort(file, func(line []byte) error {
			d, err := envelope.DecodeDeadLetter(line)
			letters = append(letters, d)
			return err
		})
		if err != nil || len(torn) > 0 {
			t.Fatalf("read %s: %v, torn lines %v", file, err, torn)
		}
	}
	return letters
}
