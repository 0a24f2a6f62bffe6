package spillway_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// Close is idempotent. A second call, as from a signal handler beside a defer,
// must not close the broker under the first, which waits for a handler.
func TestAdversaryConcurrentCloseLetsFinishedWorkCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		a.handle("orders", func(*message.Message) error { time.Sleep(5 * time.Second); return nil }).run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := a.sw.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		wg.Wait()
		if n := b.Depth("orders"); n != 0 {
			t.Errorf("%d messages left in the source, want 0: its handler succeeded within CloseGrace; outcomes: %v", n, a.told())
		}
	})
}

// Close waits up to CloseGrace, not up to CloseGrace for each subscriber, and
// hands out nothing more meanwhile.
func TestAdversaryCloseStopsAllSubscribersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{CloseGrace: 10 * time.Second})
		release := make(chan struct{})
		var late int
		closing := false
		for n := range 5 {
			a.handle(fmt.Sprintf("stuck%d", n), func(*message.Message) error { <-release; return nil })
		}
		a.handle("healthy", func(*message.Message) error {
			if closing {
				late++
			}
			return nil
		}).run()
		for n := range 5 {
			advPublish(t, b, fmt.Sprintf("stuck%d", n), "m")
		}
		time.Sleep(time.Second)
		start := time.Now()
		closing = true
		go func() {
			time.Sleep(5 * time.Second)
			advPublish(t, b, "healthy", "m")
		}()
		if err := a.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("Close took %v with a CloseGrace of 10 s", took)
		}
		if late > 0 {
			t.Errorf("%d messages handed out 5 s after Close was called", late)
		}
		close(release)
	})
}

// Work that finished is acked: also when it finishes at the very end of the
// grace. A message that took its Ack must not be given back.
func TestAdversaryAckAtTheEndOfGraceIsNotReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{CloseGrace: 10 * time.Second, Concurrency: n})
		sub := a.sw.SubscriberFor("x")
		messages, err := sub.Subscribe(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			advPublish(t, b, "orders", fmt.Sprint(i))
		}
		var got []*message.Message
		for range n {
			got = append(got, <-messages)
		}
		var accepted atomic.Int32
		go func() {
			time.Sleep(10 * time.Second)
			for _, m := range got {
				if m.Ack() {
					accepted.Add(1)
				}
			}
		}()
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		acked := int(accepted.Load())
		if left := b.Lag("orders", "x"); acked+left != n {
			t.Errorf("%d of %d messages took their Ack, but %d are left in the source, want %d", acked, n, left, n-acked)
		}
		if err := a.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A subscription that the broker broke ends a consumer for good, while the
// others go on. Somebody must be told.
func TestAdversaryBrokenSubscriptionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		var log advLog
		a := advOpen(t, b, spillway.Config{Logger: log.logger()})
		a.handle("orders", func(*message.Message) error { return nil })
		a.handle("other", func(*message.Message) error { return nil }).run()
		synctest.Wait()
		b.Disconnect("orders", "g")
		time.Sleep(time.Minute)
		synctest.Wait()
		if log.String() == "" {
			t.Error("orders is not consumed any more, and nothing says so")
		}
		a.close()
	})
}
