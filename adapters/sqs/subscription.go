package sqs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
)

// subscription implements adapters.Subscription. It starts polls as slots get
// free, and hands out what they bring.
type subscription struct {
	b     *broker
	c     adapters.Consumer
	out   chan *adapters.Delivery
	slots chan struct{} // bounds the unsettled of main and retry together
	wake  chan struct{} // something changed that run may act on

	stop     chan struct{}
	stopOnce sync.Once
	stopped  chan struct{} // run has returned, out is closed

	mu        sync.Mutex
	sources   [2]*source // retry, main
	open      int        // received from them and not settled, or about to be
	turn      int
	unsettled map[*settler]struct{}
}

// source is a queue that is polled for deliveries.
type source struct {
	stream adapters.Stream
	name   string // of the stream
	polls  int    // that run
	want   int    // how many may: it doubles while they bring something
	busy   bool   // the last poll brought something
}

func (b *broker) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	s, err := b.subscribe(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("sqs: subscribe group %q to topic %q: %w", c.Group, c.Topic, err)
	}
	return s, nil
}

func (b *broker) subscribe(ctx context.Context, c adapters.Consumer) (*subscription, error) {
	if c.Concurrency < 1 {
		return nil, fmt.Errorf("concurrency must be at least 1, is %d", c.Concurrency)
	}
	if err := b.queues.claim(c); err != nil {
		return nil, err
	}
	s := &subscription{
		b: b, c: c, out: make(chan *adapters.Delivery), slots: make(chan struct{}, c.Concurrency),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
		unsettled: map[*settler]struct{}{},
		sources: [2]*source{
			{stream: adapters.StreamRetry, name: b.names.Of(adapters.StreamRetry, c), want: 1},
			{stream: adapters.StreamMain, name: c.Topic, want: 1},
		},
	}
	for _, src := range s.sources {
		if _, err := s.queue(ctx, src.name); err != nil {
			return nil, err
		}
	}
	go s.run()
	return s, nil
}

// queue returns one of the consumer's queues.
func (s *subscription) queue(ctx context.Context, stream string) (*queue, error) {
	name := s.b.queues.naming.queueOf(stream)
	if q := s.b.queues.remembered(name); q != nil {
		return q, nil
	}
	if err := s.b.queues.ensure(ctx, s.c); err != nil {
		return nil, err
	}
	return s.b.queues.remembered(name), nil
}

func (s *subscription) Deliveries() <-chan *adapters.Delivery { return s.out }

func (s *subscription) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { close(s.stop) })
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sqs: stop reading topic %q: %w", s.c.Topic, ctx.Err())
	}
}

// Close gives back what is unsettled.
func (s *subscription) Close(ctx context.Context) error {
	err := s.Stop(ctx)
	s.mu.Lock()
	left := s.unsettled
	s.unsettled = map[*settler]struct{}{}
	s.mu.Unlock()
	errs := make(chan error, len(left))
	for x := range left {
		go func() { errs <- x.takeBack(ctx) }()
	}
	for range left {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (s *subscription) isStopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// run reads until Stop, and until what was on its way is back with the broker.
func (s *subscription) run() {
	defer close(s.stopped)
	defer close(s.out)
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(s.moveParked)
	working.Go(s.handSuspects)
	for !s.isStopped() {
		for src := s.next(); src != nil; src = s.next() {
			working.Go(func() { s.poll(src) })
		}
		select {
		case <-s.wake:
		case <-s.stop:
		}
	}
}

func (s *subscription) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// retryShare is how many of the last free slots go to a retry queue that has
// something, before one goes to main: one in retryShare. What is due is late
// already, and the backlog of main is not.
const retryShare = 4

// next returns the source to start a poll of, if any. A free slot allows one
// poll of each source, although both may bring something: neither could be polled
// for long otherwise. Beyond that there are no more polls than free slots, not
// counting one of a source that had nothing: it would keep a slot empty for nothing.
func (s *subscription) next() *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.c.Concurrency - s.open
	polls := 0
	for _, src := range s.sources {
		polls += src.polls
		if src.polls > 0 && !src.busy {
			polls--
		}
	}
	for _, src := range s.sources {
		switch {
		case src.polls >= src.want:
			continue
		case polls < free:
		case free < 1 || src.polls > 0:
			continue
		case src.stream == adapters.StreamMain && s.sources[0].busy:
			if s.turn++; s.turn%retryShare != 0 {
				continue
			}
		}
		src.polls++
		return src
	}
	return nil
}

// poll makes one receive, and hands out what it brings.
func (s *subscription) poll(src *source) {
	held, err := s.receive(src.name, s.b.cfg.BatchSize, s.b.cfg.PollWait)
	s.mu.Lock()
	s.open += len(held)
	src.busy = len(held) > 0
	if src.busy {
		src.want = min(2*src.want, s.c.Concurrency)
	} else {
		src.want = max(src.want/2, 1)
	}
	if err == nil {
		src.polls--
	}
	s.mu.Unlock()
	s.changed()
	if err != nil {
		s.pause(src.name, err)
		s.mu.Lock()
		src.polls--
		s.mu.Unlock()
		s.changed()
		return
	}
	for _, h := range held {
		s.handOut(src, h)
	}
}

// held is a message with its lease.
type held struct {
	m     *native
	lease *lease
}

// receive makes one long poll. When the subscription stops meanwhile it brings
// nothing: the request goes on, because SQS would lose sight of what it is about
// to send, and what it brings is released.
func (s *subscription) receive(stream string, most int, wait time.Duration) ([]held, error) {
	type result struct {
		held []held
		err  error
	}
	done := make(chan result)
	s.b.polls.Go(func() {
		var r result
		r.held, r.err = s.receiveNow(stream, most, wait)
		select {
		case done <- r:
		case <-s.stop:
			for _, h := range r.held {
				s.release(h, stream)
			}
		}
	})
	select {
	case r := <-done:
		return r.held, r.err
	case <-s.stop:
		return nil, nil
	}
}

func (s *subscription) receiveNow(stream string, most int, wait time.Duration) ([]held, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait+s.b.cfg.RequestTimeout)
	defer cancel()
	q, err := s.queue(ctx, stream)
	if err != nil {
		return nil, err
	}
	if q.fifo() {
		most = 1 // of a batch, several could be of one group
	}
	msgs, err := s.b.receive(ctx, q, most, wait)
	if err != nil {
		return nil, err
	}
	all := make([]held, len(msgs))
	for i, m := range msgs {
		all[i] = held{m, s.b.hold(q, aws.ToString(m.ReceiptHandle))}
	}
	return all, nil
}

// receive asks a queue for messages once.
func (b *broker) receive(ctx context.Context, q *queue, most int, wait time.Duration) ([]*native, error) {
	out, err := b.client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: int32(most), WaitTimeSeconds: seconds(wait), VisibilityTimeout: seconds(b.cfg.Visibility),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		if isGone(err) {
			b.queues.forget()
		}
		return nil, fmt.Errorf("receive from queue %q: %w", q.name, err)
	}
	msgs := make([]*native, len(out.Messages))
	for i, m := range out.Messages {
		msgs[i] = &native{m}
	}
	return msgs, nil
}

// release gives back what was not handed out.
func (s *subscription) release(h held, stream string) {
	ctx, cancel := context.WithTimeout(context.Background(), s.b.cfg.RequestTimeout)
	defer cancel()
	_ = s.giveBack(ctx, h, stream, 0) // else it comes again at the end of its visibility
}

// giveBack makes a message visible again. SQS counts that like a failure and has
// no other way, so that enough shutdowns would make a dead letter of a message
// that nobody has handled: before that, it is written anew. A suspect always is,
// so that its count means crashes, and not restarts.
func (s *subscription) giveBack(ctx context.Context, h held, stream string, after time.Duration) error {
	anew := stream == s.b.names.Of(adapters.StreamSuspect, s.c) || h.m.count() >= s.b.cfg.MaxReceiveCount/2 && !s.countMatters(stream)
	if anew && h.lease.end() {
		switch err := s.rewrite(ctx, h, stream, after); {
		case err == nil:
			return h.lease.delete(ctx) // if it fails, it comes again, beside its copy
		case !errors.Is(err, errKept):
			s.b.logger.Warn("a message that goes back could not be written anew, or is there twice", "topic", s.c.Topic, "group", s.c.Group,
				"stream", stream, "delivery_count", h.m.count(), "error", err)
		}
	}
	return h.lease.release(ctx, after)
}

// countMatters reports whether the receive count of a stream means something to
// the chain, so that it must go on: the attempts in place, and the pauses of those
// who read dead letters.
func (s *subscription) countMatters(stream string) bool {
	return stream == s.c.Topic && (s.c.Retry == adapters.RetryInPlace || s.b.names.IsDeadLetter(stream))
}

var errKept = errors.New("it stays as it is")

// rewrite writes a message to the end of its queue.
func (s *subscription) rewrite(ctx context.Context, h held, stream string, after time.Duration) error {
	r, err := recordOf(h.m, stream)
	if err != nil || h.lease.q.fifo() { // whose order would be lost
		return errKept
	}
	return s.b.send(ctx, h.lease.q, outgoingOf(again(s.c, adapters.StreamRetry, r)), after, once)
}

const (
	pauseMin = 500 * time.Millisecond
	pauseMax = 10 * time.Second
)

// pause waits after a receive that failed, unless the subscription stops.
func (s *subscription) pause(stream string, err error) {
	if s.isStopped() {
		return
	}
	d := pauseMin + rand.N(pauseMax-pauseMin)
	s.b.logger.Warn("reading from SQS is interrupted", "topic", s.c.Topic, "group", s.c.Group, "stream", stream, "delay", d, "error", err)
	s.wait(d)
}

// wait pauses, and reports false when the subscription stops.
func (s *subscription) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// handOut hands a message out as soon as there is a slot, or gives it back.
func (s *subscription) handOut(src *source, h held) {
	leave := sync.OnceFunc(s.settled)
	x := &settler{s: s, held: h, stream: src.name, leave: leave, free: func() { <-s.slots; leave() }}
	select {
	case s.slots <- struct{}{}:
		if s.deliver(src.stream, src.name, h, x) {
			return
		}
		<-s.slots
	case <-h.lease.lost:
	case <-s.stop:
	}
	s.release(h, src.name)
	leave()
}

func (s *subscription) settled() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.changed()
}

// deliver sends a delivery, and reports whether it was received.
func (s *subscription) deliver(stream adapters.Stream, name string, h held, x *settler) bool {
	if s.isStopped() {
		return false
	}
	r, undecodable := recordOf(h.m, name)
	d := &adapters.Delivery{
		Record: r, Consumer: s.c, Stream: stream, Count: h.m.count(), Undecodable: undecodable,
		Alone: stream == adapters.StreamSuspect, Lost: h.lease.lost, Settler: x,
	}
	s.mu.Lock()
	s.unsettled[x] = struct{}{}
	s.mu.Unlock()
	select {
	case s.out <- d:
		return true
	case <-h.lease.lost:
	case <-s.stop:
	}
	s.mu.Lock()
	delete(s.unsettled, x)
	s.mu.Unlock()
	return false
}

// settler settles one delivery.
type settler struct {
	s      *subscription
	held   held
	stream string // its name
	leave  func() // allows the next poll
	free   func() // its slot

	mu   sync.Mutex
	done bool
	err  error // of a settlement after Close
}

func (x *settler) Ack(ctx context.Context, d *adapters.Delivery) error {
	return x.settle("acknowledge", d, func() error {
		x.leave() // what the next poll brings will find the slot free, or wait for it
		return x.held.lease.delete(ctx)
	})
}

func (x *settler) Return(ctx context.Context, d *adapters.Delivery) error {
	return x.settle("return", d, func() error { return x.giveBack(ctx, d) })
}

func (x *settler) giveBack(ctx context.Context, d *adapters.Delivery) error {
	due := d.Postponed()
	if due.IsZero() {
		return x.s.giveBack(ctx, x.held, x.stream, x.backoff())
	}
	// What SQS counts of this is an attempt, and the place is to be kept.
	if !x.held.lease.end() {
		return nil // it is back already
	}
	wait := time.Until(due)
	longest := x.held.lease.longest(wait)
	err := x.held.lease.hide(ctx, longest, x.s.b.cfg.RequestTimeout)
	if refused := isLost(err); refused || longest < wait-time.Second {
		x.s.b.logger.Warn("a message comes again before it is due, and that is an attempt: SQS hides it for 12 hours from its receive at most, handling included",
			"topic", x.s.c.Topic, "group", x.s.c.Group, "message_uuid", d.ID, "delivery_count", d.Count, "delay", longest, "wanted", wait, "error", err)
		if refused {
			return nil
		}
	}
	return err
}

const (
	returnMin = time.Second
	returnMax = 5 * time.Minute
)

// backoff keeps a message that is returned again and again from going round as
// fast as SQS can. What a shutdown returns is somebody else's at once.
func (x *settler) backoff() time.Duration {
	if x.s.isStopped() {
		return 0
	}
	return min(returnMin<<min(x.held.m.count()-1, 30), returnMax)
}

func (x *settler) settle(what string, d *adapters.Delivery, call func() error) error {
	x.mu.Lock()
	done, err := x.done, x.err
	x.done = true
	x.mu.Unlock()
	if !done {
		err = call()
		x.s.mu.Lock()
		delete(x.s.unsettled, x)
		x.s.mu.Unlock()
		x.free()
	}
	if err != nil {
		return fmt.Errorf("sqs: %s message %q of topic %q, received %d times: %w", what, d.ID, x.s.c.Topic, x.held.m.count(), err)
	}
	return nil
}

// takeBack returns a delivery whose subscription is closed.
func (x *settler) takeBack(ctx context.Context) error {
	x.mu.Lock()
	done := x.done
	x.done, x.err = true, fmt.Errorf("%w: its subscription is, and SQS delivers it again", adapters.ErrClosed)
	x.mu.Unlock()
	if done {
		return nil
	}
	err := x.s.giveBack(ctx, x.held, x.stream, 0)
	x.free()
	if err != nil {
		return fmt.Errorf("sqs: give back a message of topic %q: %w", x.s.c.Topic, err)
	}
	return nil
}
