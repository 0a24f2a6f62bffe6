package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
)

// op is a call to the broker that a fault can hit.
type op string

const (
	opHandoff op = "hand-off"
	opAck     op = "ack"
	opReturn  op = "return"
	opPublish op = "publish" // of an output
)

// fault is a line of a subtest's script. Empty fields match everything.
type fault struct {
	on     op
	stream adapters.Stream // written to, or delivered from
	id     string
	skip   int
	times  int // zero means once
	do     effect
}

func (f fault) String() string {
	return fmt.Sprintf("%s %s %q, skip %d, %d times", f.on, f.stream, f.id, f.skip, f.times)
}

// effect is what a fault does with a call.
type effect func(c *brokerCall) error

// brokerCall is a call on its way to the broker.
type brokerCall struct {
	ctx     context.Context
	process *process
	handoff *adapters.Handoff // of opHandoff; may be changed
	real    func() error
}

var errInjected = errors.New("injected by adaptertest")

// failWith makes a call fail without having had an effect.
func failWith(err error) effect { return func(*brokerCall) error { return err } }

// unknownResult carries a call out and says that it failed.
func unknownResult() effect {
	return func(c *brokerCall) error { return errors.Join(errInjected, c.real()) }
}

// lost says that a call succeeded which never happened.
func lost() effect { return func(*brokerCall) error { return nil } }

// killBefore and killAfter end the process at a call.
func killBefore() effect {
	return func(c *brokerCall) error { c.process.kill(); return adapters.ErrClosed }
}

func killAfter() effect {
	return func(c *brokerCall) error {
		if err := c.real(); err != nil {
			return err
		}
		c.process.kill()
		return adapters.ErrClosed
	}
}

// heldUntil keeps a call from the broker until release is closed.
func heldUntil(release <-chan struct{}) effect {
	return func(c *brokerCall) error {
		select {
		case <-release:
			return c.real()
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// seam stands between the facade of one process and the adapter.
type seam struct {
	adapters.Broker
	process *process
	world   *world

	mu   sync.Mutex
	dead chan struct{}
	subs []*seamSubscription
	open map[*adapters.Delivery]bool // unsettled
	done []settled                   // acknowledged, while Harness.AckWithin matters
}

type settled struct {
	id string
	at time.Time
}

func newSeam(inner adapters.Broker, p *process) *seam {
	return &seam{Broker: inner, process: p, world: p.world, dead: make(chan struct{}), open: map[*adapters.Delivery]bool{}}
}

func (s *seam) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// die ends everything as a SIGKILL would: from now on nothing reaches the
// broker, which gets back what is unsettled. It returns the ids of that, and of
// what the broker may not know to be settled.
func (s *seam) die() []string {
	s.mu.Lock()
	close(s.dead)
	subs := s.subs
	var ids []string
	for d := range s.open {
		ids = append(ids, d.ID)
	}
	for _, d := range s.done {
		if time.Since(d.at) < s.world.h.AckWithin {
			ids = append(ids, d.id)
		}
	}
	s.mu.Unlock()
	if kill := s.world.target.Kill; kill != nil {
		kill(s.Broker)
	}
	for _, sub := range subs {
		_ = sub.inner.Close(context.Background()) // what it says does not reach a dead process
	}
	return ids
}

func (s *seam) Ensure(ctx context.Context, c adapters.Consumer) error {
	if s.isDead() {
		return adapters.ErrClosed
	}
	s.world.log(event{kind: ensured, process: s.process, id: c.Topic + "/" + c.Group})
	return s.Broker.Ensure(ctx, c)
}

func (s *seam) Handoff(ctx context.Context, h adapters.Handoff) error {
	c := &brokerCall{ctx: ctx, process: s.process, handoff: &h, real: func() error { return s.Broker.Handoff(ctx, h) }}
	err := s.call(opHandoff, h.Stream, h.Record.ID, c)
	s.world.log(event{kind: handedOff, process: s.process, id: h.Record.ID, stream: h.Stream, handoff: h, err: err})
	return err
}

// call carries out c, or what the script says.
func (s *seam) call(on op, stream adapters.Stream, id string, c *brokerCall) error {
	if s.isDead() {
		return adapters.ErrClosed
	}
	if do := s.world.match(on, stream, id); do != nil {
		return do(c)
	}
	return c.real()
}

func (s *seam) Publisher() message.Publisher { return seamPublisher{s, s.Broker.Publisher()} }

type seamPublisher struct {
	seam  *seam
	inner message.Publisher
}

func (p seamPublisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		c := &brokerCall{ctx: msg.Context(), process: p.seam.process, real: func() error { return p.inner.Publish(topic, msg) }}
		err := p.seam.call(opPublish, "", msg.UUID, c)
		p.seam.world.log(event{kind: published, process: p.seam.process, id: msg.UUID, err: err})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p seamPublisher) Close() error { return p.inner.Close() }

func (s *seam) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	if s.isDead() {
		return nil, adapters.ErrClosed
	}
	s.world.log(event{kind: subscribed, process: s.process, id: c.Topic + "/" + c.Group})
	inner, err := s.Broker.Subscribe(ctx, c)
	if err != nil {
		return nil, err
	}
	sub := &seamSubscription{seam: s, inner: inner, out: make(chan *adapters.Delivery), over: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	s.subs = append(s.subs, sub)
	s.mu.Unlock()
	go sub.pump()
	return sub, nil
}

// seamSubscription passes deliveries on with a settler of its own.
type seamSubscription struct {
	seam  *seam
	inner adapters.Subscription
	out   chan *adapters.Delivery
	once  sync.Once
	over  chan struct{}
	done  chan struct{}
}

func (s *seamSubscription) Deliveries() <-chan *adapters.Delivery { return s.out }

// pump ends with the inner subscription, or with the process.
func (s *seamSubscription) pump() {
	defer close(s.done)
	defer close(s.out)
	for d := range s.inner.Deliveries() {
		real := d.Settler
		own := *d
		own.Settler = &seamSettler{seam: s.seam, real: real, from: d, handed: &own}
		s.seam.mu.Lock()
		s.seam.open[&own] = true
		s.seam.mu.Unlock()
		select {
		case s.out <- &own:
			continue
		case <-s.seam.dead:
			return
		case <-s.over:
		}
		if err := own.Settler.Return(context.Background(), &own); err != nil && !errors.Is(err, adapters.ErrClosed) {
			s.seam.world.Errorf("returning a delivery that was on its way: %v", err)
		}
	}
}

func (s *seamSubscription) Stop(ctx context.Context) error {
	if s.seam.isDead() {
		<-s.done
		return nil
	}
	err := s.inner.Stop(ctx)
	// Not sooner: what goes back while the broker delivers comes again at once.
	s.once.Do(func() { close(s.over) })
	select {
	case <-s.done:
	case <-ctx.Done():
		s.seam.world.Errorf("the deliveries of a subscription were not closed by its Stop")
	}
	return err
}

func (s *seamSubscription) Close(ctx context.Context) error {
	if s.seam.isDead() {
		return nil
	}
	err := s.inner.Close(ctx)
	s.once.Do(func() { close(s.over) })
	<-s.done
	return err
}

func (s *seam) Close(ctx context.Context) error {
	if s.isDead() && s.world.target.Kill != nil {
		return nil
	}
	return s.Broker.Close(ctx)
}

// seamSettler settles one delivery.
type seamSettler struct {
	seam   *seam
	real   adapters.Settler
	from   *adapters.Delivery
	handed *adapters.Delivery
}

func (s *seamSettler) Ack(ctx context.Context, _ *adapters.Delivery) error {
	return s.settle(opAck, acked, ctx, func() error { return s.real.Ack(ctx, s.from) })
}

func (s *seamSettler) Return(ctx context.Context, _ *adapters.Delivery) error {
	s.from.Postpone(s.handed.Postponed())
	return s.settle(opReturn, returned, ctx, func() error { return s.real.Return(ctx, s.from) })
}

func (s *seamSettler) settle(on op, kind kind, ctx context.Context, real func() error) error {
	if s.seam.isDead() {
		return adapters.ErrClosed
	}
	settle := func() error {
		err := real()
		if err == nil {
			s.seam.mu.Lock()
			delete(s.seam.open, s.handed)
			if on == opAck && s.seam.world.h.AckWithin > 0 {
				s.seam.done = append(s.seam.done, settled{s.handed.ID, time.Now()})
			}
			s.seam.mu.Unlock()
		}
		return err
	}
	err := s.seam.call(on, s.handed.Stream, s.handed.ID, &brokerCall{ctx: ctx, process: s.seam.process, real: settle})
	s.seam.world.log(event{kind: kind, process: s.seam.process, id: s.handed.ID, stream: s.handed.Stream, err: err})
	return err
}
