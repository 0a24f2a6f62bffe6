package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
)

// Drain receives message by message. SQS shows no message whose delay has not
// ended, so that it waits for those, up to Config.MaxDelay; nor one that is in
// flight, which is left to whoever has it. What the broker says of a record comes
// as headers of type "system".
func (b *broker) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.drain(ctx, stream, fn); err != nil {
		return fmt.Errorf("sqs: drain %q: %w", stream, err)
	}
	return nil
}

func (b *broker) drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	q, err := b.queues.existing(ctx, stream)
	if err != nil {
		return err
	}
	// What is in flight from a parking queue is only about to be delayed again.
	parking := b.queues.naming.isParking(stream)
	wait := time.Second // at least: without a wait SQS asks only some of its servers
	for {
		msgs, err := b.receive(ctx, q, 1, wait)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			if err := b.take(ctx, q, m, stream, fn); err != nil {
				return err
			}
		}
		if len(msgs) > 0 {
			continue
		}
		n, err := b.depth(ctx, q)
		if err != nil {
			return err
		}
		if n.visible == 0 && n.delayed == 0 && (!parking || n.inFlight == 0) {
			return nil
		}
		wait = b.cfg.PollWait
	}
}

// take gives one message to fn, which may take its time.
func (b *broker) take(ctx context.Context, q *queue, m *native, stream string, fn func(context.Context, adapters.Record) error) error {
	l := b.hold(q, aws.ToString(m.ReceiptHandle))
	if err := fn(ctx, storedRecordOf(m, stream)); err != nil {
		return errors.Join(err, l.release(context.WithoutCancel(ctx), 0))
	}
	return l.delete(ctx)
}

func number(attributes map[string]string, name types.QueueAttributeName) int {
	n, _ := strconv.Atoi(attributes[string(name)]) // what is not told is not there
	return n
}
