package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// handoff writes the delivery's record with the given state, and repeats that
// until it is confirmed, until the message's context ends, or until it is clear
// that no stream will ever take it and the last resort has. It returns nil when
// the source may be acknowledged.
func (a *attempt) handoff(to adapters.Stream, st envelope.State, o OutcomeInfo) error {
	c := a.chain
	h := adapters.Handoff{Consumer: a.delivery.Consumer, Stream: to, Record: a.delivery.Record, Due: st.DueAt}
	if to == adapters.StreamDeadLetter {
		h.DropHeaders = st.DroppedHeaders
	}
	budget := budget(a.broker(), h)
	h.State, _ = st.Pairs(budget) // what still does not fit, the broker says

	ctx, stop := a.handoffContext()
	defer stop()
	trimmed := false
	for tries := 1; ; tries++ {
		err := a.tryHandoff(ctx, h)
		if err == nil {
			a.finish(o)
			return nil
		}
		pause := handoffBackoff.Delay(tries-1, rand.Float64())
		switch {
		case errors.Is(err, adapters.ErrClosed):
			// Spillway was closed under a running handler. The broker still has
			// the message, unless the handler acknowledged it by itself.
			a.handoffFailed(to, tries, 0, err)
			return a.returned()
		case errors.Is(err, adapters.ErrTooLarge) && !trimmed:
			trimmed = true
			h.State, _ = st.Trimmed().Pairs(budget)
			pause = 0
		case isFinal(err):
			if c.cfg.LastResort != nil {
				lastErr := a.lastResort(ctx, st)
				if lastErr == nil {
					a.handoffFailed(to, tries, 0, err)
					o.Outcome, o.LastResort = OutcomeLastResort, c.cfg.LastResort.Path()
					a.finish(o)
					return nil
				}
				err = errors.Join(err, lastErr)
			} else {
				err = fmt.Errorf("%w (a last resort would take it: set Config.LastResort)", err)
			}
			pause = handoffBackoff.Max
		}
		a.handoffFailed(to, tries, pause, err)
		if !a.wait(pause) {
			return a.returned()
		}
	}
}

// budget is what the headers of the user leave of the broker's limit; zero
// without a limit.
func budget(b adapters.Broker, h adapters.Handoff) int {
	left := b.Capabilities().MaxMetadataBytes
	if left <= 0 {
		return 0
	}
	for _, header := range h.Record.Headers {
		if h.Keeps(header.Key) {
			left -= len(header.Key) + len(header.Value)
		}
	}
	return max(left, 1)
}

func isFinal(err error) bool {
	return errors.Is(err, adapters.ErrTooLarge) || errors.Is(err, adapters.ErrRefused)
}

// handoffContext is not ended by a shutdown, so that a write that has begun is
// not left with an unknown result, but by the grace period after it.
func (a *attempt) handoffContext() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	grace := a.chain.cfg.CloseGrace
	stop := context.AfterFunc(a.ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-a.msg.Nacked(): // given back at the end of the grace: no second copy
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { stop(); cancel() }
}

// tryHandoff makes one write. A panic of the adapter is an unknown result, not
// the end of the decision.
func (a *attempt) tryHandoff(ctx context.Context, h adapters.Handoff) (err error) {
	ctx, cancel := context.WithTimeout(ctx, handoffTimeout)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("hand-off panicked: %v", value)
		}
	}()
	return a.broker().Handoff(ctx, h)
}

func (a *attempt) handoffFailed(to adapters.Stream, tries int, pause time.Duration, err error) {
	for _, hook := range a.chain.hooks.handoffFailure {
		callHook(a.ctx, &a.chain.hooks, "OnHandoffFailure", hook, &HandoffFailureInfo{MessageInfo: *a.info(), To: to, Tries: tries, Next: pause, Err: err})
	}
}

// wait pauses, and reports false when the message's context has ended.
func (a *attempt) wait(pause time.Duration) bool {
	if pause == 0 {
		return true
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.ctx.Done():
		return false
	}
}

// lastResort writes the message, with its evidence, to the file that stands in
// for a stream that takes it.
func (a *attempt) lastResort(ctx context.Context, st envelope.State) error {
	if st.Reason == "" {
		st = a.chain.cfg.Evidence.Bury(st, a.delivery.Record, policy.ReasonRejectedByBroker, time.Now())
	}
	line, err := json.Marshal(poison.Letter(st, a.delivery.Record))
	if err != nil {
		return fmt.Errorf("last resort: %w", err)
	}
	return a.chain.cfg.LastResort.Write(ctx, line)
}

// Renew writes a delivery from the suspect stream to it once more, with the
// state that it came with, so that the broker counts from the beginning. When
// it returns nil the delivery is to be acknowledged.
func (c *Chain) Renew(ctx context.Context, d *adapters.Delivery) error {
	b := c.brokerOf(d)
	st := d.State
	st.ConsumerGroup, st.Source.Topic = d.Consumer.Group, d.Consumer.Topic
	h := adapters.Handoff{Consumer: d.Consumer, Stream: adapters.StreamSuspect, Record: d.Record}
	h.State, _ = st.Pairs(budget(b, h))
	ctx, cancel := context.WithTimeout(ctx, handoffTimeout)
	defer cancel()
	return b.Handoff(ctx, h)
}
