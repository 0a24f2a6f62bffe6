package signalstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
	"github.com/spillway-mq/spillway/signals"
)

// world is a consumer process that is scraped every 15 s of a bubble's time.
type world struct {
	t        *testing.T
	docs     documentation
	server   *server
	instance string
	hooks    middleware.Hooks
	reg      *prometheus.Registry
	next     int64
}

// run calls f in a bubble, with a process that was never scraped.
func run(t *testing.T, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, docs: readDocumentation(t), server: newServer(t)}
		w.startProcess("a")
		f(w)
	})
}

func (w *world) startProcess(instance string) {
	w.t.Helper()
	sig, err := signals.New(signals.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.instance, w.hooks, w.reg = instance, sig.Hooks(), prometheus.NewRegistry()
	w.reg.MustRegister(sig)
}

// live scrapes for d, after calling each, if there is one, before every scrape.
func (w *world) live(d time.Duration, each func()) {
	w.t.Helper()
	for range d / (15 * time.Second) {
		time.Sleep(15 * time.Second)
		if each != nil {
			each()
		}
		w.server.scrape(w.instance, w.reg)
	}
}

func (w *world) message() middleware.MessageInfo {
	w.next++
	return middleware.MessageInfo{
		Consumer:  adapters.Consumer{Topic: "orders", Group: "billing"},
		Stream:    adapters.StreamMain,
		Handler:   "charge",
		MessageID: fmt.Sprint(w.next),
		Offset:    w.next,
		Partition: 3,
		Attempt:   1,
	}
}

func (w *world) start(m middleware.MessageInfo) {
	w.hooks.OnStart(context.Background(), &middleware.StartInfo{MessageInfo: m, At: time.Now()})
}

// end completes a delivery with an outcome.
func (w *world) end(m middleware.MessageInfo, o middleware.Outcome) {
	info := middleware.OutcomeInfo{MessageInfo: m, Outcome: o}
	switch o {
	case middleware.OutcomeDeadLettered, middleware.OutcomeLastResort:
		info.Failure.Class, info.Reason = failure.ClassValidation, policy.ReasonPermanent
	case middleware.OutcomeRetried, middleware.OutcomeParked:
		info.Failure.Class = failure.ClassDependencyUnavailable
	}
	w.hooks.OnOutcome(context.Background(), &info)
}

// deliver makes n deliveries end with an outcome.
func (w *world) deliver(n int, o middleware.Outcome) {
	for range n {
		m := w.message()
		w.start(m)
		w.end(m, o)
	}
}

// expect evaluates a documented expression. Values are compared to within 1%.
func (w *world) expect(what, name string, want map[string]float64) {
	w.t.Helper()
	near := cmp.Comparer(func(a, b float64) bool {
		return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 0.01*math.Max(math.Abs(a), math.Abs(b))
	})
	if diff := cmp.Diff(want, w.server.query(w.docs.query(w.t, name), time.Now()), near); diff != "" {
		w.t.Errorf("%s: %s (-want +got):\n%s", what, name, diff)
	}
}

const (
	live    = "consumer=billing replay=false topic=orders"
	replays = "consumer=billing replay=true topic=orders"
)

var nan = math.NaN()

func rate(ofLive, ofReplays float64) map[string]float64 {
	return map[string]float64{live: ofLive, replays: ofReplays}
}

func none() map[string]float64 { return map[string]float64{} }

func TestSuccessRateCountsADeadLetterAsFailure(t *testing.T) {
	run(t, func(w *world) {
		w.live(20*time.Minute, func() {
			w.deliver(9, middleware.OutcomeProcessed)
			w.deliver(1, middleware.OutcomeDeadLettered)
		})
		w.expect("1 in 10 is dead-lettered", "success_rate", rate(0.9, nan))
		w.live(20*time.Minute, func() {
			w.deliver(6, middleware.OutcomeProcessed)
			w.deliver(1, middleware.OutcomeDeadLettered)
			w.deliver(1, middleware.OutcomeLastResort)
		})
		w.expect("1 in 8 also went to the last resort", "success_rate", rate(0.75, nan))
		w.live(20*time.Minute, func() { w.deliver(5, middleware.OutcomeDeadLettered) })
		w.expect("all are dead-lettered", "success_rate", rate(0, nan))
		w.live(20*time.Minute, func() { w.deliver(5, middleware.OutcomeProcessed) })
		w.expect("healed", "success_rate", rate(1, nan))
		w.live(20*time.Minute, nil)
		w.expect("nothing happens", "success_rate", rate(nan, nan))
	})
}

func TestSuccessRateLeavesUndecidedMessagesOut(t *testing.T) {
	undecided := []middleware.Outcome{
		middleware.OutcomeRetried, middleware.OutcomeParked, middleware.OutcomeReturned,
		middleware.OutcomeDelayed, middleware.OutcomeSuspected,
	}
	run(t, func(w *world) {
		noise := func() {
			for _, o := range undecided {
				w.deliver(50, o)
			}
		}
		w.live(10*time.Minute, noise)
		w.expect("nothing is decided", "success_rate", rate(nan, nan))
		w.live(10*time.Minute, func() {
			noise()
			w.deliver(4, middleware.OutcomeProcessed)
			w.deliver(1, middleware.OutcomeDeadLettered)
		})
		w.expect("4 of 5 decided are processed", "success_rate", rate(0.8, nan))
	})
}

func TestSuccessRateTellsReplaysApart(t *testing.T) {
	run(t, func(w *world) {
		w.live(20*time.Minute, func() {
			w.deliver(10, middleware.OutcomeProcessed)
			for i := range 4 {
				m := w.message()
				m.Replay, m.Stream = true, adapters.StreamRetry
				w.start(m)
				if i == 0 {
					w.end(m, middleware.OutcomeProcessed)
				} else {
					w.end(m, middleware.OutcomeDeadLettered)
				}
			}
		})
		w.expect("replays go badly, live traffic well", "success_rate", rate(1, 0.25))
	})
}

// rate() and increase() do not see what a counter held at its first sample.
func TestSuccessRateSeesFirstDeadLetters(t *testing.T) {
	t.Run("of a new process", func(t *testing.T) {
		run(t, func(w *world) {
			w.deliver(3, middleware.OutcomeDeadLettered)
			w.live(2*time.Minute, nil)
			w.expect("nothing was ever processed", "success_rate", rate(0, nan))
		})
	})
	t.Run("of a class", func(t *testing.T) {
		run(t, func(w *world) {
			w.live(2*time.Hour, func() { w.deliver(1, middleware.OutcomeProcessed) })
			w.deliver(5, middleware.OutcomeDeadLettered)
			w.live(time.Minute, func() { w.deliver(1, middleware.OutcomeProcessed) })
			w.expect("20 processed, 5 dead-lettered in 5 minutes", "success_rate", rate(0.8, nan))
			w.live(10*time.Minute, func() { w.deliver(1, middleware.OutcomeProcessed) })
			w.expect("and forgotten", "success_rate", rate(1, nan))
		})
	})
}

func TestScrapeGapMakesNoOldSeriesNew(t *testing.T) {
	run(t, func(w *world) {
		w.live(time.Hour, func() { w.deliver(100, middleware.OutcomeDeadLettered) })
		w.live(2*time.Hour, func() { w.deliver(1, middleware.OutcomeProcessed) })
		time.Sleep(20 * time.Minute) // Prometheus is down
		for range 4 * 70 {           // while what is offset reaches into the gap
			w.live(15*time.Second, func() { w.deliver(1, middleware.OutcomeProcessed) })
			if len(w.server.query(w.docs.query(t, "SpillwayDeadLetterRate"), time.Now())) > 0 {
				t.Fatal("old dead letters fire the rate")
			}
		}
		w.expect("long after", "success_rate", rate(1, nan))
		w.expect("long after", "SpillwayAnyDeadLetter", none())
	})
}

const ofConsumer = "consumer=billing topic=orders"

func TestDeadLetterRateAlert(t *testing.T) {
	run(t, func(w *world) {
		w.live(30*time.Minute, func() { w.deliver(2, middleware.OutcomeDeadLettered) })
		w.expect("8 a minute", "SpillwayDeadLetterRate", none())
		w.live(30*time.Minute, func() { w.deliver(3, middleware.OutcomeDeadLettered) })
		w.expect("12 a minute", "SpillwayDeadLetterRate", map[string]float64{ofConsumer: 12})
		w.live(30*time.Minute, nil)
		w.expect("over", "SpillwayDeadLetterRate", none())
	})
}

func TestDeadLetterRateAlertSeesABurstAtTheStart(t *testing.T) {
	run(t, func(w *world) {
		w.deliver(500, middleware.OutcomeDeadLettered)
		w.live(30*time.Second, nil)
		w.expect("500 in the first seconds", "SpillwayDeadLetterRate", map[string]float64{ofConsumer: 100})
	})
}

func TestDeadLetterRateAlertSurvivesARestart(t *testing.T) {
	run(t, func(w *world) {
		w.live(2*time.Hour, func() { w.deliver(4, middleware.OutcomeDeadLettered) })
		w.startProcess("a")
		w.live(2*time.Minute, func() { w.deliver(4, middleware.OutcomeDeadLettered) })
		w.expect("the same target", "SpillwayDeadLetterRate", map[string]float64{ofConsumer: 16})
		w.startProcess("b")
		w.live(5*time.Minute+15*time.Second, func() { w.deliver(4, middleware.OutcomeDeadLettered) })
		w.expect("another target", "SpillwayDeadLetterRate", map[string]float64{ofConsumer: 16})
	})
}

// K2, as the operator sees it.
func TestHandoffFailingAlert(t *testing.T) {
	run(t, func(w *world) {
		m := w.message()
		w.start(m)
		w.live(time.Minute, nil)
		w.expect("the handler runs", "SpillwayHandoffFailing", none())
		fail := func() {
			w.hooks.OnHandoffFailure(context.Background(), &middleware.HandoffFailureInfo{
				MessageInfo: m, To: adapters.StreamRetry, Tries: 1, Err: errors.New("broker is away"),
			})
		}
		w.live(2*time.Minute, fail)
		w.expect("the broker is away", "SpillwayHandoffFailing", map[string]float64{"consumer=billing to=retry topic=orders": 1})
		w.end(m, middleware.OutcomeRetried)
		w.live(15*time.Second, nil)
		w.expect("the broker is back", "SpillwayHandoffFailing", none())
	})
}

func TestOldestInFlightAlert(t *testing.T) {
	run(t, func(w *world) {
		hanging := w.message()
		w.start(hanging)
		elsewhere := func() {
			m := w.message()
			m.Partition = 4
			w.start(m)
			w.end(m, middleware.OutcomeProcessed)
		}
		w.live(15*time.Minute, elsewhere)
		w.expect("a quarter of an hour", "SpillwayOldestInFlight", none())
		w.live(15*time.Second, elsewhere)
		w.expect("and a bit", "SpillwayOldestInFlight", map[string]float64{"consumer=billing partition=3 stream=main topic=orders": 915})
		w.end(hanging, middleware.OutcomeProcessed)
		w.live(15*time.Second, elsewhere)
		w.expect("it ended", "SpillwayOldestInFlight", none())
	})
}

// A full window of the topic itself is a backlog, which is no reason to call.
func TestRetryWindowFullAlert(t *testing.T) {
	run(t, func(w *world) {
		c := adapters.Consumer{Topic: "orders", Group: "billing"}
		windows := []adapters.Window{{Consumer: c, Stream: adapters.StreamMain, Fill: 1}, {Consumer: c, Stream: adapters.StreamRetry, Fill: .999}}
		w.hooks.OnOpen(context.Background(), &middleware.OpenInfo{Windows: func() []adapters.Window { return windows }})
		w.live(15*time.Second, nil)
		w.expect("there is room", "SpillwayRetryWindowFull", none())
		windows[1].Fill = 1
		w.live(15*time.Second, nil)
		w.expect("there is none", "SpillwayRetryWindowFull", map[string]float64{"consumer=billing stream=retry topic=orders": 1})
	})
}

func TestAnyDeadLetterAlert(t *testing.T) {
	run(t, func(w *world) {
		w.live(2*time.Hour, func() { w.deliver(1, middleware.OutcomeProcessed) })
		w.expect("none yet", "SpillwayAnyDeadLetter", none())
		w.deliver(1, middleware.OutcomeDeadLettered)
		w.live(15*time.Second, nil)
		w.expect("one", "SpillwayAnyDeadLetter", map[string]float64{ofConsumer: 1})
		w.live(2*time.Hour, nil)
		w.expect("long ago", "SpillwayAnyDeadLetter", none())
	})
}

func TestAnyDeadLetterAlertSeesTheFirstOfANewProcess(t *testing.T) {
	run(t, func(w *world) {
		w.live(3*time.Hour, func() { w.deliver(1, middleware.OutcomeProcessed) })
		w.startProcess("b")
		w.deliver(1, middleware.OutcomeDeadLettered)
		w.live(10*time.Minute, nil)
		w.expect("one", "SpillwayAnyDeadLetter", map[string]float64{ofConsumer: 1})
		w.startProcess("c")
		w.live(10*time.Minute, nil)
		w.expect("although the process is gone", "SpillwayAnyDeadLetter", map[string]float64{ofConsumer: 1})
		w.live(2*time.Hour, nil)
		w.expect("long ago", "SpillwayAnyDeadLetter", none())
	})
}

func TestLatenessQuery(t *testing.T) {
	run(t, func(w *world) {
		w.live(10*time.Minute, func() {
			for range 20 {
				m := w.message()
				m.Stream = adapters.StreamRetry
				w.hooks.OnStart(context.Background(), &middleware.StartInfo{
					MessageInfo: m, At: time.Now(), DueAt: time.Now().Add(-80 * time.Millisecond),
				})
				w.end(m, middleware.OutcomeProcessed)
			}
		})
		got := w.server.query(w.docs.query(t, "lateness_p99"), time.Now())
		if p99 := got[ofConsumer]; len(got) != 1 || p99 <= 0.05 || p99 > 0.1 {
			t.Errorf("lateness is %v, want one of 50 to 100 ms", got)
		}
	})
}

// Expressions that name a metric or an outcome that is none return nothing,
// which looks like health.
func TestExpressionsNameWhatExists(t *testing.T) {
	t.Parallel()
	docs := readDocumentation(t)
	exprs := maps.Clone(docs.queries)
	for name, r := range docs.alerts {
		exprs[name] = r.Expr
	}
	want := []string{
		"SpillwayAnyDeadLetter", "SpillwayDeadLetterRate", "SpillwayHandoffFailing", "SpillwayOldestInFlight",
		"SpillwayRetryWindowFull",
		"lateness_p99", "success_rate",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(exprs))); diff != "" {
		t.Errorf("expressions that these tests know, and those of docs/metrics.md (-tests +docs):\n%s", diff)
	}

	sig, err := signals.New(signals.Config{})
	if err != nil {
		t.Fatal(err)
	}
	descs := make(chan *prometheus.Desc, 100)
	sig.Describe(descs)
	close(descs)
	var exposed strings.Builder
	for d := range descs {
		exposed.WriteString(d.String())
	}
	for name, expr := range exprs {
		for _, metric := range selectors(t, expr) {
			if !strings.Contains(exposed.String(), fmt.Sprintf("fqName: %q", strings.TrimSuffix(metric, "_bucket"))) {
				t.Errorf("%s asks for %s, which is no metric", name, metric)
			}
		}
	}
}
