package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

const (
	waitingAtKill = 5_000
	// killDelay leaves time to hand all of them off before the first is due.
	killDelay    = 40 * time.Second
	killPatience = 3 * time.Minute
)

func (r *onRabbitMQ) kill(ctx context.Context, t *table) {
	if err := r.measureKill(ctx, t); err != nil {
		t.fail(fmt.Sprintf("RabbitMQ: messages lost by kill -9 with %d waiting", waitingAtKill), err)
	}
}

// ledger counts by id what became of messages.
type ledger struct {
	mu        sync.Mutex
	retried   map[string]int
	processed map[string]int
	changed   chan struct{} // one slot
}

func (l *ledger) onOutcome(_ context.Context, o *middleware.OutcomeInfo) {
	l.mu.Lock()
	switch o.Outcome {
	case middleware.OutcomeRetried:
		l.retried[o.MessageID]++
	case middleware.OutcomeProcessed:
		l.processed[o.MessageID]++
	}
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *ledger) counts() (retried, processed, again int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.processed {
		again += n - 1
	}
	return len(l.retried), len(l.processed), again
}

// wait returns when done says so, with an error that says what was missing.
func (l *ledger) wait(ctx context.Context, done func(retried, processed int) bool) error {
	for {
		retried, processed, _ := l.counts()
		if done(retried, processed) {
			return nil
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d handed off, %d processed: %w", retried, waitingAtKill, processed, context.Cause(ctx))
		}
	}
}

func (r *onRabbitMQ) measureKill(ctx context.Context, t *table) error {
	if err := r.isOurs(ctx); err != nil {
		return err
	}
	defer r.cleanUp()
	ctx, cancel := context.WithTimeoutCause(ctx, killPatience, fmt.Errorf("after %s", killPatience))
	defer cancel()
	l := ledger{retried: map[string]int{}, processed: map[string]int{}, changed: make(chan struct{}, 1)}
	cfg := benchConfig(middleware.Hooks{OnOutcome: l.onOutcome})
	cfg.Policy = policy.Policy{
		Attempts: policy.Attempts{Transient: 2},
		Backoff:  policy.Backoff{Base: killDelay, Factor: 1, Max: killDelay, Jitter: policy.JitterNone},
	}
	stop, err := r.startSpillway(ctx, newTopic(), liveMessages(0, waitingAtKill), cfg, rabbitmq.Config{Prefix: ladderPrefix},
		func(msg *message.Message) error {
			if d, ok := spillway.DeliveryFrom(msg.Context()); ok && d.State.Attempt > 1 {
				return nil
			}
			return errOutage
		})
	if err != nil {
		return err
	}
	if err := l.wait(ctx, func(retried, _ int) bool { return retried == waitingAtKill }); err != nil {
		return errors.Join(err, stop())
	}
	if _, early, _ := l.counts(); early > 0 {
		return errors.Join(fmt.Errorf("%d of %d had come back before the rest was handed off: the machine is too busy", early, waitingAtKill), stop())
	}
	killed := time.Now()
	err = r.command(ctx, "kill")
	if err == nil {
		err = r.command(ctx, "up")
	}
	if err == nil {
		err = r.isOurs(ctx) // or it has another port now
	}
	if err != nil {
		return errors.Join(err, stop())
	}
	down := time.Since(killed)
	_ = l.wait(ctx, func(_, processed int) bool { return processed == waitingAtKill }) // what is missing then is counted
	_, processed, again := l.counts()
	lost := waitingAtKill - processed
	t.check(fmt.Sprintf("RabbitMQ: messages lost by kill -9 with %d waiting", waitingAtKill), lost == 0, "none",
		"%d (%d came back, %d of them twice; down for %.0f s)", lost, processed, again, down.Seconds())
	return stop()
}

// isOurs makes sure that the broker is one that scripts/brokers may kill.
func (r *onRabbitMQ) isOurs(ctx context.Context) error {
	out, err := r.output(ctx, "env")
	if err != nil {
		return fmt.Errorf("needs a broker of scripts/brokers, which it may kill: %w", err)
	}
	if !strings.Contains(out, r.url) {
		return fmt.Errorf("SPILLWAY_TEST_RABBITMQ is not the broker that %q may kill", r.brokers)
	}
	return nil
}

func (r *onRabbitMQ) command(ctx context.Context, verb string) error {
	_, err := r.output(ctx, verb)
	return err
}

func (r *onRabbitMQ) output(ctx context.Context, verb string) (string, error) {
	fields := strings.Fields(r.brokers)
	if len(fields) != 2 {
		return "", fmt.Errorf("flag -brokers must be a command and a name, is %q", r.brokers)
	}
	cmd := exec.CommandContext(ctx, fields[0], verb, fields[1])
	// A broker that stays may keep the pipes open; nobody waits for it.
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("%s %s %s: %w: %s", fields[0], verb, fields[1], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
