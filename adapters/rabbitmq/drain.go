package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

// Drain reads a queue message by message. What the broker dead-lettered by
// itself comes as it is, with x-death among its headers; properties come as
// headers of type "property".
func (b *broker) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	err := b.eachQueue(stream, func(queue string) error {
		return b.withChannel(ctx, func(ch *amqp.Channel) error {
			return b.drainQueue(ctx, ch, queue, stream, 1, func(ctx context.Context, batch []adapters.Record) error { return fn(ctx, batch[0]) })
		})
	})
	if err != nil {
		return fmt.Errorf("rabbitmq: drain %q: %w", stream, err)
	}
	return nil
}

// DrainBatch implements adapters.BatchDrainer: it consumes, which is much
// faster than to ask for one message after the other.
func (b *broker) DrainBatch(ctx context.Context, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	most = min(max(most, 1), math.MaxUint16/2)
	err := b.eachQueue(stream, func(queue string) error {
		return b.withChannel(ctx, func(ch *amqp.Channel) error {
			if err := b.consumeQueue(ctx, ch, queue, stream, most, fn); err != nil {
				return err
			}
			// What came meanwhile. This ends only when the broker says that there is
			// nothing more.
			return b.drainQueue(ctx, ch, queue, stream, most, fn)
		})
	})
	if err != nil {
		return fmt.Errorf("rabbitmq: drain %q: %w", stream, err)
	}
	return nil
}

// Count implements adapters.Counter. Messages that a consumer has not settled
// do not count.
func (b *broker) Count(ctx context.Context, stream string) (n int64, err error) {
	err = b.eachQueue(stream, func(queue string) error {
		return b.withChannel(ctx, func(ch *amqp.Channel) error {
			ready, err := b.ready(ctx, ch, queue)
			n += ready
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("rabbitmq: count %q: %w", stream, err)
	}
	return n, nil
}

// ready is how many messages of a queue nobody has.
func (b *broker) ready(ctx context.Context, ch *amqp.Channel, queue string) (int64, error) {
	var q amqp.Queue
	err := bounded(ctx, func() (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	if err != nil {
		return 0, topologyError("queue", queue, b.cfg.VerifyOnly, err)
	}
	return int64(q.Messages), nil
}

// eachQueue calls do for every queue of a stream: one, unless it is a parking
// stream.
func (b *broker) eachQueue(stream string, do func(queue string) error) error {
	if err := checkName("queue", stream); err != nil {
		return err
	}
	if !b.isParking(stream) {
		return do(stream)
	}
	for _, queue := range bayNames(stream) {
		err := do(queue)
		var missing *TopologyError
		if errors.As(err, &missing) && missing.Name == queue && queue != stream {
			continue // nothing was ever parked that long
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isParking reports whether stream has the form of a parking stream's name.
func (b *broker) isParking(stream string) bool {
	t := b.names.Parking
	head, tail := t[:strings.IndexByte(t, '{')], t[strings.LastIndexByte(t, '}')+1:]
	return len(stream) > len(head)+len(tail) && strings.HasPrefix(stream, head) && strings.HasSuffix(stream, tail)
}

// withChannel gives do a channel. When that is closed, what do did not settle
// goes back to its queue.
func (b *broker) withChannel(ctx context.Context, do func(ch *amqp.Channel) error) error {
	conn, err := b.consume.get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.channel(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = bounded(ctx, ch.Close)
	}()
	return do(ch)
}

// drainQueue asks for messages one by one until there is none.
func (b *broker) drainQueue(ctx context.Context, ch *amqp.Channel, queue, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	var held []amqp.Delivery
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var d amqp.Delivery
		var ok bool
		err := bounded(ctx, func() (err error) {
			d, ok, err = ch.Get(queue, false)
			return err
		})
		if err != nil {
			return topologyError("queue", queue, b.cfg.VerifyOnly, err)
		}
		if ok {
			held = append(held, d)
		}
		if len(held) == most || !ok && len(held) > 0 {
			if err := settleBatch(ctx, held, stream, fn); err != nil {
				return err
			}
			held = held[:0]
		}
		if !ok {
			return nil
		}
	}
}

// settleBatch gives a batch to fn, and acknowledges it, or gives it back.
func settleBatch(ctx context.Context, held []amqp.Delivery, stream string, fn func(context.Context, []adapters.Record) error) error {
	records := make([]adapters.Record, len(held))
	for i := range held {
		records[i] = storedRecordOf(&held[i], stream)
	}
	last := held[len(held)-1]
	if err := fn(ctx, records); err != nil {
		_ = last.Nack(true, true) // closing the channel gives it back too
		return err
	}
	return last.Ack(true)
}

// lull is how long the broker may send nothing before it is asked whether
// there is more.
const lull = 50 * time.Millisecond

// consumeQueue reads a queue until nothing lies in it. The broker sends the
// next batch while fn has one.
func (b *broker) consumeQueue(ctx context.Context, ch *amqp.Channel, queue, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := bounded(ctx, func() error { return ch.Qos(2*most, 0, false) }); err != nil {
		return err
	}
	tag := consumerTag()
	var in <-chan amqp.Delivery
	err := bounded(ctx, func() (err error) {
		in, err = ch.Consume(queue, tag, false, false, false, false, nil)
		return err
	})
	if err != nil {
		return topologyError("queue", queue, b.cfg.VerifyOnly, err)
	}
	var held []amqp.Delivery
	settle := func() error {
		if len(held) == 0 {
			return nil
		}
		err := settleBatch(ctx, held, stream, fn)
		held = held[:0]
		return err
	}
	quiet := time.NewTimer(lull)
	defer quiet.Stop()
	cancelled := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d, ok := <-in:
			if !ok {
				if err := settle(); err != nil || cancelled {
					return err
				}
				select { // the broker ended the consumer, or the channel
				case err := <-closed:
					if err != nil {
						return err
					}
					return amqp.ErrClosed
				default:
					return fmt.Errorf("the broker cancelled the consumer: queue %q was deleted, or moved", queue)
				}
			}
			held = append(held, d)
			if len(held) == most {
				if err := settle(); err != nil {
					return err
				}
			}
			quiet.Reset(lull)
		case <-quiet.C:
			if err := settle(); err != nil {
				return err
			}
			if cancelled {
				continue
			}
			n, err := b.ready(ctx, ch, queue)
			if err != nil {
				return err
			}
			quiet.Reset(lull)
			if n > 0 {
				continue
			}
			cancelled = true
			if err := bounded(ctx, func() error { return ch.Cancel(tag, false) }); err != nil {
				return err
			}
		}
	}
}
