package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

// Drain reads a queue message by message. What the broker dead-lettered by
// itself comes as it is, with x-death among its headers; properties come as
// headers of type "property".
func (b *broker) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	if err := b.drain(ctx, stream, fn); err != nil {
		return fmt.Errorf("rabbitmq: drain %q: %w", stream, err)
	}
	return nil
}

func (b *broker) drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	if err := checkName("queue", stream); err != nil {
		return err
	}
	if !b.isParking(stream) {
		return b.drainQueue(ctx, stream, stream, fn)
	}
	for _, queue := range bayNames(stream) {
		err := b.drainQueue(ctx, queue, stream, fn)
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

func (b *broker) drainQueue(ctx context.Context, queue, stream string, fn func(context.Context, adapters.Record) error) error {
	conn, err := b.consume.get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.channel(ctx)
	if err != nil {
		return err
	}
	defer func() { go ch.Close() }()
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
		if !ok {
			return nil
		}
		if err := fn(ctx, storedRecordOf(&d, stream)); err != nil {
			_ = d.Nack(false, true) // closing the channel gives it back too
			return err
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
}
