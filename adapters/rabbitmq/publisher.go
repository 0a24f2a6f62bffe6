package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

// lanes publish with confirms. Each publish has a channel of its own while it
// lasts: RabbitMQ answers some mistakes by closing the channel, and then the
// result of all that was on it is unknown. Safe for concurrent use.
type lanes struct {
	link *link
	busy chan struct{} // bounds how many are out
	idle chan *lane
}

// lane is a channel in confirm mode, used by one publish at a time.
type lane struct {
	ch      *amqp.Channel
	conn    *conn
	returns chan amqp.Return
	closed  chan *amqp.Error
}

// outgoing is one message and where it goes.
type outgoing struct {
	exchange, key string
	mandatory     bool
	msg           amqp.Publishing
}

// batchSize bounds the publishes of one call that wait for confirms at a time.
// It is also room for all their returns, for the reader of the connection must
// never wait for a listener.
const batchSize = 256

func newLanes(l *link, most int) *lanes {
	return &lanes{link: l, busy: make(chan struct{}, most), idle: make(chan *lane, most)}
}

// publish writes messages in order and waits for their confirms. When it
// returns an error, some of them may have been written.
func (p *lanes) publish(ctx context.Context, out ...outgoing) error {
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.busy }()

	l, err := p.lane(ctx)
	if err != nil {
		return err
	}
	for i := range out {
		if err := checkSize(&out[i].msg, l.conn.Config.FrameSize); err != nil {
			p.idle <- l
			return err
		}
	}
	for len(out) > 0 && err == nil {
		n := min(len(out), batchSize)
		err = l.publish(ctx, out[:n])
		out = out[n:]
	}
	if err != nil {
		// What is still on its way must not be mistaken for the next message's.
		go l.ch.Close()
		return err
	}
	p.idle <- l // has room for every lane that may be busy
	return nil
}

// lane takes an idle lane of the present connection, or opens one.
func (p *lanes) lane(ctx context.Context) (*lane, error) {
	for {
		select {
		case l := <-p.idle:
			if l.ch.IsClosed() {
				continue
			}
			if err := l.conn.gate.wait(ctx); err != nil {
				p.idle <- l
				return nil, err
			}
			return l, nil
		default:
		}
		conn, err := p.link.get(ctx)
		if err != nil {
			return nil, err
		}
		// A blocked connection is not read by the broker. What is written to it
		// now would be published whenever the alarm ends.
		if err := conn.gate.wait(ctx); err != nil {
			return nil, err
		}
		return openLane(ctx, conn)
	}
}

func openLane(ctx context.Context, conn *conn) (*lane, error) {
	ch, err := conn.channel(ctx)
	if err != nil {
		return nil, err
	}
	l := &lane{
		ch: ch, conn: conn,
		returns: ch.NotifyReturn(make(chan amqp.Return, batchSize)),
		closed:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := bounded(ctx, func() error { return ch.Confirm(false) }); err != nil {
		go ch.Close()
		return nil, err
	}
	return l, nil
}

func (l *lane) publish(ctx context.Context, out []outgoing) error {
	type result struct {
		confirms []*amqp.DeferredConfirmation
		err      error
	}
	// Writing blocks without regard to ctx when the broker does not read.
	written := make(chan result, 1)
	go func() {
		var r result
		for i := range out {
			o := &out[i]
			c, err := l.ch.PublishWithDeferredConfirm(o.exchange, o.key, o.mandatory, false, o.msg)
			if err != nil {
				r.err = err
				break
			}
			r.confirms = append(r.confirms, c)
		}
		written <- r
	}()
	var r result
	select {
	case r = <-written:
	case <-ctx.Done():
		return fmt.Errorf("not written in time: %w", ctx.Err())
	}
	for _, c := range r.confirms {
		acked, err := c.WaitContext(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnconfirmed, err)
		}
		if !acked {
			return l.refusal()
		}
	}
	if r.err != nil {
		return errors.Join(l.closedBy(), r.err)
	}
	// A message that no queue takes comes back before its confirm.
	select {
	case ret, ok := <-l.returns:
		if ok {
			return fmt.Errorf("exchange %q, key %q: %w", ret.Exchange, ret.RoutingKey, errUnroutable)
		}
	default:
	}
	return nil
}

// refusal is why a message was not confirmed.
func (l *lane) refusal() error {
	if err := l.closedBy(); err != nil {
		return err
	}
	if l.ch.IsClosed() {
		return fmt.Errorf("not confirmed: %w", amqp.ErrClosed)
	}
	return errors.New("the broker could not store it: a queue is full, or has no leader")
}

func (l *lane) closedBy() error {
	select {
	case err, ok := <-l.closed:
		if ok {
			return publishError(err)
		}
	default:
	}
	return nil
}

// publisher publishes for the application, in watermill-amqp's wire format.
type publisher struct{ b *broker }

var marshaler wamqp.DefaultMarshaler

// Publish writes the messages in order. It returns nil after the broker has
// confirmed all of them.
func (p publisher) Publish(topic string, msgs ...*message.Message) error {
	if err := p.publish(topic, msgs); err != nil {
		return fmt.Errorf("rabbitmq: publish to %q: %w", topic, err)
	}
	return nil
}

func (p publisher) publish(topic string, msgs []*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	to := p.b.cfg.place(p.b.names, topic, "")
	if to.exchange != "" {
		if err := checkName("exchange", to.exchange); err != nil && !to.existing {
			return err
		}
	}
	for kind, name := range map[string]string{"topic": topic, "routing key": to.publishKey} {
		if len(name) > maxShortString || kind == "topic" && name == "" {
			return fmt.Errorf("the %s %.40q has %d bytes, and AMQP allows 1 to %d", kind, name, len(name), maxShortString)
		}
	}
	out := make([]outgoing, 0, len(msgs))
	for _, msg := range msgs {
		wire, err := marshaler.Marshal(msg)
		if err != nil {
			return err
		}
		out = append(out, outgoing{exchange: to.exchange, key: to.publishKey, mandatory: to.mandatory, msg: wire})
	}
	// Outputs of a handler are published although its shutdown has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(msgs[0].Context()), p.b.cfg.PublishTimeout)
	defer cancel()
	if err := p.b.topology.ensureExchange(ctx, to); err != nil {
		return err
	}
	err := p.b.lanes.publish(ctx, out...)
	if isGone(err) {
		p.b.topology.forget()
	}
	return err
}

// Close does nothing.
func (publisher) Close() error { return nil }

// expiration is the time to live that makes a message leave its queue at due.
func expiration(left time.Duration) string {
	// The broker's timers take 32 bits of milliseconds.
	left = min(max(left, time.Millisecond), longestBay)
	return strconv.FormatInt(int64((left+time.Millisecond-1)/time.Millisecond), 10)
}
