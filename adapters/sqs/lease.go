package sqs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
)

// lease keeps a message hidden from others for as long as somebody here has it.
type lease struct {
	b        *broker
	q        *queue
	handle   string
	received time.Time
	lost     chan struct{} // closed when others may have the message

	once sync.Once
	stop chan struct{}
	done chan struct{}
}

// hold begins a lease of a message that was received just now.
func (b *broker) hold(q *queue, handle string) *lease {
	l := &lease{
		b: b, q: q, handle: handle, received: time.Now(),
		lost: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.keep()
	return l
}

// end stops the renewals and waits for one that is in flight: what is done to the
// message next must come after it. It reports whether the lease still holds.
func (l *lease) end() bool {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	select {
	case <-l.lost:
		return false
	default:
		return true
	}
}

// keep renews the lease three times in each visibility. A request that fails is
// repeated sooner, for as long as the message is hidden.
func (l *lease) keep() {
	defer close(l.done)
	visibility := l.b.cfg.Visibility
	until := l.received.Add(visibility)
	pause := spread(visibility / 3)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		left := l.received.Add(l.b.cfg.MaxLease).Sub(now)
		renewed := min(visibility, left.Truncate(time.Second))
		var err error
		switch {
		case !now.Before(until.Add(-visibility / 20)):
			l.lose(fmt.Errorf("it could not be renewed for %s, or its %s were over", visibility, l.b.cfg.MaxLease))
			return
		case renewed < time.Second || now.Add(renewed).Before(until):
			// As long as it can be. It ends.
		default:
			if err = l.hide(context.Background(), renewed, visibility/4); err == nil {
				until = now.Add(renewed)
			}
		}
		switch {
		case err == nil:
			pause = spread(visibility / 3)
		case isLost(err):
			l.lose(err)
			return
		default:
			pause = spread(visibility / 10)
		}
		timer.Reset(pause)
	}
}

func (l *lease) lose(err error) {
	close(l.lost)
	l.b.logger.LogAttrs(context.Background(), slog.LevelWarn, "the lease of a message is lost, SQS delivers it again",
		slog.String("queue", l.q.name), slog.Duration("held", time.Since(l.received)), slog.Any("error", err))
}

// spread is d, at most a tenth more or less, so that leases that began together
// are not renewed together.
func spread(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// hide makes the message visible after d, at once if that is zero.
func (l *lease) hide(ctx context.Context, d, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := l.b.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &l.q.url, ReceiptHandle: &l.handle, VisibilityTimeout: seconds(d),
	})
	return err
}

// longest is d, as far as the 12 hours of SQS allow it.
func (l *lease) longest(d time.Duration) time.Duration {
	return max(0, min(d, time.Until(l.received.Add(maxVisibility-leaseMargin))))
}

// release gives the message back after the lease has ended.
func (l *lease) release(ctx context.Context, after time.Duration) error {
	if !l.end() {
		return nil // it is back already
	}
	err := l.hide(ctx, after, l.b.cfg.RequestTimeout)
	if isLost(err) {
		return nil
	}
	return err
}

// delete removes the message after the lease has ended. It does so even if the
// lease is lost: the work is done.
func (l *lease) delete(ctx context.Context) error {
	held := l.end()
	ctx, cancel := context.WithTimeout(ctx, l.b.cfg.RequestTimeout)
	defer cancel()
	_, err := l.b.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &l.q.url, ReceiptHandle: &l.handle})
	if err == nil && !held {
		return adapters.ErrLeaseLost
	}
	return err
}
