package spillway_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

type goexitPublisher struct{}

func (goexitPublisher) Publish(string, ...*message.Message) error { runtime.Goexit(); return nil }
func (goexitPublisher) Close() error                              { return nil }

// someTimes panics, but not for ever: what it provokes is a loop without pause,
// in which virtual time stands still.
type someTimes struct{ n atomic.Int32 }

func (s *someTimes) next() {
	if s.n.Add(1) < 100 {
		panic("metrics registry is nil")
	}
}

// A hook that panics once a hand-off is confirmed must not send the source back.
func TestAdversaryPanickingOutcomeHookDuplicatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		var panics someTimes
		a := advOpen(t, b, spillway.Config{Hooks: middleware.Hooks{
			OnOutcome: func(context.Context, middleware.OutcomeInfo) { panics.next() },
		}})
		a.handle("orders", func(*message.Message) error { return failure.Permanent(errors.New("bad")) }).run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := b.Depth("orders.g.dlq"); n != 1 {
			t.Errorf("%d dead letters of one message, want 1", n)
		}
		if n := b.Depth("orders"); n != 0 {
			t.Errorf("%d messages still in the source, want 0", n)
		}
		a.close()
	})
}

func TestAdversaryPanickingAttemptHookLosesNoSuccess(t *testing.T) {
	var panics someTimes
	for name, hooks := range map[string]middleware.Hooks{
		"start":   {OnStart: func(context.Context, middleware.StartInfo) { panics.next() }},
		"attempt": {OnAttempt: func(context.Context, middleware.AttemptInfo) { panics.next() }},
		"outcome": {OnOutcome: func(context.Context, middleware.OutcomeInfo) { panics.next() }},
	} {
		panics.n.Store(0)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.Config{})
				a := advOpen(t, b, spillway.Config{Hooks: hooks})
				calls := 0
				a.handle("orders", func(*message.Message) error { calls++; return nil }).run()
				advPublish(t, b, "orders", "m")
				time.Sleep(time.Minute)
				synctest.Wait()
				if calls != 1 || b.Depth("orders") != 0 || b.Depth("orders.g.dlq") != 0 {
					t.Errorf("%d calls, %d left, %d dead letters; want 1, 0, 0", calls, b.Depth("orders"), b.Depth("orders.g.dlq"))
				}
				a.close()
			})
		})
	}
}
