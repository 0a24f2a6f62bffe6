package signals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// Config of a [Signals]. The zero value is the default.
type Config struct {
	// MaxClasses is how many classes of the user's own get a label; the rest
	// share "(other)". The classes of the built-in rules always have theirs
	// and do not count. Zero means 50.
	MaxClasses int
	// DurationBuckets are the upper bounds, in seconds and ascending, of the
	// handler's duration. Empty means 1 ms to 5 min in 16 steps.
	DurationBuckets []float64
	// LatenessBuckets are the upper bounds, in seconds and ascending, of the
	// lateness of retries. Empty means 1 ms to 1 h in 16 steps.
	LatenessBuckets []float64
}

func (c Config) withDefaults() Config {
	c.MaxClasses = cmp.Or(c.MaxClasses, 50)
	if len(c.DurationBuckets) == 0 {
		c.DurationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	}
	if len(c.LatenessBuckets) == 0 {
		c.LatenessBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.MaxClasses < 0 {
		errs = append(errs, fmt.Errorf("signals: MaxClasses is %d: want at least 1, or 0 for the default", c.MaxClasses))
	}
	errs = append(errs, checkBuckets("DurationBuckets", c.DurationBuckets), checkBuckets("LatenessBuckets", c.LatenessBuckets))
	return errors.Join(errs...)
}

func checkBuckets(field string, bounds []float64) error {
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) || b <= 0 || i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("signals: %s[%d] is %v: want finite seconds above zero, ascending", field, i, b)
		}
	}
	return nil
}

// Signals counts what its [Signals.Hooks] are told, and is the collector to
// register. All methods are safe for concurrent use.
type Signals struct {
	outcomes        *prometheus.CounterVec
	attempts        *prometheus.CounterVec
	deadLetters     *prometheus.CounterVec
	handoffFailures *prometheus.CounterVec
	early           *prometheus.CounterVec
	duration        *prometheus.HistogramVec
	lateness        *prometheus.HistogramVec

	inFlight       *prometheus.Desc
	oldestInFlight *prometheus.Desc
	handoffFailing *prometheus.Desc
	windowMessages *prometheus.Desc
	windowFill     *prometheus.Desc

	classes classes
	lanes   lanes

	mu      sync.Mutex
	windows []func() []adapters.Window // of the brokers that were opened
}

// New returns a Signals, or an error that names every field that is wrong.
func New(cfg Config) (*Signals, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()

	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: slices.Clone(buckets)}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Signals{
		outcomes: counter("spillway_outcomes_total",
			"Deliveries by how they ended.",
			"topic", "consumer", "handler", "outcome", "class", "replay"),
		attempts: counter("spillway_attempts_total",
			"Calls of the handler that returned or panicked.",
			"topic", "consumer", "handler"),
		deadLetters: counter("spillway_dead_letters_total",
			"Messages handed off to the dead letter stream, by reason.",
			"topic", "consumer", "reason"),
		handoffFailures: counter("spillway_handoff_failures_total",
			"Hand-offs that were not confirmed, by the stream that did not take the message.",
			"topic", "consumer", "to"),
		early: counter("spillway_retry_early_total",
			"Deliveries that came before they were due.",
			"topic", "consumer"),
		duration: histogram("spillway_handler_duration_seconds",
			"Time that calls of the handler took.",
			cfg.DurationBuckets, "consumer", "handler", "result"),
		lateness: histogram("spillway_retry_lateness_seconds",
			"Time from when deliveries were due to when they came; zero for those that came early.",
			cfg.LatenessBuckets, "topic", "consumer"),
		inFlight: gauge("spillway_in_flight",
			"Deliveries in the chain right now, by the stream they came from.",
			"topic", "consumer", "stream"),
		oldestInFlight: gauge("spillway_oldest_in_flight_seconds",
			"Time since the oldest delivery in the chain entered it; zero if there is none.",
			"topic", "consumer", "stream", "partition"),
		handoffFailing: gauge("spillway_handoff_failing",
			"Messages whose hand-off is failing right now, by the stream that does not take them.",
			"topic", "consumer", "to"),
		windowMessages: gauge("spillway_window_messages",
			"Messages that were read ahead and are not finished, in handlers or waiting in memory.",
			"topic", "consumer", "stream"),
		windowFill: gauge("spillway_window_fill_ratio",
			"How full the fullest window of what is read ahead is; at 1 nothing behind it is read.",
			"topic", "consumer", "stream"),
		classes: newClasses(cfg.MaxClasses),
	}, nil
}

// Hooks returns the hooks that feed s. It may be called more than once; give
// each chain the hooks once, or everything is counted twice.
func (s *Signals) Hooks() middleware.Hooks {
	return middleware.Hooks{
		OnOpen:           s.onOpen,
		OnStart:          s.onStart,
		OnAttempt:        s.onAttempt,
		OnHandoffFailure: s.onHandoffFailure,
		OnOutcome:        s.onOutcome,
	}
}

func (s *Signals) onOpen(_ context.Context, info *middleware.OpenInfo) {
	if info.Windows == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows = append(s.windows, info.Windows)
}

func (s *Signals) onStart(_ context.Context, info *middleware.StartInfo) {
	l := s.lane(&info.MessageInfo)
	l.start(keyOf(&info.MessageInfo), info.At)
	if info.DueAt.IsZero() {
		return
	}
	late := info.At.Sub(info.DueAt)
	if late < 0 {
		l.early.Inc()
		late = 0
	}
	l.lateness.Observe(late.Seconds())
}

func (s *Signals) onAttempt(_ context.Context, info *middleware.AttemptInfo) {
	l := s.lane(&info.MessageInfo)
	l.attempts.Inc()
	if info.Err == nil {
		l.succeeded.Observe(info.Duration.Seconds())
	} else {
		l.failed.Observe(info.Duration.Seconds())
	}
}

func (s *Signals) onHandoffFailure(_ context.Context, info *middleware.HandoffFailureInfo) {
	l := s.lane(&info.MessageInfo)
	to := label(string(info.To))
	l.handoffFailed(keyOf(&info.MessageInfo), to, info.Tries)
	s.handoffFailures.WithLabelValues(l.topic, l.consumer, to).Inc()
}

func (s *Signals) onOutcome(_ context.Context, info *middleware.OutcomeInfo) {
	l := s.lane(&info.MessageInfo)
	l.end(keyOf(&info.MessageInfo), info.Outcome)
	switch {
	case info.Outcome != middleware.OutcomeProcessed:
		s.outcomes.WithLabelValues(l.topic, l.consumer, l.handler, label(string(info.Outcome)),
			s.classes.label(info.Failure.Class), strconv.FormatBool(info.Replay)).Inc()
	case info.Replay:
		l.processedReplay.Inc()
	default:
		l.processed.Inc()
	}
	if info.Outcome == middleware.OutcomeDeadLettered {
		s.deadLetters.WithLabelValues(l.topic, l.consumer, label(string(info.Reason))).Inc()
	}
}

// lane returns the lane of a delivery.
func (s *Signals) lane(m *middleware.MessageInfo) *lane {
	k := laneKey{m.Consumer.Topic, m.Consumer.Group, m.Stream, m.Handler, m.Partition}
	if l := s.lanes.find(k); l != nil {
		return l
	}
	return s.lanes.add(k, s.newLane(k))
}

// reasons of dead letters, which are exposed as zero before the first one.
var reasons = [...]policy.Reason{
	policy.ReasonPermanent, policy.ReasonAttemptsExhausted, policy.ReasonParkingDeadline, policy.ReasonTooOld,
	policy.ReasonConsumerCrash, policy.ReasonUndecodable, policy.ReasonRejectedByBroker, policy.ReasonReplayLimit,
}

func (s *Signals) newLane(k laneKey) *lane {
	topic, consumer, handler := label(k.topic), label(k.group), label(k.handler)
	// A series that starts above zero hides its first events from rate(), and
	// a ratio without a numerator is no result instead of 0: what can be known
	// before it happens starts at zero.
	for _, r := range reasons {
		s.deadLetters.WithLabelValues(topic, consumer, string(r))
	}
	processed := func(replay string) prometheus.Counter {
		return s.outcomes.WithLabelValues(topic, consumer, handler, string(middleware.OutcomeProcessed), "", replay)
	}
	return &lane{
		topic:           topic,
		consumer:        consumer,
		stream:          label(string(k.stream)),
		handler:         handler,
		partition:       strconv.FormatInt(int64(k.partition), 10),
		early:           s.early.WithLabelValues(topic, consumer),
		lateness:        s.lateness.WithLabelValues(topic, consumer),
		attempts:        s.attempts.WithLabelValues(topic, consumer, handler),
		succeeded:       s.duration.WithLabelValues(consumer, handler, "success"),
		failed:          s.duration.WithLabelValues(consumer, handler, "failure"),
		processed:       processed("false"),
		processedReplay: processed("true"),
		flights:         map[flightKey]flights{},
		failing:         map[string]int{},
	}
}

func (s *Signals) vectors() [7]prometheus.Collector {
	return [...]prometheus.Collector{s.outcomes, s.attempts, s.deadLetters, s.handoffFailures, s.early, s.duration, s.lateness}
}

// Describe implements [prometheus.Collector].
func (s *Signals) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range s.vectors() {
		v.Describe(ch)
	}
	ch <- s.inFlight
	ch <- s.oldestInFlight
	ch <- s.handoffFailing
	ch <- s.windowMessages
	ch <- s.windowFill
}

// Collect implements [prometheus.Collector].
func (s *Signals) Collect(ch chan<- prometheus.Metric) {
	for _, v := range s.vectors() {
		v.Collect(ch)
	}

	// Lanes share label sets: those that differ in handler, or in partition, or
	// in the part of a name that a label cannot show. Each set is sent once.
	type set struct{ topic, consumer, stream, partition string }
	inFlight, failing, oldest := map[set]float64{}, map[set]float64{}, map[set]float64{}
	now := time.Now()
	for _, l := range s.lanes.all() {
		l.mu.Lock()
		inFlight[set{l.topic, l.consumer, l.stream, ""}] += float64(l.inFlight)
		for to, n := range l.failing {
			failing[set{l.topic, l.consumer, to, ""}] += float64(n)
		}
		p := set{l.topic, l.consumer, l.stream, l.partition}
		oldest[p] = max(oldest[p], l.oldestAge(now).Seconds())
		l.mu.Unlock()
	}
	for k, v := range inFlight {
		ch <- prometheus.MustNewConstMetric(s.inFlight, prometheus.GaugeValue, v, k.topic, k.consumer, k.stream)
	}
	for k, v := range failing {
		ch <- prometheus.MustNewConstMetric(s.handoffFailing, prometheus.GaugeValue, v, k.topic, k.consumer, k.stream)
	}
	for k, v := range oldest {
		ch <- prometheus.MustNewConstMetric(s.oldestInFlight, prometheus.GaugeValue, v, k.topic, k.consumer, k.stream, k.partition)
	}
	s.collectWindows(ch)
}

// collectWindows asks the brokers what they have read ahead. Partitions, and the
// tiers that retries wait in, share a series: what is full somewhere shows.
func (s *Signals) collectWindows(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	ask := slices.Clone(s.windows)
	s.mu.Unlock()
	type set struct{ topic, consumer, stream string }
	messages, fill := map[set]float64{}, map[set]float64{}
	for _, windows := range ask {
		for _, w := range windows() {
			k := set{label(w.Consumer.Topic), label(w.Consumer.Group), label(string(w.Stream))}
			messages[k] += float64(w.Messages)
			fill[k] = max(fill[k], w.Fill)
		}
	}
	for k, v := range messages {
		ch <- prometheus.MustNewConstMetric(s.windowMessages, prometheus.GaugeValue, v, k.topic, k.consumer, k.stream)
		ch <- prometheus.MustNewConstMetric(s.windowFill, prometheus.GaugeValue, fill[k], k.topic, k.consumer, k.stream)
	}
}
