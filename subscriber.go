package spillway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// subscriber makes Watermill messages of deliveries, and owns their settlement.
type subscriber struct {
	sw    *Spillway
	group string

	mu     sync.Mutex
	closed bool
	open   []*subscription
}

func (s *subscriber) consumer(topic string) (adapters.Consumer, error) {
	var errs []error
	if s.group == "" {
		errs = append(errs, errors.New("the consumer group is empty: set Config.Group or use SubscriberFor"))
	}
	if topic == "" {
		errs = append(errs, errors.New("the topic is empty"))
	}
	for _, name := range []string{topic, s.group} {
		if strings.ContainsFunc(name, func(r rune) bool { return r == '{' || r == '}' || unicode.IsControl(r) }) {
			errs = append(errs, fmt.Errorf("%q has braces or control characters, which no topic or group may have", name))
		}
	}
	c := adapters.Consumer{Topic: topic, Group: s.group, Concurrency: s.sw.cfg.Concurrency, Retry: s.sw.cfg.Retry}
	return c, errors.Join(append(errs, s.sw.names.Claim(s.sw.cfg.Names, c))...)
}

// SubscribeInitialize declares the streams of the topic's consumer.
func (s *subscriber) SubscribeInitialize(topic string) error {
	c, err := s.consumer(topic)
	if err == nil {
		err = s.sw.broker.Ensure(context.Background(), c)
	}
	if err != nil {
		return fmt.Errorf("spillway: declare the streams of topic %q: %w", topic, redact(s.sw.redactor, err))
	}
	return nil
}

// Subscribe opens the main, retry and suspect streams of the topic's consumer.
func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.subscribe(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("spillway: subscribe to %q: %w", topic, redact(s.sw.redactor, err))
	}
	return sub.out, nil
}

func (s *subscriber) subscribe(ctx context.Context, topic string) (*subscription, error) {
	if !s.sw.placed.Load() {
		return nil, errors.New("nothing would handle its failures: call Install(router) first, or place Middleware yourself")
	}
	c, err := s.consumer(topic)
	if err != nil {
		return nil, err
	}
	if err := s.sw.broker.Ensure(ctx, c); err != nil {
		return nil, err
	}
	in, err := s.sw.broker.Subscribe(ctx, c)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, in, c, s.sw)
	s.mu.Lock()
	closed := s.closed || s.sw.isClosed()
	if !closed {
		s.open = append(s.open, sub)
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(adapters.ErrClosed, sub.close())
	}
	return sub, nil
}

// Close closes the subscriptions: see subscription.close. It is idempotent, and
// every call waits.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	open := s.open
	s.mu.Unlock()

	errs := make([]error, len(open))
	var wg sync.WaitGroup
	for i, sub := range open {
		wg.Go(func() { errs[i] = sub.close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// subscription turns one adapters.Subscription into a channel of messages. Each
// of its workers has one message out at a time.
type subscription struct {
	sw     *Spillway
	in     adapters.Subscription
	out    chan *message.Message
	cons   adapters.Consumer
	base   context.Context    // of the messages, which end theirs by themselves
	ctx    context.Context    // whoever subscribed; its end closes the subscription
	settle context.Context    // not ended by shutdown, but after it
	giveUp context.CancelFunc // ends settle
	leave  func()             // the gate

	closing chan struct{} // hand out nothing more
	stopped chan struct{} // the broker delivers nothing more
	forced  chan struct{} // give back what is still out
	workers sync.WaitGroup
	once    sync.Once
	done    chan struct{}
	err     error
}

func newSubscription(ctx context.Context, in adapters.Subscription, c adapters.Consumer, sw *Spillway) *subscription {
	s := &subscription{
		// With room for all that is out, nobody waits for the Router to take a message.
		sw: sw, in: in, out: make(chan *message.Message, c.Concurrency+1), cons: c, ctx: ctx, base: context.WithoutCancel(ctx), leave: sw.gate.leave,
		closing: make(chan struct{}), stopped: make(chan struct{}), forced: make(chan struct{}), done: make(chan struct{}),
	}
	s.settle, s.giveUp = context.WithCancel(s.base)
	for range c.Concurrency + 1 { // one more for the suspect stream
		s.workers.Go(s.work)
	}
	go s.run()
	return s
}

// run waits for the end of the subscription, and ends it in the order that
// loses nothing: hand out nothing more and cancel the messages' contexts; let
// what runs be settled; give back the rest; close.
func (s *subscription) run() {
	defer close(s.done)
	defer close(s.out)
	defer s.giveUp()

	workersDone := make(chan struct{})
	go func() { s.workers.Wait(); close(workersDone) }()

	select {
	case <-workersDone:
		s.sw.cfg.Logger.Error("the broker ended the subscription, its messages are not consumed any more",
			"topic", s.cons.Topic, "group", s.cons.Group)
	case <-s.ctx.Done():
	case <-s.closing:
	}
	s.stopHandingOut()
	s.keep(s.bounded(s.in.Stop))
	close(s.stopped)
	if !finishedWithin(workersDone, s.sw.cfg.CloseGrace) {
		s.sw.cfg.Logger.Warn("handlers still run at the end of CloseGrace, their messages go back to the broker",
			"topic", s.cons.Topic, "group", s.cons.Group)
		close(s.forced)
		if !finishedWithin(workersDone, settleGrace) {
			s.giveUp()
			<-workersDone
		}
	}
	s.keep(s.bounded(s.in.Close))
}

// settleGrace bounds each call to the broker while closing.
const settleGrace = 5 * time.Second

func (s *subscription) bounded(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.settle, settleGrace)
	defer cancel()
	return call(ctx)
}

func (s *subscription) keep(err error) {
	if err != nil && !errors.Is(err, adapters.ErrClosed) {
		s.err = errors.Join(s.err, fmt.Errorf("spillway: close the subscription of %q: %w", s.cons.Topic, redact(s.sw.redactor, err)))
	}
}

func finishedWithin(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// takeBack takes back what the Router has not begun to take.
func (s *subscription) takeBack() {
	for {
		select {
		case msg := <-s.out:
			msg.Nack()
		default:
			return
		}
	}
}

func (s *subscription) stopHandingOut() { s.once.Do(func() { close(s.closing) }) }

func (s *subscription) close() error {
	s.stopHandingOut()
	<-s.done
	return s.err
}

// work leaves what it has not begun to the broker, which takes it back uncounted.
func (s *subscription) work() {
	for !s.ending() {
		d, open := s.next()
		if !open {
			return
		}
		if d != nil {
			s.deliver(d)
		}
	}
}

// next waits for a delivery; there is none when the subscription is closing.
func (s *subscription) next() (d *adapters.Delivery, open bool) {
	select { // in haste there is one already, and no need to look at two channels
	case d, open = <-s.in.Deliveries():
		return d, open
	default:
	}
	select {
	case d, open = <-s.in.Deliveries():
		return d, open
	case <-s.closing:
		return nil, true
	}
}

func (s *subscription) ending() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

func (s *subscription) deliver(d *adapters.Delivery) {
	d.Broker = s.sw.broker
	s.trust(d)
	if d.Stream == adapters.StreamSuspect && s.sw.outlived.take(d.ID) {
		d.Count = 1
	}
	leave, ok := s.enter(d)
	if !ok {
		s.giveBack(d)
		return
	}
	defer leave()
	if s.ending() {
		s.giveBack(d)
		return
	}
	ctx, cancel := context.WithCancelCause(s.base)
	defer cancel(nil)
	msg := newMessage(d)
	adapters.Attach(ctx, d, msg)
	s.out <- msg
	closing, lost, forced := s.closing, d.Lost, (chan struct{})(nil)
	for {
		select {
		case <-msg.Acked():
			s.ack(d)
		case <-msg.Nacked():
			s.giveBack(d)
		case <-lost:
			cancel(adapters.ErrLeaseLost)
			lost = nil
			continue
		case <-closing:
			// The context does not end with that of the subscriber, which may end
			// earlier: handlers would give back what would be handed out again.
			cancel(nil)
			s.takeBack()
			closing, forced = nil, s.forced
			continue
		case <-forced:
			if msg.Nack() {
				s.giveBack(d)
			} else { // acknowledged at the same moment
				s.ack(d)
			}
		}
		return
	}
}

// enter waits for the message's turn among those of the process.
func (s *subscription) enter(d *adapters.Delivery) (leave func(), ok bool) {
	switch {
	case d.Alone:
		return func() {}, true // its adapter ends the turn
	case d.Stream == adapters.StreamSuspect:
		return s.sw.gate.enterAlone(s.closing)
	default:
		return s.leave, s.sw.gate.enter(s.closing)
	}
}

func (s *subscription) ack(d *adapters.Delivery) {
	s.awaitStop()
	if err := d.Settler.Ack(s.settle, d); err != nil {
		s.unsettled(d)
		s.sw.cfg.Logger.Warn("acknowledging failed, the broker will deliver the message again",
			"topic", s.cons.Topic, "group", s.cons.Group, "message_uuid", d.ID, "error", redact(s.sw.redactor, err))
	}
}

// awaitStop keeps a settlement back, while closing, until the broker delivers
// nothing more. Otherwise what goes back would come again at once, and what has
// its place instead would come only to go back; each time is counted, and makes
// suspects of healthy messages.
func (s *subscription) awaitStop() {
	if s.ending() {
		<-s.stopped
	}
}

// giveBack returns a delivery, uncounted. In the suspect stream the broker's
// count must mean crashes and nothing else, so there the message is written
// anew; but not one that somebody else has by now. That counts: a handler that
// always outlasts its lease has no other end.
func (s *subscription) giveBack(d *adapters.Delivery) {
	s.awaitStop()
	if d.Stream == adapters.StreamSuspect && !isLost(d) && s.sw.chain.Renew(s.settle, d) == nil {
		s.ack(d)
		return
	}
	err := d.Settler.Return(s.settle, d)
	if err != nil {
		s.unsettled(d)
	}
	if err != nil && !errors.Is(err, adapters.ErrClosed) {
		s.sw.cfg.Logger.Warn("returning failed, the broker will deliver the message again when it notices",
			"topic", s.cons.Topic, "group", s.cons.Group, "message_uuid", d.ID, "error", redact(s.sw.redactor, err))
	}
}

func isLost(d *adapters.Delivery) bool {
	select {
	case <-d.Lost:
		return true
	default: // also without a lease
		return false
	}
}

// unsettled notes a suspect that did not end the process, although the broker
// will count it.
func (s *subscription) unsettled(d *adapters.Delivery) {
	if d.Stream == adapters.StreamSuspect {
		s.sw.outlived.add(d.ID)
	}
}

// trust sets the state that came with a delivery, as far as it is ours: state
// on the main stream was forged or leaked, unless it is that of a dead letter,
// and state on the other streams counts only for the consumer that wrote it.
func (s *subscription) trust(d *adapters.Delivery) {
	d.State.Attempt = 1
	if d.Stream == adapters.StreamMain && d.Consumer.Retry == adapters.RetryInPlace && s.sw.broker.Capabilities().CountedInPlace {
		d.State.Attempt = max(d.Count, 1) // it stays where it is, and so does its state
	}
	if !envelope.HasState(d.Headers) {
		return
	}
	st := envelope.Parse(d.Headers, time.Now())
	switch {
	case !st.BelongsTo(d.Consumer.Topic, d.Consumer.Group):
	case d.Stream != adapters.StreamMain:
		d.State = st
	case !st.DeadLetteredAt.IsZero() && st.DeadLetterID != "":
		d.State = broughtBack(st, d.State.Attempt)
	}
}

// broughtBack is the state of a dead letter that somebody moved to its topic
// with the broker's own means: SQS's console, a shovel. It begins anew, for its
// attempts are used up, and keeps its lineage.
func broughtBack(st envelope.State, attempt int) envelope.State {
	return envelope.State{
		Attempt: attempt, Source: st.Source, ConsumerGroup: st.ConsumerGroup,
		ReplayOf: st.DeadLetterID, ReplayCount: min(st.ReplayCount+1, envelope.MaxCount),
	}
}

// newMessage makes the handler's view of a delivery, which looks the same on
// every attempt. The payload is copied, because handlers may write into it and
// hand-offs are made from the delivery.
func newMessage(d *adapters.Delivery) *message.Message {
	msg := message.NewMessage(d.ID, bytes.Clone(d.Payload))
	for _, h := range d.Headers {
		if !envelope.IsOwn(h.Key) {
			msg.Metadata[h.Key] = string(h.Value)
		}
	}
	return msg
}
