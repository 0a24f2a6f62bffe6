package storm

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Brokers that break a promise, each in its own way, on some hand-offs; but
// "refuses" is allowed to.
func init() {
	for name, handoff := range map[string]handoffFunc{
		"loses": func(context.Context, *saboteur, adapters.Broker, adapters.Handoff) error { return nil },
		"hurries": func(ctx context.Context, _ *saboteur, b adapters.Broker, h adapters.Handoff) error {
			for i := range h.State {
				if h.State[i].Key == "spillway-due-at" {
					h.State = append(h.State[:i:i], h.State[i+1:]...)
					break
				}
			}
			h.Due = time.Time{}
			return b.Handoff(ctx, h)
		},
		"tells everyone": func(_ context.Context, s *saboteur, _ adapters.Broker, h adapters.Handoff) error {
			r := h.Record
			for _, p := range h.State {
				r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], adapters.Header{Key: p.Key, Value: []byte(p.Value)})
			}
			return s.broker.Publish(h.Consumer.Topic, r)
		},
		"refuses": func(context.Context, *saboteur, adapters.Broker, adapters.Handoff) error { return adapters.ErrRefused },
		"garbles": func(ctx context.Context, _ *saboteur, b adapters.Broker, h adapters.Handoff) error {
			h.Record.Payload = bytes.ToUpper(append([]byte("x"), h.Record.Payload...))
			return b.Handoff(ctx, h)
		},
		"doubles": func(ctx context.Context, _ *saboteur, b adapters.Broker, h adapters.Handoff) error {
			if err := b.Handoff(ctx, h); err != nil {
				return err
			}
			return b.Handoff(ctx, h)
		},
	} {
		targets[name] = func() Target { return &saboteur{memoryTarget: newMemoryTarget(), handoff: handoff} }
	}
}

type handoffFunc func(context.Context, *saboteur, adapters.Broker, adapters.Handoff) error

type saboteur struct {
	*memoryTarget
	handoff handoffFunc
	calls   atomic.Int64
}

func (s *saboteur) Opener() adapters.Opener {
	o := s.memoryTarget.Opener()
	return adapters.Opener{Schemes: o.Schemes, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
		b, err := o.Open(ctx, p)
		return &sabotaged{b, s}, err
	}}
}

type sabotaged struct {
	adapters.Broker
	s *saboteur
}

func (b *sabotaged) Handoff(ctx context.Context, h adapters.Handoff) error {
	if b.s.calls.Add(1)%3 != 1 {
		return b.Broker.Handoff(ctx, h)
	}
	return b.s.handoff(ctx, b.s, b.Broker, h)
}
