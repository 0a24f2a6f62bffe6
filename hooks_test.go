package spillway_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// panics a hundred times, and not for ever: what it provokes is a loop without
// pause, in which virtual time stands still.
type panics struct{ n atomic.Int32 }

func (p *panics) next() {
	if p.n.Add(1) < 100 {
		panic("metrics registry is nil")
	}
}

// A hook that panics once a hand-off is confirmed must not send the source back.
func TestPanickingHookDuplicatesNoHandoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p panics
		s := installed(t, spillway.Config{Hooks: middleware.Hooks{
			OnOutcome: func(context.Context, *middleware.OutcomeInfo) { p.next() },
		}})
		s.consume(func(*message.Message) error { return failure.Permanent(errors.New("bad")) })
		s.start()
		s.publish("body")
		after(time.Minute)
		wantDepths(t, s.broker, map[string]int{dlqOf: 1})
		wantContains(t, s.logs.String(), "hook panicked", "hook=OnOutcome")
		s.stop()
	})
}

func TestPanickingHookLosesNoSuccess(t *testing.T) {
	for name, hooks := range map[string]func(*panics) middleware.Hooks{
		"OnOpen": func(p *panics) middleware.Hooks {
			return middleware.Hooks{OnOpen: func(context.Context, *middleware.OpenInfo) { p.next() }}
		},
		"OnStart": func(p *panics) middleware.Hooks {
			return middleware.Hooks{OnStart: func(context.Context, *middleware.StartInfo) { p.next() }}
		},
		"OnAttempt": func(p *panics) middleware.Hooks {
			return middleware.Hooks{OnAttempt: func(context.Context, *middleware.AttemptInfo) { p.next() }}
		},
		"OnOutcome": func(p *panics) middleware.Hooks {
			return middleware.Hooks{OnOutcome: func(context.Context, *middleware.OutcomeInfo) { p.next() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var p panics
				s := installed(t, spillway.Config{Hooks: hooks(&p)})
				calls := 0
				s.consume(func(*message.Message) error { calls++; return nil })
				s.start()
				s.publish("body")
				after(time.Minute)
				if calls != 1 || p.n.Load() != 1 {
					t.Errorf("%d calls of the handler, %d of the hook, want 1 each", calls, p.n.Load())
				}
				wantDepths(t, s.broker, nil)
				s.stop()
			})
		})
	}
}
