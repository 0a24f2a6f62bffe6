package kafka_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// Issue 4.2: 5,000 messages are finished above one that is not. When the
// partition changes hands, none of them is handled again, and none is skipped.
func TestFinishedAboveAnUnfinishedHeadIsNotHandledAgain(t *testing.T) {
	t.Parallel()
	const n = 5000
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(8)
		b.publish(c.Topic, n+1)
		s := b.SubscribeOn(b.Broker, c)
		var head *adapters.Delivery
		for range n + 1 {
			d := b.Next(s)
			if d.ID == "m-00000" {
				head = d
				continue
			}
			b.Ack(d)
		}
		b.Close(s)
		if err := head.Settler.Ack(b.Context(), head); err == nil {
			b.Error("an ack after Close said that it was carried out")
		}
		other := b.SubscribeOn(b.open(), c)
		if d := b.Next(other); d.ID != "m-00000" || d.Count != 1 {
			b.Errorf("the next owner got %s, delivery %d, want m-00000 for the first time", d.ID, d.Count)
		} else {
			b.Ack(d)
		}
		b.Quiet(other, time.Second)
	})
}

// Issue 4.2; K13, K19: a member joins while a retry waits and a handler runs.
// The rebalance waits for neither, and the retry comes once, at its time.
func TestRebalanceDuringADelay(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Partitions: 2, RevokeGrace: 300 * time.Millisecond}, func(b *bench) {
		c := b.consumer(4)
		s := b.SubscribeOn(b.Broker, c)
		b.publish(c.Topic, 1)
		slow := b.Next(s)
		due := time.Now().Add(8 * time.Second)
		b.Handoff(adapters.Handoff{
			Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "later", Key: []byte("k"), Payload: []byte("x")}, Due: due,
		})
		var mu sync.Mutex
		arrived := map[string][]time.Time{}
		var wg sync.WaitGroup
		consume := func(sub adapters.Subscription, tell chan<- string) {
			for d := range sub.Deliveries() {
				mu.Lock()
				arrived[d.ID] = append(arrived[d.ID], time.Now())
				mu.Unlock()
				_ = d.Settler.Ack(b.Context(), d)
				select {
				case tell <- d.ID:
				default:
				}
			}
		}
		wg.Go(func() { consume(s, nil) })
		other := b.SubscribeOn(b.open(), c)
		first := make(chan string, 1)
		joined := time.Now()
		wg.Go(func() { consume(other, first) })
		b.Eventually("the member that joined gets messages", func() bool {
			for i := range 8 {
				b.send(keyed(c.Topic, i, int(time.Now().UnixNano())))
			}
			return len(first) > 0
		})
		if took := time.Since(joined); took > 6*time.Second {
			b.Errorf("the rebalance took %s, as long as the delay", took)
		} else {
			b.Logf("the member that joined has its first message after %s", took)
		}
		if err := slow.Settler.Ack(b.Context(), slow); err != nil {
			b.Logf("the partition of the slow handler has moved: %v", err)
		}
		b.Eventually("the retry comes", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(arrived["later"]) > 0
		})
		b.Close(other)
		b.Close(s)
		wg.Wait()
		if n := len(arrived["later"]); n != 1 || arrived["later"][0].Before(due) {
			b.Errorf("the retry came %d times, the first %s after its time", n, arrived["later"][0].Sub(due))
		}
		if n := len(arrived["m-00000"]); n > 1 {
			b.Errorf("the message of the slow handler was handled %d more times, want at most once", n)
		}
	})
}

// K19: a handler that runs longer than the grace of a rebalance keeps its
// message when its partition comes back to the process: it is not handled twice.
// Here a new tier interrupts the reading of the others.
func TestHandlerGoesOnOverARebalance(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{RevokeGrace: 100 * time.Millisecond}, func(b *bench) {
		c := b.consumer(4)
		s := b.SubscribeOn(b.Broker, c)
		retry := func(id string, delay time.Duration) *adapters.Delivery {
			b.Handoff(adapters.Handoff{
				Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte("x")}, Due: time.Now().Add(delay),
			})
			d := b.Next(s)
			if d.ID != id {
				b.Fatalf("got %s, want %s", d.ID, id)
			}
			return d
		}
		slow := retry("slow", 100*time.Millisecond)
		fast := retry("fast", 2500*time.Millisecond) // in a tier that did not exist
		b.Ack(fast)
		b.Ack(slow)
		b.Quiet(s, time.Second)
		b.Close(s)
		b.Quiet(b.SubscribeOn(b.open(), c), 2*time.Second)
	})
}

// Order by key; K15: with many handlers, messages of one key come one at a time
// and in order, also when they are given back.
func TestMessagesOfAKeyAreHandledInOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(8)
		const keys, each = 5, 40
		for i := range each {
			for k := range keys {
				b.send(keyed(c.Topic, k, i))
			}
		}
		s := b.SubscribeOn(b.Broker, c)
		var mu sync.Mutex
		next, busy := map[string]int{}, map[string]bool{}
		returned := map[string]bool{}
		var wg sync.WaitGroup
		done := make(chan struct{}, keys*each)
		for range 8 {
			wg.Go(func() {
				for d := range s.Deliveries() {
					key := string(d.Key)
					mu.Lock()
					if busy[key] {
						t.Errorf("two messages of key %s at once", key)
					}
					busy[key] = true
					if want := bodyOf(next[key]); string(d.Payload) != want {
						t.Errorf("key %s: got %s, want %s", key, d.Payload, want)
					}
					again := next[key]%10 == 5 && !returned[d.ID]
					if again {
						returned[d.ID] = true
					} else {
						next[key]++
					}
					mu.Unlock()
					runtime.Gosched() // so that others could come between
					mu.Lock()
					busy[key] = false
					mu.Unlock()
					if again {
						_ = d.Settler.Return(t.Context(), d)
						continue
					}
					_ = d.Settler.Ack(t.Context(), d)
					done <- struct{}{}
				}
			})
		}
		for i := range keys * each {
			select {
			case <-done:
			case <-time.After(patience):
				b.Fatalf("%d messages of %d", i, keys*each)
			}
		}
		b.Close(s)
		wg.Wait()
	})
}
