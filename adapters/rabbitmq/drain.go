package rabbitmq

import (
	"context"
	"fmt"

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
			d, ok, err = ch.Get(stream, false)
			return err
		})
		if err != nil {
			return topologyError("queue", stream, b.cfg.VerifyOnly, err)
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
