package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway/adapters"
)

const (
	// batchBytes bounds a batch of the pipelined producer. A batch that the
	// broker finds too large is refused as a whole, so large messages are written
	// one by one, and it says of each whether it fits.
	batchBytes = 512 << 10
	// largeBytes is from where on a message counts as large.
	largeBytes = 128 << 10
)

// producer writes messages, each confirmed by all replicas in sync. Many
// callers' messages share a batch. Safe for concurrent use.
type producer struct {
	batched, single *pipe
	placed          *pipe // to partitions that callers choose
}

func newProducer(sc *sarama.Config, addrs []string) (*producer, error) {
	batched := producing(sc)
	batched.Producer.MaxMessageBytes = batchBytes
	single := producing(sc)
	single.Producer.MaxMessageBytes = int(sarama.MaxRequestSize) - 64<<10
	single.Producer.Flush.MaxMessages = 1
	p := &producer{}
	var err error
	if p.batched, err = newPipe(addrs, &batched); err != nil {
		return nil, err
	}
	if p.single, err = newPipe(addrs, &single); err != nil {
		return nil, errors.Join(err, p.batched.close())
	}
	placed := batched
	placed.Producer.Partitioner = sarama.NewManualPartitioner
	if p.placed, err = newPipe(addrs, &placed); err != nil {
		return nil, errors.Join(err, p.batched.close(), p.single.close())
	}
	return p, nil
}

// send writes one message, and returns when it is confirmed or will not be.
// When ctx ends first it may still be written.
func (p *producer) send(ctx context.Context, m *sarama.ProducerMessage) error {
	return p.wait(ctx, p.begin(ctx, m))
}

// pending is a message on its way.
type pending struct {
	msg     *sarama.ProducerMessage
	done    chan error
	batched bool // with others
}

// begin sends a message on its way, unless ctx ends first.
func (p *producer) begin(ctx context.Context, m *sarama.ProducerMessage) pending {
	if isLarge(m) {
		return p.single.begin(ctx, m)
	}
	w := p.batched.begin(ctx, m)
	w.batched = true
	return w
}

func isLarge(m *sarama.ProducerMessage) bool { return m.ByteSize(2) > largeBytes }

func (p *producer) wait(ctx context.Context, w pending) error {
	select {
	case err := <-w.done:
		if isTooLarge(err) && w.batched {
			// Its batch was, perhaps: alone the answer is exact.
			return p.wait(ctx, p.single.begin(ctx, fresh(w.msg)))
		}
		return sendError(err)
	case <-ctx.Done():
		return fmt.Errorf("not confirmed in time: %w", ctx.Err())
	}
}

// fresh is a message without what sarama wrote into it.
func fresh(m *sarama.ProducerMessage) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.Timestamp}
}

func (p *producer) close() error {
	return errors.Join(p.batched.close(), p.single.close(), p.placed.close())
}

// pipe is one of sarama's asynchronous producers.
type pipe struct {
	client sarama.Client
	async  sarama.AsyncProducer
	closed chan struct{} // nothing more is sent
	done   chan struct{}
	mu     sync.RWMutex // close waits for those that hand in
}

func newPipe(addrs []string, sc *sarama.Config) (*pipe, error) {
	client, err := sarama.NewClient(addrs, sc)
	if err != nil {
		return nil, err
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p := &pipe{client: client, async: async, closed: make(chan struct{}), done: make(chan struct{})}
	go p.answer()
	return p, nil
}

func (p *pipe) begin(ctx context.Context, m *sarama.ProducerMessage) pending {
	w := pending{msg: m, done: make(chan error, 1)}
	m.Metadata = w.done
	p.mu.RLock()
	defer p.mu.RUnlock()
	select {
	case <-p.closed:
		w.done <- adapters.ErrClosed
		return w
	default:
	}
	select {
	case p.async.Input() <- m:
	case <-ctx.Done():
		w.done <- ctx.Err()
	case <-p.closed:
		w.done <- adapters.ErrClosed
	}
	return w
}

// answer tells the callers what became of their messages, until the producer is
// closed.
func (p *pipe) answer() {
	defer close(p.done)
	successes, failures := p.async.Successes(), p.async.Errors()
	for successes != nil || failures != nil {
		select {
		case m, ok := <-successes:
			if !ok {
				successes = nil
				continue
			}
			m.Metadata.(chan error) <- nil
		case e, ok := <-failures:
			if !ok {
				failures = nil
				continue
			}
			e.Msg.Metadata.(chan error) <- e.Err
		}
	}
}

func (p *pipe) close() error {
	close(p.closed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.async.AsyncClose()
	<-p.done
	return p.client.Close()
}

// sendError turns sarama's errors into what the seam knows.
func sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case isTooLarge(err):
		return fmt.Errorf("%w: %w", adapters.ErrTooLarge, err)
	case errors.Is(err, sarama.ErrInvalidTopic), errors.Is(err, sarama.ErrInvalidRecord), errors.Is(err, sarama.ErrInvalidTimestamp):
		return fmt.Errorf("%w: %w", adapters.ErrRefused, err)
	default:
		return err
	}
}

// isTooLarge reports that a batch is larger than the client, the topic, or a segment
// of the topic takes.
func isTooLarge(err error) bool {
	return errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrMessageTooLarge) || errors.Is(err, sarama.ErrMessageSetSizeTooLarge)
}

// isGone reports that a topic is missing.
func isGone(err error) bool { return errors.Is(err, sarama.ErrUnknownTopicOrPartition) }

// syncProducer is the producer as the user's tracer wraps it.
type syncProducer struct {
	sarama.SyncProducer // nil: transactions are not ours
	p                   *producer
	ctx                 context.Context
}

func (s *syncProducer) SendMessage(m *sarama.ProducerMessage) (int32, int64, error) {
	err := s.p.send(s.ctx, m)
	return m.Partition, m.Offset, err
}

func (s *syncProducer) SendMessages(msgs []*sarama.ProducerMessage) error {
	for _, m := range msgs {
		if _, _, err := s.SendMessage(m); err != nil {
			return err
		}
	}
	return nil
}

func (s *syncProducer) Close() error { return nil }

// publisher publishes for the application, in the configured wire format.
type publisher struct{ b *broker }

// Publish writes the messages in order. It returns nil after the broker has
// confirmed all of them.
func (p publisher) Publish(topic string, msgs ...*message.Message) error {
	if err := p.publish(topic, msgs); err != nil {
		return fmt.Errorf("kafka: publish to %q: %w", topic, err)
	}
	return nil
}

func (p publisher) publish(topic string, msgs []*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	// Outputs of a handler are published although its shutdown has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(msgs[0].Context()), p.b.cfg.PublishTimeout)
	defer cancel()
	name, err := p.b.topics.ensure(ctx, topic, p.b.sourceSpec())
	if err != nil {
		return err
	}
	out := make([]*sarama.ProducerMessage, len(msgs))
	for i, msg := range msgs {
		if out[i], err = p.b.cfg.Marshaler.Marshal(name, msg); err != nil {
			return err
		}
	}
	err = p.send(ctx, out)
	if isGone(err) {
		p.b.topics.forget(topic)
	}
	return err
}

func (p publisher) send(ctx context.Context, out []*sarama.ProducerMessage) error {
	if t := p.b.cfg.Tracer; t != nil {
		traced := t.WrapSyncProducer(p.b.sarama, &syncProducer{p: p.b.producer, ctx: ctx})
		for _, m := range out {
			if _, _, err := traced.SendMessage(m); err != nil {
				return err
			}
		}
		return nil
	}
	var sent []pending
	wait := func() error {
		var errs []error
		for _, w := range sent {
			errs = append(errs, p.b.producer.wait(ctx, w))
		}
		sent = sent[:0]
		return errors.Join(errs...)
	}
	for _, m := range out {
		if isLarge(m) { // goes another way, and must not overtake
			if err := wait(); err != nil {
				return err
			}
			if err := p.b.producer.send(ctx, m); err != nil {
				return err
			}
			continue
		}
		sent = append(sent, p.b.producer.begin(ctx, m))
	}
	return wait()
}

// Close does nothing.
func (publisher) Close() error { return nil }
