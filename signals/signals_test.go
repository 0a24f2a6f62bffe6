package signals_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
	"github.com/spillway-mq/spillway/signals"
)

// bundle is a Signals with the registry it is scraped through.
type bundle struct {
	middleware.Hooks
	t   testing.TB
	reg *prometheus.Registry
}

func setup(t testing.TB, cfg signals.Config) *bundle {
	t.Helper()
	sig, err := signals.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(sig)
	return &bundle{Hooks: sig.Hooks(), t: t, reg: reg}
}

func (b *bundle) start(m middleware.MessageInfo) {
	b.OnStart(context.Background(), &middleware.StartInfo{MessageInfo: m, At: time.Now()})
}

func (b *bundle) attempt(m middleware.MessageInfo, d time.Duration, err error) {
	b.OnAttempt(context.Background(), &middleware.AttemptInfo{MessageInfo: m, Duration: d, Err: err})
}

func (b *bundle) handoffFails(m middleware.MessageInfo, to adapters.Stream, tries int) {
	b.OnHandoffFailure(context.Background(), &middleware.HandoffFailureInfo{
		MessageInfo: m, To: to, Tries: tries, Next: time.Second, Err: errors.New("broker is away"),
	})
}

func (b *bundle) end(m middleware.MessageInfo, o middleware.Outcome) {
	b.OnOutcome(context.Background(), &middleware.OutcomeInfo{MessageInfo: m, Outcome: o})
}

func (b *bundle) deadLetter(m middleware.MessageInfo, class failure.Class, reason policy.Reason) {
	b.OnOutcome(context.Background(), &middleware.OutcomeInfo{
		MessageInfo: m, Outcome: middleware.OutcomeDeadLettered, Failure: failure.Failure{Class: class}, Reason: reason,
	})
}

func (b *bundle) gather() []*dto.MetricFamily {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	return families
}

// samples returns what a scrape shows of the metrics named, without prefix, by
// name and labels. Histograms show as their _count and _sum.
func (b *bundle) samples(names ...string) map[string]float64 {
	b.t.Helper()
	got := map[string]float64{}
	for _, f := range b.gather() {
		name := strings.TrimPrefix(f.GetName(), "spillway_")
		if !slices.Contains(names, name) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := strings.Join(labels, " ")
			if len(names) > 1 {
				key = name + " " + key
			}
			switch {
			case m.Histogram != nil:
				got[key+" count"] = float64(m.Histogram.GetSampleCount())
				got[key+" sum"] = m.Histogram.GetSampleSum()
			case m.Gauge != nil:
				got[key] = m.Gauge.GetValue()
			default:
				got[key] = m.Counter.GetValue()
			}
		}
	}
	return got
}

// nonZero drops the series that only wait for their first event.
func nonZero(samples map[string]float64) map[string]float64 {
	maps.DeleteFunc(samples, func(_ string, v float64) bool { return v == 0 })
	return samples
}

func (b *bundle) expect(what string, got, want map[string]float64) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// msg is a delivery of topic orders to group billing from partition 3.
func msg(id string) middleware.MessageInfo {
	return middleware.MessageInfo{
		Consumer:  adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 8},
		Stream:    adapters.StreamMain,
		Handler:   "charge",
		MessageID: id,
		Partition: 3,
		Attempt:   1,
	}
}

func TestOutcomesTellHowDeliveriesEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	replayed := msg("2")
	replayed.Replay = true
	for _, o := range []middleware.OutcomeInfo{
		{MessageInfo: msg("1"), Outcome: middleware.OutcomeProcessed},
		{MessageInfo: msg("1"), Outcome: middleware.OutcomeProcessed},
		{MessageInfo: replayed, Outcome: middleware.OutcomeProcessed},
		{MessageInfo: msg("3"), Outcome: middleware.OutcomeRetried, Failure: failure.Failure{Class: failure.ClassDependencyTimeout, Code: "http:504"}},
		{MessageInfo: msg("4"), Outcome: middleware.OutcomeParked, Failure: failure.Failure{Class: failure.ClassReferenceNotFound}},
		{MessageInfo: replayed, Outcome: middleware.OutcomeDeadLettered, Failure: failure.Failure{Class: failure.ClassValidation}, Reason: policy.ReasonPermanent},
		{MessageInfo: msg("5"), Outcome: middleware.OutcomeLastResort, Failure: failure.Failure{Class: failure.ClassValidation}},
		{MessageInfo: msg("6"), Outcome: middleware.OutcomeReturned},
		{MessageInfo: msg("7"), Outcome: middleware.OutcomeDelayed},
		{MessageInfo: msg("8"), Outcome: middleware.OutcomeSuspected},
	} {
		b.start(o.MessageInfo)
		b.OnOutcome(t.Context(), &o)
	}
	b.expect("outcomes", b.samples("outcomes_total"), map[string]float64{
		"class= consumer=billing handler=charge outcome=processed replay=false topic=orders":                 2,
		"class= consumer=billing handler=charge outcome=processed replay=true topic=orders":                  1,
		"class=dependency_timeout consumer=billing handler=charge outcome=retried replay=false topic=orders": 1,
		"class=reference_not_found consumer=billing handler=charge outcome=parked replay=false topic=orders": 1,
		"class=validation consumer=billing handler=charge outcome=dead_lettered replay=true topic=orders":    1,
		"class=validation consumer=billing handler=charge outcome=last_resort replay=false topic=orders":     1,
		"class= consumer=billing handler=charge outcome=returned replay=false topic=orders":                  1,
		"class= consumer=billing handler=charge outcome=delayed replay=false topic=orders":                   1,
		"class= consumer=billing handler=charge outcome=suspected replay=false topic=orders":                 1,
	})
}

// A counter that appears above zero hides its first events from rate(), and a
// consumer of which nothing was ever processed must have a success rate of 0,
// not none.
func TestSeriesWaitAtZeroFromTheFirstStart(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	b.expect("before anything", b.samples("outcomes_total", "dead_letters_total"), map[string]float64{})

	b.start(msg("1"))
	want := map[string]float64{
		"outcomes_total class= consumer=billing handler=charge outcome=processed replay=false topic=orders": 0,
		"outcomes_total class= consumer=billing handler=charge outcome=processed replay=true topic=orders":  0,
	}
	for _, r := range []string{
		"permanent", "attempts_exhausted", "parking_deadline", "too_old",
		"consumer_crash", "undecodable", "rejected_by_broker", "replay_limit",
	} {
		want["dead_letters_total consumer=billing reason="+r+" topic=orders"] = 0
	}
	b.expect("after the first start", b.samples("outcomes_total", "dead_letters_total"), want)

	b.deadLetter(msg("1"), failure.ClassValidation, policy.ReasonPermanent)
	b.expect("after a dead letter", nonZero(b.samples("outcomes_total", "dead_letters_total")), map[string]float64{
		"outcomes_total class=validation consumer=billing handler=charge outcome=dead_lettered replay=false topic=orders": 1,
		"dead_letters_total consumer=billing reason=permanent topic=orders":                                               1,
	})
}

func TestAttemptsAndDurations(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	b.attempt(msg("1"), 250*time.Millisecond, nil)
	b.attempt(msg("2"), 500*time.Millisecond, errors.New("no"))
	b.attempt(msg("2"), 1500*time.Millisecond, errors.New("no"))
	b.expect("attempts", b.samples("attempts_total", "handler_duration_seconds"), map[string]float64{
		"attempts_total consumer=billing handler=charge topic=orders":                   3,
		"handler_duration_seconds consumer=billing handler=charge result=success count": 1,
		"handler_duration_seconds consumer=billing handler=charge result=success sum":   0.25,
		"handler_duration_seconds consumer=billing handler=charge result=failure count": 2,
		"handler_duration_seconds consumer=billing handler=charge result=failure sum":   2,
	})
}

func TestRetryLateness(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, due := range []time.Time{
		{},                                // a first delivery: neither late nor early
		now.Add(-1500 * time.Millisecond), // late
		now,                               // on time
		now.Add(time.Minute),              // early
	} {
		m := msg(fmt.Sprint(i))
		b.OnStart(t.Context(), &middleware.StartInfo{MessageInfo: m, At: now, DueAt: due})
		b.end(m, middleware.OutcomeProcessed)
	}
	b.expect("lateness", b.samples("retry_lateness_seconds", "retry_early_total"), map[string]float64{
		"retry_lateness_seconds consumer=billing topic=orders count": 3,
		"retry_lateness_seconds consumer=billing topic=orders sum":   1.5,
		"retry_early_total consumer=billing topic=orders":            1,
	})
}

// K2: a hand-off that never succeeds shows in a gauge, which comes down as
// soon as the message has an outcome.
func TestHandoffFailingUntilTheOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	expect := func(what string, failing, failures float64) {
		t.Helper()
		b.expect(what, b.samples("handoff_failing", "handoff_failures_total"), map[string]float64{
			"handoff_failing consumer=billing to=retry topic=orders":        failing,
			"handoff_failures_total consumer=billing to=retry topic=orders": failures,
		})
	}
	b.start(msg("1"))
	b.start(msg("2"))
	b.start(msg("healthy"))
	b.handoffFails(msg("1"), adapters.StreamRetry, 1)
	expect("first failure", 1, 1)
	b.handoffFails(msg("1"), adapters.StreamRetry, 2)
	b.handoffFails(msg("1"), adapters.StreamRetry, 3)
	expect("it goes on", 1, 3)
	b.handoffFails(msg("2"), adapters.StreamRetry, 1)
	expect("a second message", 2, 4)
	b.end(msg("healthy"), middleware.OutcomeProcessed)
	expect("a healthy neighbour ends", 2, 4)
	b.end(msg("1"), middleware.OutcomeRetried)
	expect("the broker took the first", 1, 4)
	b.end(msg("2"), middleware.OutcomeReturned)
	expect("shutdown returned the second", 0, 4)
}

func TestHandoffFailingFollowsTheMessageToAnotherStream(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	b.start(msg("1"))
	b.handoffFails(msg("1"), adapters.StreamParking, 1)
	b.handoffFails(msg("1"), adapters.StreamDeadLetter, 1)
	b.expect("two streams refuse", b.samples("handoff_failing"), map[string]float64{
		"consumer=billing to=parking topic=orders": 0,
		"consumer=billing to=dlq topic=orders":     1,
	})
	b.end(msg("1"), middleware.OutcomeLastResort)
	b.expect("the last resort took it", b.samples("handoff_failing"), map[string]float64{
		"consumer=billing to=parking topic=orders": 0,
		"consumer=billing to=dlq topic=orders":     0,
	})
}

// The alert of the operators: the age grows while a handler hangs, although
// no hook is called meanwhile.
func TestOldestInFlightGrowsWhileAHandlerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, signals.Config{})
		expect := func(what string, main3, main4, retry3 float64) {
			t.Helper()
			b.expect(what, b.samples("oldest_in_flight_seconds"), map[string]float64{
				"consumer=billing partition=3 stream=main topic=orders":  main3,
				"consumer=billing partition=4 stream=main topic=orders":  main4,
				"consumer=billing partition=3 stream=retry topic=orders": retry3,
			})
		}
		other, retried := msg("4"), msg("1")
		other.Partition = 4
		retried.Stream = adapters.StreamRetry
		for _, m := range []middleware.MessageInfo{other, retried} {
			b.start(m)
			b.end(m, middleware.OutcomeProcessed)
		}

		b.start(msg("1"))
		time.Sleep(time.Minute)
		b.start(msg("2"))
		b.start(other)
		time.Sleep(time.Minute)
		expect("two minutes", 120, 60, 0)
		b.end(other, middleware.OutcomeProcessed)
		for range 15 {
			m := msg("passing by")
			b.start(m)
			time.Sleep(time.Minute)
			b.end(m, middleware.OutcomeProcessed)
		}
		expect("a quarter of an hour later", 17*60, 0, 0)
		b.end(msg("1"), middleware.OutcomeProcessed)
		expect("the second is the oldest", 16*60, 0, 0)
		b.end(msg("2"), middleware.OutcomeProcessed)
		expect("nothing in flight", 0, 0, 0)
	})
}

// Issue 4.3: retries come late behind a full window, and a gauge says so.
func TestFullestWindowOfAStreamShows(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	c := adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 8}
	windows := []adapters.Window{
		{Consumer: c, Stream: adapters.StreamMain, Name: "orders", Messages: 5, Fill: .05},
		{Consumer: c, Stream: adapters.StreamRetry, Name: "orders.billing.retry.2s", Messages: 3, Fill: .25},
		{Consumer: c, Stream: adapters.StreamRetry, Name: "orders.billing.retry.4s", Partition: 1, Messages: 10, Fill: 1},
		{Consumer: c, Stream: adapters.StreamRetry, Name: "orders.billing.retry.4s", Messages: 0, Fill: 0},
	}
	b.OnOpen(t.Context(), &middleware.OpenInfo{Broker: "memory"}) // which has none
	b.OnOpen(t.Context(), &middleware.OpenInfo{Broker: "kafka", Windows: func() []adapters.Window { return windows }})
	b.expect("windows", b.samples("window_messages", "window_fill_ratio"), map[string]float64{
		"window_messages consumer=billing stream=main topic=orders":    5,
		"window_messages consumer=billing stream=retry topic=orders":   13,
		"window_fill_ratio consumer=billing stream=main topic=orders":  .05,
		"window_fill_ratio consumer=billing stream=retry topic=orders": 1,
	})
	windows = nil // closed
	b.expect("no windows", b.samples("window_messages", "window_fill_ratio"), map[string]float64{})
}

func TestInFlightByStream(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	elsewhere, otherHandler, retried := msg("1"), msg("1"), msg("1")
	elsewhere.Partition = 9
	otherHandler.Handler = "refund"
	retried.Stream = adapters.StreamRetry
	all := []middleware.MessageInfo{msg("1"), msg("2"), elsewhere, otherHandler, retried}
	for _, m := range all {
		b.start(m)
	}
	b.expect("started", b.samples("in_flight"), map[string]float64{
		"consumer=billing stream=main topic=orders":  4,
		"consumer=billing stream=retry topic=orders": 1,
	})
	for _, m := range all {
		b.end(m, middleware.OutcomeProcessed)
	}
	b.expect("ended", b.samples("in_flight"), map[string]float64{
		"consumer=billing stream=main topic=orders":  0,
		"consumer=billing stream=retry topic=orders": 0,
	})
}

// Messages without an id on a broker without positions, or two deliveries of
// one message at a time: nothing tells them apart.
func TestEqualDeliveriesInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, signals.Config{})
		m := msg("")
		expect := func(what string, inFlight, failing, oldest float64) {
			t.Helper()
			b.expect(what, b.samples("in_flight", "handoff_failing", "oldest_in_flight_seconds"), map[string]float64{
				"in_flight consumer=billing stream=main topic=orders":                            inFlight,
				"handoff_failing consumer=billing to=retry topic=orders":                         failing,
				"oldest_in_flight_seconds consumer=billing partition=3 stream=main topic=orders": oldest,
			})
		}
		for range 3 {
			b.start(m)
			time.Sleep(time.Second)
		}
		b.handoffFails(m, adapters.StreamRetry, 1) // taken for the first
		expect("one is refused", 3, 1, 3)
		b.handoffFails(m, adapters.StreamRetry, 2)
		expect("and again", 3, 1, 3)
		b.handoffFails(m, adapters.StreamRetry, 1)
		expect("another one", 3, 2, 3)
		b.end(m, middleware.OutcomeProcessed)
		expect("processed: not one of those that fail", 2, 2, 3)
		b.end(m, middleware.OutcomeRetried)
		expect("handed off", 1, 1, 2)
		b.end(m, middleware.OutcomeRetried)
		expect("all ended", 0, 0, 0)
	})
}

// Under traffic without a pause, equal deliveries must not look like one that
// hangs for ever.
func TestEqualDeliveriesDoNotAgeForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, signals.Config{})
		b.start(msg(""))
		for range 1000 {
			time.Sleep(time.Second)
			b.start(msg(""))
			b.end(msg(""), middleware.OutcomeProcessed)
		}
		b.expect("oldest", b.samples("oldest_in_flight_seconds"), map[string]float64{
			"consumer=billing partition=3 stream=main topic=orders": 0,
		})
	})
}

// What a chain learns of a delivery while it handles it must not keep it in
// flight.
func TestOutcomeFindsItsStartWithOtherCounts(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	m := msg("1")
	b.start(m)
	m.Attempt, m.DeliveryCount, m.Replay = 7, 2, true
	b.end(m, middleware.OutcomeProcessed)
	b.expect("in flight", nonZero(b.samples("in_flight", "oldest_in_flight_seconds")), map[string]float64{})
}

func TestHooksWithoutAStartMoveNoGauge(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	b.handoffFails(msg("1"), adapters.StreamRetry, 1)
	b.end(msg("1"), middleware.OutcomeRetried)
	b.expect("gauges", nonZero(b.samples("in_flight", "handoff_failing", "oldest_in_flight_seconds")), map[string]float64{})
	b.expect("counters", nonZero(b.samples("outcomes_total", "handoff_failures_total")), map[string]float64{
		"outcomes_total class= consumer=billing handler=charge outcome=retried replay=false topic=orders": 1,
		"handoff_failures_total consumer=billing to=retry topic=orders":                                   1,
	})
}

func TestClassesAreCapped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		max, want int
	}{{0, 50}, {3, 3}} {
		b := setup(t, signals.Config{MaxClasses: tc.max})
		for range 2 { // a class keeps its label, and others do not get one later
			for i := range 200 {
				b.deadLetter(msg("1"), failure.Class(fmt.Sprintf("own-%d", i)), policy.ReasonPermanent)
			}
		}
		b.deadLetter(msg("1"), failure.ClassPanic, policy.ReasonPermanent)
		const labels = "class=%s consumer=billing handler=charge outcome=dead_lettered replay=false topic=orders"
		want := map[string]float64{
			fmt.Sprintf(labels, "(other)"): float64(2 * (200 - tc.want)),
			fmt.Sprintf(labels, "panic"):   1,
		}
		for i := range tc.want {
			want[fmt.Sprintf(labels, fmt.Sprintf("own-%d", i))] = 2
		}
		b.expect(fmt.Sprintf("MaxClasses %d", tc.max), nonZero(b.samples("outcomes_total")), want)
	}
}

// Names that become one label after cutting and cleaning must not break the
// scrape: a registry refuses two equal series.
func TestHostileLabelValues(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	long := strings.Repeat("ü", 1<<19)
	for _, s := range []string{long + "a", long + "b", "\xff", "\xfe", "\x00\n\"\\{}", ""} {
		m := middleware.MessageInfo{Consumer: adapters.Consumer{Topic: s, Group: s}, Stream: adapters.Stream(s), Handler: s, MessageID: s}
		b.OnStart(t.Context(), &middleware.StartInfo{MessageInfo: m, At: time.Now(), DueAt: time.Now()})
		b.attempt(m, time.Second, nil)
		b.handoffFails(m, adapters.Stream(s), 1)
		b.OnOutcome(t.Context(), &middleware.OutcomeInfo{
			MessageInfo: m, Outcome: middleware.OutcomeDeadLettered,
			Failure: failure.Failure{Class: failure.Class(s)}, Reason: policy.Reason(s),
		})
	}
	cut := strings.Repeat("ü", 126) + "…"
	b.expect("in flight", b.samples("in_flight"), map[string]float64{
		fmt.Sprintf("consumer=%s stream=%[1]s topic=%[1]s", cut):       0,
		"consumer=\uFFFD stream=\uFFFD topic=\uFFFD":                   0,
		"consumer=\x00\n\"\\{} stream=\x00\n\"\\{} topic=\x00\n\"\\{}": 0,
		"consumer= stream= topic=":                                     0,
	})
	assertLabels(t, b.gather())
}

func assertLabels(t *testing.T, families []*dto.MetricFamily) {
	t.Helper()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); len(v) > 256 || !utf8.ValidString(v) {
					t.Errorf("%s: label %s has %d bytes, valid UTF-8: %v", f.GetName(), l.GetName(), len(v), utf8.ValidString(v))
				}
			}
		}
	}
}

func FuzzClassLabel(f *testing.F) {
	f.Add("validation")
	f.Add("\xff\xfe")
	f.Add(strings.Repeat("x", 255) + "ü")
	f.Add(strings.Repeat("\x80", 300))
	f.Add(strings.Repeat("a\xff", 128))
	f.Add(strings.Repeat("€", 90))
	f.Fuzz(func(t *testing.T, class string) {
		b := setup(t, signals.Config{})
		b.deadLetter(msg("1"), failure.Class(class), policy.ReasonPermanent)
		families := b.gather()
		assertLabels(t, families)
		if len(class) <= 256 && utf8.ValidString(class) {
			b.expect("kept as it is", nonZero(b.samples("outcomes_total")), map[string]float64{
				"class=" + class + " consumer=billing handler=charge outcome=dead_lettered replay=false topic=orders": 1,
			})
		}
	})
}

// Codes, ids, offsets and error texts are unbounded: none may show.
func TestNothingUnboundedShows(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	m := msg("secret-id")
	m.Offset, m.Attempt, m.DeliveryCount = 987654321, 987654322, 987654323
	b.start(m)
	b.attempt(m, time.Second, errors.New("secret-error"))
	b.handoffFails(m, adapters.StreamDeadLetter, 987654324)
	b.OnOutcome(t.Context(), &middleware.OutcomeInfo{
		MessageInfo: m, Outcome: middleware.OutcomeDeadLettered, Reason: policy.ReasonPermanent, DeadLetterID: "secret-dead-letter",
		Failure: failure.Failure{Class: failure.ClassValidation, Code: "secret-code", Reference: "secret-reference", Err: errors.New("secret-error")},
	})
	for _, f := range b.gather() {
		if s := f.String(); strings.Contains(s, "secret") || strings.Contains(s, "9876543") {
			t.Errorf("%s shows what it must not: %s", f.GetName(), s)
		}
	}
}

// Not parallel: it measures the heap.
func TestNothingIsKeptOfEndedMessages(t *testing.T) {
	b := setup(t, signals.Config{})
	round := func(from, n int) {
		for i := range n {
			m := msg(fmt.Sprintf("%036d", from+i))
			m.Offset = int64(from + i)
			b.start(m)
			b.start(m) // an equal one
			b.handoffFails(m, adapters.StreamRetry, 1)
			b.handoffFails(m, adapters.StreamDeadLetter, 1)
			b.deadLetter(m, failure.Class(fmt.Sprint("class ", from+i)), policy.ReasonPermanent)
			b.end(m, middleware.OutcomeProcessed)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		return ms.HeapAlloc
	}
	round(0, 1000)
	before := heap()
	round(1000, 50_000)
	after := heap()
	// 50,000 ids of 36 bytes alone would be 1.8 MB.
	if grown := int64(after) - int64(before); grown > 500_000 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	b.expect("gauges", nonZero(b.samples("in_flight", "handoff_failing", "oldest_in_flight_seconds")), map[string]float64{})
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	b := setup(t, signals.Config{})
	const workers, each = 8, 200
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				m := msg(fmt.Sprint(i)) // the same ids in all workers
				m.Partition = int32(i % 5)
				b.start(m)
				b.attempt(m, time.Millisecond, nil)
				if w%2 == 0 {
					b.end(m, middleware.OutcomeProcessed)
					continue
				}
				b.handoffFails(m, adapters.StreamDeadLetter, 1)
				b.deadLetter(m, failure.Class(fmt.Sprint(w)), policy.ReasonPermanent)
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			b.gather()
		}
	})
	wg.Wait()
	want := map[string]float64{
		"outcomes_total class= consumer=billing handler=charge outcome=processed replay=false topic=orders": workers / 2 * each,
		"dead_letters_total consumer=billing reason=permanent topic=orders":                                 workers / 2 * each,
		"attempts_total consumer=billing handler=charge topic=orders":                                       workers * each,
		"handoff_failures_total consumer=billing to=dlq topic=orders":                                       workers / 2 * each,
	}
	for _, class := range []string{"1", "3", "5", "7"} {
		want["outcomes_total class="+class+" consumer=billing handler=charge outcome=dead_lettered replay=false topic=orders"] = each
	}
	b.expect("totals", nonZero(b.samples("outcomes_total", "dead_letters_total", "attempts_total", "handoff_failures_total",
		"in_flight", "handoff_failing", "oldest_in_flight_seconds")), want)
}

func TestBadConfigIsRefusedWithEveryProblem(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]float64{{0, 1}, {1, 1}, {2, 1}, {-1}, {1, math.NaN()}, {math.Inf(1)}} {
		_, err := signals.New(signals.Config{MaxClasses: -1, DurationBuckets: bad, LatenessBuckets: bad})
		if err == nil {
			t.Errorf("buckets %v: no error", bad)
			continue
		}
		for _, field := range []string{"MaxClasses", "DurationBuckets", "LatenessBuckets"} {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("buckets %v: the error does not name %s: %v", bad, field, err)
			}
		}
	}
}

func TestBucketsAreConfigurable(t *testing.T) {
	t.Parallel()
	bounds := []float64{1, 2}
	b := setup(t, signals.Config{DurationBuckets: bounds, LatenessBuckets: bounds})
	bounds[0] = 7 // the caller's own again
	b.OnStart(t.Context(), &middleware.StartInfo{MessageInfo: msg("1"), At: time.Now(), DueAt: time.Now()})
	b.attempt(msg("1"), time.Second, nil)
	histograms := 0
	for _, f := range b.gather() {
		for _, m := range f.GetMetric() {
			if m.Histogram == nil {
				continue
			}
			histograms++
			var got []float64
			for _, bucket := range m.Histogram.GetBucket() {
				got = append(got, bucket.GetUpperBound())
			}
			if diff := cmp.Diff([]float64{1, 2}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", f.GetName(), diff)
			}
		}
	}
	if histograms != 3 {
		t.Errorf("%d histograms, want lateness, and duration by two results", histograms)
	}
}

// everything has a sample of every metric.
func everything(t *testing.T) []*dto.MetricFamily {
	b := setup(t, signals.Config{})
	m := msg("1")
	b.OnStart(t.Context(), &middleware.StartInfo{MessageInfo: m, At: time.Now(), DueAt: time.Now().Add(time.Second)})
	b.attempt(m, time.Second, errors.New("no"))
	b.handoffFails(m, adapters.StreamDeadLetter, 1)
	b.deadLetter(m, failure.ClassValidation, policy.ReasonPermanent)
	b.OnOpen(t.Context(), &middleware.OpenInfo{Windows: func() []adapters.Window { return []adapters.Window{{Consumer: m.Consumer}} }})
	return b.gather()
}

// The linter of testutil.GatherAndLint, without the modules that testutil
// needs beside it.
func TestMetricsFollowPrometheusConventions(t *testing.T) {
	t.Parallel()
	problems, err := promlint.NewWithMetricFamilies(everything(t)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

func TestDocumentationListsEveryMetric(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	type metric struct{ Type, Labels, Help string }
	want := map[string]metric{}
	row := regexp.MustCompile("(?m)^\\| `(spillway_\\w+)` \\| (\\w+) \\| (.*?) \\| (.*?) \\|$")
	for _, r := range row.FindAllStringSubmatch(string(doc), -1) {
		labels := strings.Fields(strings.ReplaceAll(r[3], "`", ""))
		slices.Sort(labels)
		want[r[1]] = metric{r[2], strings.Join(labels, " "), r[4]}
	}
	got := map[string]metric{}
	for _, f := range everything(t) {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		got[f.GetName()] = metric{strings.ToLower(f.GetType().String()), strings.Join(labels, " "), f.GetHelp()}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/metrics.md and the code differ (-docs +code):\n%s", diff)
	}
}

func BenchmarkDelivery(b *testing.B) {
	h := setup(b, signals.Config{})
	m := msg("0d9a2f4e-7a31-4d0e-9d8c-3c1b2a4f5e6d")
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		m.Offset++
		h.OnStart(b.Context(), &middleware.StartInfo{MessageInfo: m, At: at})
		h.OnAttempt(b.Context(), &middleware.AttemptInfo{MessageInfo: m, Duration: time.Millisecond})
		h.OnOutcome(b.Context(), &middleware.OutcomeInfo{MessageInfo: m, Outcome: middleware.OutcomeProcessed})
	}
}

func BenchmarkDeliveryParallel(b *testing.B) {
	h := setup(b, signals.Config{})
	at := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		m := msg("0d9a2f4e-7a31-4d0e-9d8c-3c1b2a4f5e6d")
		ctx := context.Background()
		for pb.Next() {
			m.Offset++
			h.OnStart(ctx, &middleware.StartInfo{MessageInfo: m, At: at})
			h.OnAttempt(ctx, &middleware.AttemptInfo{MessageInfo: m, Duration: time.Millisecond})
			h.OnOutcome(ctx, &middleware.OutcomeInfo{MessageInfo: m, Outcome: middleware.OutcomeProcessed})
		}
	})
}

func BenchmarkDeadLetter(b *testing.B) {
	h := setup(b, signals.Config{})
	m := msg("0d9a2f4e-7a31-4d0e-9d8c-3c1b2a4f5e6d")
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		h.OnStart(b.Context(), &middleware.StartInfo{MessageInfo: m, At: at})
		h.OnAttempt(b.Context(), &middleware.AttemptInfo{MessageInfo: m, Duration: time.Millisecond})
		h.OnOutcome(b.Context(), &middleware.OutcomeInfo{
			MessageInfo: m, Outcome: middleware.OutcomeDeadLettered,
			Failure: failure.Failure{Class: failure.ClassValidation}, Reason: policy.ReasonPermanent,
		})
	}
}
