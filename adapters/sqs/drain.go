package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
)

// Drain receives message by message. SQS shows no message whose delay has not
// ended, so that it waits for those, up to Config.MaxDelay; nor one that is in
// flight, which is left to whoever has it. What the broker says of a record comes
// as headers of type "system".
func (b *broker) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	return b.drainBatches(ctx, stream, 1, func(ctx context.Context, batch []adapters.Record) error { return fn(ctx, batch[0]) })
}

// DrainBatch implements adapters.BatchDrainer: what Drain does, with as many
// receives of ten as a batch takes, and one request that deletes for ten. A
// message whose lease was lost meanwhile is deleted like the others, because fn
// has it; if it cannot be, DrainBatch says so, and it comes again.
func (b *broker) DrainBatch(ctx context.Context, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	return b.drainBatches(ctx, stream, max(most, 1), fn)
}

// Count implements adapters.Counter, with the numbers that SQS keeps. It calls
// them approximate: they are behind by up to a minute or so, and by more at a
// queue that was busy just now.
func (b *broker) Count(ctx context.Context, stream string) (int64, error) {
	n, err := b.count(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("sqs: count %q: %w", stream, err)
	}
	return n, nil
}

func (b *broker) count(ctx context.Context, stream string) (int64, error) {
	if err := b.usable(); err != nil {
		return 0, err
	}
	q, err := b.queues.existing(ctx, stream)
	if err != nil {
		return 0, err
	}
	n, err := b.depth(ctx, q)
	return int64(n.visible + n.delayed), err
}

func (b *broker) drainBatches(ctx context.Context, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.drain(ctx, stream, most, fn); err != nil {
		return fmt.Errorf("sqs: drain %q: %w", stream, err)
	}
	return nil
}

func (b *broker) drain(ctx context.Context, stream string, most int, fn func(context.Context, []adapters.Record) error) (err error) {
	q, err := b.queues.existing(ctx, stream)
	if err != nil {
		return err
	}
	// What is in flight from a parking queue is only about to be delayed again.
	parking := b.queues.naming.isParking(stream)
	wait := time.Second // at least: without a wait SQS asks only some of its servers
	var batch []held
	defer func() { err = errors.Join(err, release(context.WithoutCancel(ctx), batch)) }()
	for {
		if len(batch) > 0 {
			wait = time.Second // it may be all there is
		}
		msgs, err := b.receive(ctx, q, min(most-len(batch), maxReceive), wait)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			batch = append(batch, held{m, b.hold(q, aws.ToString(m.ReceiptHandle))})
		}
		if len(batch) > 0 && (len(msgs) == 0 || len(batch) == most) {
			if err := b.take(ctx, q, batch, stream, fn); err != nil {
				return err
			}
			batch = nil
			continue
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

// maxReceive is how many messages SQS takes or gives in one request.
const maxReceive = 10

// take gives a batch to fn, which may take its time, and deletes it.
func (b *broker) take(ctx context.Context, q *queue, batch []held, stream string, fn func(context.Context, []adapters.Record) error) error {
	records := make([]adapters.Record, len(batch))
	for i, h := range batch {
		records[i] = storedRecordOf(h.m, stream)
	}
	if err := fn(ctx, records); err != nil {
		return err
	}
	if len(batch) == 1 {
		return batch[0].lease.delete(ctx)
	}
	return b.deleteAll(ctx, q, batch)
}

// deletesAtOnce is how many requests that delete a batch run at a time.
const deletesAtOnce = 4

// deleteAll removes messages, also when ctx has ended: fn has them.
func (b *broker) deleteAll(ctx context.Context, q *queue, batch []held) error {
	ctx = context.WithoutCancel(ctx)
	chunks := slices.Collect(slices.Chunk(batch, maxReceive))
	errs := make([]error, len(chunks))
	turns := make(chan struct{}, deletesAtOnce)
	var wg sync.WaitGroup
	for i, chunk := range chunks {
		turns <- struct{}{}
		wg.Go(func() {
			errs[i] = b.deleteSome(ctx, q, chunk)
			<-turns
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// deleteTries is how often the entries of a batch are tried that failed, or of
// which the answer says nothing, while the others did not.
const deleteTries = 3

// deleteSome removes what one request can.
func (b *broker) deleteSome(ctx context.Context, q *queue, batch []held) error {
	left := make([]types.DeleteMessageBatchRequestEntry, len(batch))
	lost := false
	for i, h := range batch {
		lost = !h.lease.end() || lost
		left[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &h.lease.handle}
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	kept, why := 0, "" // what SQS will not delete
	for try := 1; len(left) > 0; try++ {
		out, err := b.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: left})
		if err != nil {
			return fmt.Errorf("%d of %d messages could not be deleted, and come again: %w", kept+len(left), len(batch), err)
		}
		for _, done := range out.Successful {
			left = without(left, done.Id)
		}
		reason := "SQS did not say why"
		for _, f := range out.Failed {
			reason = aws.ToString(f.Code) + ": " + aws.ToString(f.Message)
			if isLostCode(aws.ToString(f.Code)) {
				left, why = without(left, f.Id), reason
				kept++
			}
		}
		if len(left) > 0 && (try == deleteTries || !pauseFor(ctx, time.Duration(try)*100*time.Millisecond)) {
			kept, why = kept+len(left), reason
			break
		}
	}
	switch {
	case kept > 0:
		return fmt.Errorf("%d of %d messages could not be deleted, and come again: %s", kept, len(batch), why)
	case lost:
		return adapters.ErrLeaseLost
	}
	return nil
}

func without(entries []types.DeleteMessageBatchRequestEntry, id *string) []types.DeleteMessageBatchRequestEntry {
	return slices.DeleteFunc(entries, func(e types.DeleteMessageBatchRequestEntry) bool { return *e.Id == aws.ToString(id) })
}

// pauseFor waits, and reports false if ctx ends before.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// release gives back what fn was not given, or did not take. For what is deleted
// already it does nothing that lasts.
func release(ctx context.Context, batch []held) error {
	errs := make([]error, len(batch))
	var wg sync.WaitGroup
	for i, h := range batch {
		wg.Go(func() { errs[i] = h.lease.release(ctx, 0) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func number(attributes map[string]string, name types.QueueAttributeName) int {
	n, _ := strconv.Atoi(attributes[string(name)]) // what is not told is not there
	return n
}
