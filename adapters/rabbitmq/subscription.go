package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// subscription implements adapters.Subscription as a succession of sessions,
// each one channel long.
type subscription struct {
	b     *broker
	c     adapters.Consumer
	out   chan *adapters.Delivery
	slots chan struct{} // bounds the unsettled of main and retry together

	stop     chan struct{}
	stopOnce sync.Once
	stopped  chan struct{} // run has returned, out is closed

	mu   sync.Mutex
	open map[*session]struct{} // whose channels still have something to settle
}

func (b *broker) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	s, err := b.subscribe(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: subscribe group %q to topic %q: %w", c.Group, c.Topic, err)
	}
	return s, nil
}

func (b *broker) subscribe(ctx context.Context, c adapters.Consumer) (*subscription, error) {
	if c.Concurrency < 1 || c.Concurrency > math.MaxUint16 {
		return nil, fmt.Errorf("concurrency must be between 1 and %d, is %d", math.MaxUint16, c.Concurrency)
	}
	if err := b.topology.claim(c); err != nil {
		return nil, err
	}
	s := &subscription{
		b: b, c: c, out: make(chan *adapters.Delivery), slots: make(chan struct{}, c.Concurrency),
		stop: make(chan struct{}), stopped: make(chan struct{}), open: map[*session]struct{}{},
	}
	first, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	go s.run(first)
	return s, nil
}

func (s *subscription) Deliveries() <-chan *adapters.Delivery { return s.out }

func (s *subscription) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() { close(s.stop) })
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("rabbitmq: stop reading topic %q: %w", s.c.Topic, ctx.Err())
	}
}

func (s *subscription) Close(ctx context.Context) error {
	err := s.Stop(ctx)
	s.mu.Lock()
	left := s.open
	s.open = map[*session]struct{}{}
	s.mu.Unlock()
	for sess := range left {
		// The broker gives back what a closed channel had not settled.
		if closeErr := bounded(ctx, sess.ch.Close); !errors.Is(closeErr, amqp.ErrClosed) {
			err = errors.Join(err, closeErr)
		}
	}
	return err
}

// run reads until Stop, with a new session whenever one breaks.
func (s *subscription) run(sess *session) {
	defer close(s.stopped)
	defer close(s.out)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		sess.run()
		pause := reconnectMin
		for {
			if !s.wait(pause) {
				return
			}
			var err error
			if sess, err = s.begin(ctx); err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			pause = min(2*pause, reconnectMax)
			s.b.logger.Warn("reading from RabbitMQ is interrupted", "topic", s.c.Topic, "group", s.c.Group, "delay", pause, "error", err)
		}
	}
}

const (
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 10 * time.Second
)

// wait pauses for about d, and reports false when the subscription stops.
func (s *subscription) wait(d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// session reads through one channel. A delivery can be settled only through the
// channel that it came from, so the channel outlives the session until all is.
type session struct {
	s      *subscription
	ch     *amqp.Channel
	calls  chan struct{}    // one slot
	closed chan *amqp.Error // of the channel
	ended  chan struct{}    // a consumer has no deliveries any more
	once   sync.Once        // closes ended
	gone   chan struct{}    // nothing is handed out any more

	main, retry <-chan amqp.Delivery
	tags        []string // of main and retry

	mu        sync.Mutex
	unsettled int
	retired   bool
}

// begin declares the topology anew and opens the consumers of main and retry.
func (s *subscription) begin(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	if err := s.b.topology.ensure(ctx, s.c); err != nil {
		return nil, err
	}
	conn, err := s.b.consume.get(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := conn.channel(ctx)
	if err != nil {
		return nil, err
	}
	sess := &session{
		s: s, ch: ch, calls: make(chan struct{}, 1), closed: ch.NotifyClose(make(chan *amqp.Error, 1)),
		ended: make(chan struct{}), gone: make(chan struct{}),
	}
	if err := bounded(ctx, sess.consume); err != nil {
		go ch.Close()
		return nil, err
	}
	s.mu.Lock()
	s.open[sess] = struct{}{}
	s.mu.Unlock()
	return sess, nil
}

const beginTimeout = 30 * time.Second

// prefetch is how many messages each consumer may hold: those in handlers, and
// for every slot but one the next, so that no slot waits for the broker when it
// gets free. With one slot there is none ahead: what is returned must come again
// before what lies behind it.
func (s *subscription) prefetch() int { return min(2*s.c.Concurrency-1, math.MaxUint16) }

// consume opens two consumers. Of what they hold only those with a slot are
// handed out.
func (sess *session) consume() error {
	s := sess.s
	if err := sess.ch.Qos(s.prefetch(), 0, false); err != nil {
		return err
	}
	for _, c := range []struct {
		queue string
		into  *<-chan amqp.Delivery
	}{
		{s.mainQueue(), &sess.main},
		{s.b.names.Of(adapters.StreamRetry, s.c), &sess.retry},
	} {
		tag := consumerTag()
		in, err := sess.ch.Consume(c.queue, tag, false, false, false, false, nil)
		if err != nil {
			return topologyError("queue", c.queue, s.b.cfg.VerifyOnly, err)
		}
		*c.into = in
		sess.tags = append(sess.tags, tag)
	}
	return nil
}

func consumerTag() string { return "spillway-" + watermill.NewShortUUID() }

func (s *subscription) mainQueue() string {
	return s.b.cfg.place(s.b.names, s.c.Topic, s.c.Group).queue
}

// run forwards deliveries until the subscription stops or the session breaks,
// and until what was on its way is back with the broker.
func (sess *session) run() {
	s := sess.s
	var forwarders sync.WaitGroup
	forwarders.Go(func() { sess.forward(sess.main, adapters.StreamMain, s.c.Topic, s.slots) })
	forwarders.Go(func() {
		sess.forward(sess.retry, adapters.StreamRetry, s.b.names.Of(adapters.StreamRetry, s.c), s.slots)
	})
	forwarders.Go(sess.forwardSuspects)

	select {
	case <-s.stop:
	case <-sess.ended:
	case <-sess.closed:
	}
	for _, tag := range sess.tags {
		sess.cancel(tag)
	}
	close(sess.gone)
	forwarders.Wait()
	sess.retire()
}

// call runs one request at a time: the client library mixes up the answers to
// concurrent ones on a channel.
func (sess *session) call(request func() error) error {
	sess.calls <- struct{}{}
	defer func() { <-sess.calls }()
	return request()
}

// cancel ends a consumer, and its channel of deliveries with it.
func (sess *session) cancel(tag string) {
	if sess.call(func() error { return sess.ch.Cancel(tag, false) }) != nil {
		_ = sess.ch.Close() // which ends all its consumers
	}
}

// end lets run know that a consumer has no deliveries any more.
func (sess *session) end() { sess.once.Do(func() { close(sess.ended) }) }

// forward hands out what arrives, as slots allow. It ends when the consumer is
// cancelled, by us or by the broker, or its channel is closed. What was not
// handed out goes back only then: to a consumer that still reads it would come
// again at once, and be counted each time.
func (sess *session) forward(in <-chan amqp.Delivery, stream adapters.Stream, name string, slots chan struct{}) {
	defer sess.end()
	var held []amqp.Delivery
	for native := range in {
		if len(held) > 0 || !sess.handOut(native, stream, name, slots, nil) {
			held = append(held, native)
		}
	}
	for _, native := range held {
		sess.giveBack(native, stream, name)
	}
}

// giveBack returns what was not handed out.
func (sess *session) giveBack(native amqp.Delivery, stream adapters.Stream, name string) {
	if stream == adapters.StreamSuspect && sess.renew(native, name) == nil {
		_ = native.Ack(false) // on a closed channel it comes again, beside its copy
		return
	}
	// The error of a closed channel says that it is back already.
	_ = native.Nack(false, true)
}

// renew writes a suspect that nobody has handled anew, so that the broker's
// count goes on meaning crashes, and not restarts.
func (sess *session) renew(native amqp.Delivery, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), sess.s.b.cfg.PublishTimeout)
	defer cancel()
	r := recordOf(&native, name)
	h := adapters.Handoff{Consumer: sess.s.c, Stream: adapters.StreamSuspect, Record: r}
	for _, header := range r.Headers {
		if envelope.IsOwn(header.Key) {
			h.State = append(h.State, envelope.Pair{Key: header.Key, Value: string(header.Value)})
		}
	}
	return sess.s.b.Handoff(ctx, h)
}

// handOut hands a delivery out when there is a slot, and reports whether it did.
// A suspect is alone until end is called, which its settler does.
func (sess *session) handOut(native amqp.Delivery, stream adapters.Stream, name string, slots chan struct{}, end func()) bool {
	s := sess.s
	select {
	case <-s.stop:
		return false
	case <-sess.gone:
		return false
	case slots <- struct{}{}:
	}
	settler := &settler{sess: sess, tag: native.DeliveryTag, slots: slots, end: end}
	d := &adapters.Delivery{
		Record: recordOf(&native, name), Consumer: s.c, Stream: stream,
		Count: countOf(&native), Alone: end != nil, Settler: settler,
	}
	sess.count(+1)
	select {
	case s.out <- d:
		return true
	case <-s.stop:
	case <-sess.gone:
	}
	<-slots
	sess.count(-1)
	return false
}

// suspectPoll is how often the suspect queue is looked at.
const suspectPoll = 500 * time.Millisecond

// forwardSuspects takes messages from the suspect queue, one at a time and in
// one subscription of the process at a time. It takes one only when it is alone
// in the process's handlers: a consumer would have the broker count a crash
// that came while the message was on its way, or waited.
func (sess *session) forwardSuspects() {
	s := sess.s
	token := s.b.tokenOf(s.c)
	select {
	case token <- struct{}{}:
		defer func() { <-token }()
	case <-sess.gone:
		return
	}
	// Looking at a queue that is gone costs the channel: not the one on which
	// messages are yet to be settled.
	look, err := sess.channel()
	if err != nil {
		sess.end()
		return
	}
	defer func() { go look.Close() }()
	poll := time.NewTicker(suspectPoll)
	defer poll.Stop()
	for {
		if err := sess.takeSuspect(look); err != nil {
			sess.end()
			return
		}
		select {
		case <-poll.C:
		case <-sess.gone:
			return
		}
	}
}

// channel opens another channel, unless the session ends first.
func (sess *session) channel() (*amqp.Channel, error) {
	ctx, cancel := context.WithTimeout(context.Background(), beginTimeout)
	defer cancel()
	go func() {
		select {
		case <-sess.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := sess.s.b.consume.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.channel(ctx)
}

// takeSuspect hands out a message of the suspect queue, if there is one, and
// waits until it is settled.
func (sess *session) takeSuspect(look *amqp.Channel) error {
	s := sess.s
	queue := s.b.names.Of(adapters.StreamSuspect, s.c)
	state, err := look.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil || state.Messages == 0 {
		return err
	}
	end, ok := s.b.alone(sess.gone)
	if !ok {
		return nil
	}
	var native amqp.Delivery
	err = sess.call(func() (err error) {
		native, ok, err = sess.ch.Get(queue, false)
		return err
	})
	if err != nil || !ok { // another process was faster
		end()
		return err
	}
	slot := make(chan struct{}, 1)
	if !sess.handOut(native, adapters.StreamSuspect, queue, slot, end) {
		sess.giveBack(native, adapters.StreamSuspect, queue)
		end()
		return nil
	}
	select {
	case slot <- struct{}{}:
	case <-sess.gone:
	}
	return nil
}

func (sess *session) count(n int) {
	sess.mu.Lock()
	sess.unsettled += n
	sess.mu.Unlock()
	sess.release()
}

func (sess *session) retire() {
	sess.mu.Lock()
	sess.retired = true
	sess.mu.Unlock()
	sess.release()
}

// release closes the channel once nobody needs it any more.
func (sess *session) release() {
	sess.mu.Lock()
	done := sess.retired && sess.unsettled == 0
	sess.mu.Unlock()
	if !done {
		return
	}
	s := sess.s
	s.mu.Lock()
	_, open := s.open[sess]
	delete(s.open, sess)
	s.mu.Unlock()
	if open {
		_ = sess.ch.Close()
	}
}

// settler settles one delivery.
type settler struct {
	sess  *session
	tag   uint64
	slots chan struct{}
	end   func() // of a suspect's being alone, else nil
	done  atomic.Bool
}

func (x *settler) Ack(_ context.Context, d *adapters.Delivery) error {
	return x.settle("acknowledge", d, func() error { return x.sess.ch.Ack(x.tag, false) })
}

func (x *settler) Return(_ context.Context, d *adapters.Delivery) error {
	// Not reject, which counts as a failure since RabbitMQ 4.3.
	return x.settle("return", d, func() error { return x.sess.ch.Nack(x.tag, false, true) })
}

// settle does not wait for the broker. A dead connection ends the write when
// its heartbeat fails.
func (x *settler) settle(what string, d *adapters.Delivery, call func() error) error {
	if x.done.Swap(true) {
		return nil
	}
	err := call()
	<-x.slots
	x.sess.count(-1)
	if x.end != nil {
		x.end()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, amqp.ErrClosed):
		err = fmt.Errorf("%w: the channel that delivered it is gone, and the broker delivers it again", adapters.ErrClosed)
	}
	return fmt.Errorf("rabbitmq: %s message %q of topic %q: %w", what, d.ID, x.sess.s.c.Topic, err)
}
