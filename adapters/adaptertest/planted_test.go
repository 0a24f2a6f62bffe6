package adaptertest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
)

// bugEnv names the bug in a process that runs the suite on a broken adapter.
const bugEnv = "ADAPTERTEST_PLANTED_BUG"

// bug is a mistake that adapters make, in an adapter that is otherwise that of
// memory, and the subtests that must notice.
type bug struct {
	name  string
	finds []string
	// plant is given the healthy methods and replaces some.
	plant func(*broken)
}

var bugs = []bug{
	{"confirms hand-offs that were not written", []string{
		"NothingIsLostWhenProcessesAreKilledAtEveryStage", "NothingIsLostOrDoubledByRollingRestarts", "HandoffIsRepeatedUntilConfirmedAndOnlyThenAcked",
	}, func(b *broken) {
		b.handoff = func(context.Context, adapters.Handoff) error { return nil }
	}},
	{"acknowledges on delivery", []string{
		"NothingIsLostWhenProcessesAreKilledAtEveryStage", "RefusedMessageWithoutLastResortStaysWithTheBroker", "ShutdownDuringTheHandlerCountsNothing",
		"LostAckIsADuplicateAtWorst", "SubscriptionStopsAndClosesInOrder",
	}, func(b *broken) {
		b.delivery = func(d *adapters.Delivery) { _ = d.Settler.Ack(context.Background(), d) }
	}},
	{"acknowledges what is returned", []string{
		"ShutdownDuringTheHandlerCountsNothing", "CloseDuringAFailingHandoffReturnsTheMessage", "HandlerThatOutlivesTheGraceGivesItsMessageBack", "NothingIsLostOrDoubledByRollingRestarts",
	}, func(b *broken) {
		b.delivery = func(d *adapters.Delivery) { d.Settler = acking{d.Settler} }
	}},
	{"acknowledges what is unsettled at the end", []string{
		"SubscriptionStopsAndClosesInOrder", "NothingIsLostWhenProcessesAreKilledAtEveryStage",
	}, func(b *broken) { b.losesOnClose = true }},
	{"loses at Stop what is on its way", []string{"SubscriptionStopsAndClosesInOrder"}, func(b *broken) { b.losesOnStop = true }},
	{"writes hand-offs twice", []string{
		"HandoffIsRepeatedUntilConfirmedAndOnlyThenAcked", "CloseDuringAHandoffLeavesOneCopy", "NothingIsLostOrDoubledByRollingRestarts",
	}, func(b *broken) {
		b.handoff = func(ctx context.Context, h adapters.Handoff) error {
			_ = b.Broker.Handoff(ctx, h)
			return b.Broker.Handoff(ctx, h)
		}
	}},
	{"drops user headers", []string{"KeyAndHeadersArriveUnchanged", "TraceIsKept", "HandlerSeesTheSameOnEveryAttempt"}, change(func(h *adapters.Handoff) {
		h.Record.Headers = nil
	})},
	{"keeps one of repeated headers", []string{"KeyAndHeadersArriveUnchanged"}, change(func(h *adapters.Handoff) {
		seen := map[string]bool{}
		var kept []adapters.Header
		for _, header := range h.Record.Headers {
			if !seen[header.Key] {
				kept = append(kept, header)
			}
			seen[header.Key] = true
		}
		h.Record.Headers = kept
	})},
	{"drops the key", []string{"KeyAndHeadersArriveUnchanged"}, change(func(h *adapters.Handoff) { h.Record.Key = nil })},
	{"makes empty of nil", []string{"BytesArriveUnchangedWhateverTheHandlerDoes"}, change(func(h *adapters.Handoff) {
		h.Record.Payload = append([]byte{}, h.Record.Payload...)
	})},
	{"makes valid UTF-8 of payloads", []string{"BytesArriveUnchangedWhateverTheHandlerDoes"}, change(func(h *adapters.Handoff) {
		h.Record.Payload = []byte(strings.ToValidUTF8(string(h.Record.Payload), "?"))
	})},
	{"loses the id", []string{"KeyAndHeadersArriveUnchanged", "HandlerSeesTheSameOnEveryAttempt"}, change(func(h *adapters.Handoff) { h.Record.ID = "" })},
	{"delivers half a second early", []string{"RetriesAreNeverEarlyNorLateAndSpread"}, change(func(h *adapters.Handoff) {
		h.Due = h.Due.Add(-500 * time.Millisecond)
	})},
	{"delivers late", []string{"RetriesAreNeverEarlyNorLateAndSpread", "RetriesAreOnTimeDespiteABacklog"}, change(func(h *adapters.Handoff) {
		if !h.Due.IsZero() {
			h.Due = h.Due.Add(time.Second)
		}
	})},
	{"releases in convoys", []string{"RetriesAreNeverEarlyNorLateAndSpread"}, change(func(h *adapters.Handoff) {
		h.Due = h.Due.Truncate(time.Minute).Add(time.Minute)
	})},
	{"shortens delays", []string{"QuantizeNeverShortensNorLengthensByMoreThanTheStep"}, func(b *broken) {
		b.quantize = func(d time.Duration) time.Duration { return d.Truncate(time.Second) }
	}},
	{"forgets what is parked", []string{"ParkedMessageComesBackAfterTheInterval", "PolicyChangeStrandsNothing"}, change(func(h *adapters.Handoff) {
		if h.Stream == adapters.StreamParking {
			h.Due = time.Now().Add(10_000 * time.Hour)
		}
	})},
	{"does not count deliveries", []string{"MessageThatKillsItsProcessIsFoundAlone"}, func(b *broken) {
		b.delivery = func(d *adapters.Delivery) { d.Count = 1 }
	}},
	{"counts deliveries double", []string{"TenRollingRestartsMakeNoSuspect"}, func(b *broken) {
		b.delivery = func(d *adapters.Delivery) { d.Count *= 5 }
	}},
	{"invents positions", []string{"FirstPositionWins"}, func(b *broken) {
		b.caps = func(c *adapters.Capabilities) { c.Positions = false }
	}},
	{"shares retries between groups", []string{"OnlyTheFailingGroupSeesItAgain"}, func(b *broken) {
		b.handoff = func(ctx context.Context, h adapters.Handoff) error {
			if err := b.Broker.Handoff(ctx, h); err != nil || h.Stream != adapters.StreamRetry {
				return err
			}
			h.Consumer.Group = "healthy"
			return b.Broker.Handoff(ctx, h)
		}
	}},
	{"maps two names to one", []string{"CollidingNamesAreRefused"}, change(func(h *adapters.Handoff) {
		h.Consumer.Group = strings.NewReplacer("_", "-").Replace(h.Consumer.Group)
	})},
	{"copies state headers", []string{"MetadataDoesNotGrowWithHops"}, change(func(h *adapters.Handoff) {
		var old []envelope.Pair
		for _, header := range h.Record.Headers {
			if envelope.IsOwn(header.Key) {
				old = append(old, envelope.Pair{Key: header.Key, Value: string(header.Value)})
			}
		}
		h.State = append(old, h.State...)
	})},
	{"takes too many", []string{"ConcurrencyIsABoundAndOneKeepsTheOrder"}, func(b *broken) {
		b.consumer = func(c *adapters.Consumer) { c.Concurrency *= 4 }
	}},
	{"removes before it shows", []string{"DrainRemovesWhatWasTaken"}, func(b *broken) {
		b.drain = func(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
			var all []adapters.Record
			_ = b.Broker.Drain(ctx, stream, func(_ context.Context, r adapters.Record) error { all = append(all, r); return nil })
			for _, r := range all {
				if err := fn(ctx, r); err != nil {
					return err
				}
			}
			return nil
		}
	}},
	{"takes in-place retry for something else", []string{"UndeclaredCapabilitiesAreRefused"}, func(b *broken) {
		b.consumer = func(c *adapters.Consumer) { c.Retry = adapters.RetryTopic }
	}},
	{"treats its limits as passing", []string{"SizeLimitsAreToldApart"}, func(b *broken) {
		b.handoff = func(ctx context.Context, h adapters.Handoff) error {
			if err := b.Broker.Handoff(ctx, h); err != nil {
				return fmt.Errorf("%v", err)
			}
			return nil
		}
	}},
	{"has no head-room", []string{"SizeLimitsAreToldApart"}, func(b *broken) {
		b.handoff = func(ctx context.Context, h adapters.Handoff) error {
			if len(h.Record.Payload) > limits.MaxMessageBytes-1024 {
				return adapters.ErrTooLarge
			}
			return b.Broker.Handoff(ctx, h)
		}
	}},
	{"makes streams per attempt", []string{"NumberOfStreamsIsConstant"}, func(b *broken) {
		b.handoff = func(ctx context.Context, h adapters.Handoff) error {
			_ = b.Broker.Ensure(ctx, adapters.Consumer{Topic: h.Consumer.Topic + "." + h.Record.ID, Group: "delay"})
			return b.Broker.Handoff(ctx, h)
		}
	}},
	{"shows the password", []string{"PasswordIsInNoError"}, func(b *broken) { b.showsPassword = true }},
}

// change plants a change of every hand-off.
func change(f func(*adapters.Handoff)) func(*broken) {
	return func(b *broken) {
		b.handoff = func(ctx context.Context, h adapters.Handoff) error {
			f(&h)
			return b.Broker.Handoff(ctx, h)
		}
	}
}

// A suite that cannot fail proves nothing. Each bug is planted in a process of
// its own, which must fail, in the subtests that are there for it. Without a bug
// the same subtests pass.
func TestSuiteFindsPlantedBugs(t *testing.T) {
	if name, ok := os.LookupEnv(bugEnv); ok {
		runPlanted(t, name)
		return
	}
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	suite := func(t *testing.T, name string, subtests []string) (output string, failed bool) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), executable, "-test.timeout=60s", "-test.v",
			"-test.run=^TestSuiteFindsPlantedBugs$/^("+strings.Join(subtests, "|")+")$")
		cmd.Env = append(os.Environ(), bugEnv+"="+name)
		out, err := cmd.CombinedOutput()
		return string(out), err != nil
	}
	var all []string
	for _, b := range bugs {
		all = append(all, b.finds...)
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			out, failed := suite(t, b.name, b.finds)
			if !failed {
				t.Errorf("the suite passed")
			}
			for _, subtest := range b.finds {
				if !strings.Contains(out, "--- FAIL: TestSuiteFindsPlantedBugs/"+subtest+" ") {
					t.Errorf("%s did not notice", subtest)
				}
			}
			if strings.Contains(out, "panic: test timed out") {
				t.Errorf("a subtest hung:\n%s", out)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if out, failed := suite(t, "none", all); failed {
			t.Errorf("the suite failed without a bug:\n%s", out)
		}
	})
}

// limits of the broker, where a bug is about them.
var limits = memory.Config{MaxMessageBytes: 128 << 10}

func runPlanted(t *testing.T, name string) {
	plant := func(*broken) {}
	for _, b := range bugs {
		if b.name == name {
			plant = b.plant
		}
	}
	adaptertest.Run(t, adaptertest.Harness{Bubble: true, Start: func(testing.TB) adaptertest.Target {
		broker := memory.New(limits)
		healthy := broker.Opener()
		return adaptertest.Target{
			URL: "memory://",
			Opener: adapters.Opener{Schemes: healthy.Schemes, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
				inner, err := healthy.Open(ctx, p)
				b := &broken{Broker: inner}
				plant(b)
				if err != nil && b.showsPassword {
					return nil, fmt.Errorf("open %v: %w", p.URL, err)
				}
				if err != nil {
					return nil, err
				}
				return b, nil
			}},
			Publish: func(topic string, r adapters.Record) error { return broker.Publish(topic, r) },
			Streams: func(topic string) (n int, err error) {
				for _, s := range broker.Streams() {
					if strings.HasPrefix(s, topic) {
						n++
					}
				}
				return n, nil
			},
		}
	}})
}

// broken is an adapter with a planted bug. Nil fields are healthy.
type broken struct {
	adapters.Broker
	handoff                   func(context.Context, adapters.Handoff) error
	delivery                  func(*adapters.Delivery)
	consumer                  func(*adapters.Consumer)
	caps                      func(*adapters.Capabilities)
	quantize                  func(time.Duration) time.Duration
	drain                     func(context.Context, string, func(context.Context, adapters.Record) error) error
	losesOnStop, losesOnClose bool
	showsPassword             bool
}

func (b *broken) Capabilities() adapters.Capabilities {
	c := b.Broker.Capabilities()
	if b.caps != nil {
		b.caps(&c)
	}
	return c
}

func (b *broken) Ensure(ctx context.Context, c adapters.Consumer) error {
	if b.consumer != nil {
		b.consumer(&c)
	}
	return b.Broker.Ensure(ctx, c)
}

func (b *broken) Quantize(d time.Duration) time.Duration {
	if b.quantize != nil {
		return b.quantize(d)
	}
	return b.Broker.Quantize(d)
}

func (b *broken) Handoff(ctx context.Context, h adapters.Handoff) error {
	if b.handoff != nil {
		return b.handoff(ctx, h)
	}
	return b.Broker.Handoff(ctx, h)
}

func (b *broken) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	if b.drain != nil {
		return b.drain(ctx, stream, fn)
	}
	return b.Broker.Drain(ctx, stream, fn)
}

func (b *broken) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	if b.consumer != nil {
		b.consumer(&c)
	}
	inner, err := b.Broker.Subscribe(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &brokenSubscription{Subscription: inner, b: b, out: make(chan *adapters.Delivery, 64)}
	go s.pump()
	return s, nil
}

type brokenSubscription struct {
	adapters.Subscription
	b    *broken
	out  chan *adapters.Delivery
	seen []*adapters.Delivery // by pump, read after it
}

// pump passes on what its channel has room for, which is all that is unsettled.
func (s *brokenSubscription) pump() {
	defer close(s.out)
	for d := range s.Subscription.Deliveries() {
		s.seen = append(s.seen, d)
		own := *d
		own.Settler = settling{d}
		if s.b.delivery != nil {
			s.b.delivery(&own)
		}
		s.out <- &own
	}
}

func (s *brokenSubscription) Deliveries() <-chan *adapters.Delivery { return s.out }

func (s *brokenSubscription) Stop(ctx context.Context) error {
	if err := s.Subscription.Stop(ctx); err != nil {
		return err
	}
	// What was on its way goes back.
	for d := range s.out {
		settle := d.Settler.Return
		if s.b.losesOnStop {
			settle = d.Settler.Ack
		}
		if err := settle(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (s *brokenSubscription) Close(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	if s.b.losesOnClose {
		for _, d := range s.seen {
			_ = d.Settler.Ack(ctx, d)
		}
	}
	return s.Subscription.Close(ctx)
}

// settling settles the delivery that a copy was made of.
type settling struct{ of *adapters.Delivery }

func (s settling) Ack(ctx context.Context, _ *adapters.Delivery) error {
	return s.of.Settler.Ack(ctx, s.of)
}

func (s settling) Return(ctx context.Context, _ *adapters.Delivery) error {
	return s.of.Settler.Return(ctx, s.of)
}

type acking struct{ adapters.Settler }

func (a acking) Return(ctx context.Context, d *adapters.Delivery) error { return a.Ack(ctx, d) }
