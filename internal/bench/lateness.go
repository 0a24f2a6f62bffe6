package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

const (
	retriesPerSecond = 500
	backlog          = 20_000
	// So many slots, each taken for so long, are about 1,600 calls of the handler
	// a second: the retries, what fails for them, and live messages beside.
	latenessSlots  = 64
	latenessWork   = 40 * time.Millisecond
	latenessWarmUp = 5 * time.Second
)

// retryOnce waits for 0.5 to 1.5 s, which spreads over seven rungs.
var retryOnce = policy.Policy{
	Attempts: policy.Attempts{Transient: 2},
	Backoff:  policy.Backoff{Base: 500 * time.Millisecond, Factor: 2},
}

func (r *onRabbitMQ) lateness(ctx context.Context, t *table) {
	if err := r.measureLateness(ctx, t); err != nil {
		t.fail("RabbitMQ: lateness of retries", err)
	}
}

// lates collects how late retries entered the chain that were due in a window.
type lates struct {
	mu       sync.Mutex
	from, to time.Time
	values   []time.Duration
}

func (l *lates) onStart(_ context.Context, s *middleware.StartInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.DueAt.IsZero() && s.DueAt.After(l.from) && s.DueAt.Before(l.to) {
		l.values = append(l.values, s.At.Sub(s.DueAt))
	}
}

// pacer says yes retriesPerSecond times a second. It catches up on a tenth of a
// second at most: a burst would be another measurement.
type pacer struct {
	mu  sync.Mutex
	due time.Time
}

func (p *pacer) next(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.due) {
		return false
	}
	if behind := now.Add(-100 * time.Millisecond); p.due.Before(behind) {
		p.due = behind
	}
	p.due = p.due.Add(time.Second / retriesPerSecond)
	return true
}

func (r *onRabbitMQ) measureLateness(ctx context.Context, t *table) error {
	defer r.cleanUp()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var late lates
	var handled atomic.Int64 // live messages
	var failures pacer
	handle := func(msg *message.Message) error {
		time.Sleep(latenessWork)
		if d, ok := spillway.DeliveryFrom(msg.Context()); !ok || d.State.Attempt > 1 {
			return nil
		}
		handled.Add(1)
		if failures.next(time.Now()) {
			return errOutage
		}
		return nil
	}
	cfg := benchConfig(middleware.Hooks{OnStart: late.onStart})
	cfg.Policy, cfg.Concurrency = retryOnce, latenessSlots
	topic := newTopic()
	stop, err := r.startSpillway(ctx, topic, liveMessages(0, backlog), cfg, shortLadder, handle)
	if err != nil {
		return err
	}
	fed := make(chan error, 1)
	go func() { fed <- r.keepBacklog(ctx, topic, &handled) }()

	from := time.Now().Add(latenessWarmUp)
	to := from.Add(r.window)
	late.mu.Lock()
	late.from, late.to = from, to
	late.mu.Unlock()
	select {
	// Whatever is due in the window has come, unless it is later than this.
	case <-time.After(time.Until(to) + 10*time.Second):
	case err = <-fed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel()
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	late.report(t, r.window)
	return nil
}

func (l *lates) report(t *table, window time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.values)
	rate := float64(len(l.values)) / window.Seconds()
	what := fmt.Sprintf("RabbitMQ: lateness of retries, backlog of %d live messages", backlog)
	if rate < 0.95*retriesPerSecond {
		t.fail(what, fmt.Errorf("only %.0f of %d retries/s came: the machine is too busy", rate, retriesPerSecond))
	}
	if len(l.values) == 0 {
		return
	}
	ms := func(p int) float64 { return float64(percentile(l.values, p)) / float64(time.Millisecond) }
	t.check(fmt.Sprintf("%s, %.0f retries/s, p99", what, rate), ms(99) <= 100, "at most 100 ms",
		"%.0f ms (p50 %.0f, max %.0f)", ms(99), ms(50), ms(100))
	early, _ := slices.BinarySearch(l.values, 0)
	t.check("RabbitMQ: retries that came early", early == 0, "none", "%d of %d", early, len(l.values))
}

// keepBacklog publishes as many live messages as have been handled.
func (r *onRabbitMQ) keepBacklog(ctx context.Context, topic string, handled *atomic.Int64) error {
	return r.onChannel(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		published := int64(backlog)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			missing := handled.Load() + backlog - published
			if err := publish(ctx, ch, topic, liveMessages(published, missing)); err != nil && ctx.Err() == nil {
				return err
			}
			published += missing
		}
	})
}

func liveMessages(from, n int64) []*message.Message {
	batch := make([]*message.Message, 0, n)
	for i := range n {
		batch = append(batch, message.NewMessage(strconv.FormatInt(from+i, 10), []byte(bodyHealthy)))
	}
	return batch
}
