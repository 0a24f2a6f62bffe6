package storm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// recorder stands between Spillway and an adapter and writes down every step
// that crosses.
type recorder struct {
	adapters.Broker
	ledger     *Ledger
	deliveries atomic.Uint64
}

// recorded wraps an opener; opened is told the broker.
func recorded(o adapters.Opener, l *Ledger, opened func(adapters.Broker)) adapters.Opener {
	return adapters.Opener{Schemes: o.Schemes, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
		b, err := o.Open(ctx, p)
		if err != nil {
			return nil, err
		}
		opened(b)
		return &recorder{Broker: b, ledger: l}, nil
	}}
}

func (r *recorder) Handoff(ctx context.Context, h adapters.Handoff) error {
	// What is written counts, not what was meant.
	var written []envelope.Header
	for _, p := range h.State {
		written = append(written, envelope.Header{Key: p.Key, Value: []byte(p.Value)})
	}
	st := envelope.Parse(written, time.Now())
	e := Event{Kind: HandingOff, ID: idOf(h.Record), Group: h.Consumer.Group, Stream: h.Stream, Attempt: st.Attempt, Checks: st.ParkChecks}
	if !h.Due.IsZero() {
		e.Due = h.Due.UnixNano()
	}
	r.ledger.Write(e)
	err := r.Broker.Handoff(ctx, h)
	e.Kind = HandedOff
	if err != nil {
		e.Kind, e.Note = NotHandedOff, err.Error()
	}
	r.ledger.Write(e)
	return err
}

func (r *recorder) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	inner, err := r.Broker.Subscribe(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &recordedSubscription{
		Subscription: inner, out: make(chan *adapters.Delivery), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		defer close(s.out)
		for d := range inner.Deliveries() {
			r.delivered(d)
			select {
			case s.out <- d:
			case <-s.closed: // and nobody reads any more: the broker has it back
			}
		}
	}()
	return s, nil
}

// recordedSubscription hands on what was written down.
type recordedSubscription struct {
	adapters.Subscription
	out    chan *adapters.Delivery
	once   sync.Once
	closed chan struct{}
	ended  chan struct{} // nothing is written down any more
}

func (s *recordedSubscription) Close(ctx context.Context) error {
	err := s.Subscription.Close(ctx)
	s.once.Do(func() { close(s.closed) })
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
	return err
}

func (s *recordedSubscription) Deliveries() <-chan *adapters.Delivery { return s.out }

func (r *recorder) delivered(d *adapters.Delivery) {
	step := &step{Settler: d.Settler, ledger: r.ledger, id: idOf(d.Record), group: d.Consumer.Group, number: r.deliveries.Add(1)}
	d.Settler = step
	e := step.event(Delivered)
	e.Stream, e.Count, e.Digest = d.Stream, d.Count, Digest(d.Record)
	if len(envelope.StripHeaders(d.Headers)) < len(d.Headers) {
		st := envelope.Parse(d.Headers, time.Now())
		e.Owner = st.Source.Topic + "/" + st.ConsumerGroup
		e.Attempt, e.Checks = st.Attempt, st.ParkChecks
		if !st.DueAt.IsZero() {
			e.Due = st.DueAt.UnixNano()
		}
	}
	r.ledger.Write(e)
}

// step is one delivery; its settlement is written down.
type step struct {
	adapters.Settler
	ledger    *Ledger
	id, group string
	number    uint64
}

func (s *step) event(k Kind) Event { return Event{Kind: k, ID: s.id, Group: s.group, Number: s.number} }

func (s *step) Ack(ctx context.Context, d *adapters.Delivery) error {
	err := s.Settler.Ack(ctx, d)
	e := s.event(Acknowledged)
	if err != nil {
		e.Kind, e.Note = NotAcked, err.Error()
	}
	s.ledger.Write(e)
	return err
}

func (s *step) Return(ctx context.Context, d *adapters.Delivery) error {
	err := s.Settler.Return(ctx, d)
	e := s.event(Returned)
	if err != nil {
		e.Note = err.Error()
	}
	s.ledger.Write(e)
	return err
}
