package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestConcurrencyBoundsTheUnsettled(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(3)
	sub := b.Subscribe(c)
	for i := range 6 {
		b.publish(c.Topic, "", persistent(fmt.Sprintf("main-%d", i)))
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: fmt.Sprintf("retry-%d", i)}})
	}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamSuspect, Record: adapters.Record{ID: "suspect-0"}})
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamSuspect, Record: adapters.Record{ID: "suspect-1"}})

	var held []*adapters.Delivery
	for range c.Concurrency + 1 {
		held = append(held, b.Next(sub))
	}
	b.Quiet(sub, 200*time.Millisecond)
	suspects := slices.DeleteFunc(slices.Clone(held), func(d *adapters.Delivery) bool { return d.Stream != adapters.StreamSuspect })
	if len(suspects) != 1 {
		t.Errorf("%d suspects are out", len(suspects))
	}
	seen := map[string]int{}
	for len(seen) < 14 {
		for _, d := range held {
			seen[d.ID]++
			b.Ack(d)
			if err := d.Settler.Ack(t.Context(), d); err != nil {
				t.Errorf("the second ack of %s: %v", d.ID, err)
			}
			if err := d.Settler.Return(t.Context(), d); err != nil {
				t.Errorf("return after ack of %s: %v", d.ID, err)
			}
		}
		if len(seen) < 14 {
			held = []*adapters.Delivery{b.Next(sub)}
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was delivered %d times", id, n)
		}
	}
}

// A slot that gets free must not wait for the broker: the next message is here.
// With one slot none is, so that what is returned comes again before the rest.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	for concurrency, left := range map[int]int{1: 9, 4: 3} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			t.Parallel()
			b := setup(t, rabbitmq.Config{})
			c := b.consumer(concurrency)
			b.Ensure(c)
			for i := range 10 {
				b.publish(c.Topic, "", persistent(fmt.Sprint(i)))
			}
			sub := b.Subscribe(c)
			for range concurrency {
				b.Next(sub)
			}
			b.depthBecomes(queueOf(adapters.StreamMain, c), left)
			b.Quiet(sub, 200*time.Millisecond)
			if got := b.depth(queueOf(adapters.StreamMain, c)); got != left {
				t.Errorf("%d of 10 messages are still with the broker, want %d", got, left)
			}
		})
	}
}

func TestOrderIsKeptWithConcurrencyOne(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	var want, got []string
	for i := range 50 {
		want = append(want, fmt.Sprint(i))
		b.publish(c.Topic, "", persistent(want[i]))
	}
	sub := b.Subscribe(c)
	for i := range want {
		d := b.Next(sub)
		if i%10 == 3 && d.Count == 1 {
			b.Return(d)
			d = b.Next(sub)
		}
		got = append(got, d.ID)
		b.Ack(d)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// R26: the broker's count, from 1, of this message only.
func TestDeliveryCount(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	b.publish(c.Topic, "", persistent("m"))
	for want := 1; want <= 5; want++ {
		d := b.Next(sub)
		if d.Count != want {
			t.Errorf("delivery %d counts %d", want, d.Count)
		}
		if _, ok := header(d.Record, "x-delivery-count"); ok {
			t.Error("the handler sees the broker's count")
		}
		if want < 5 {
			b.Return(d)
			continue
		}
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamSuspect, Record: d.Record})
		b.Ack(d)
	}
	d := b.Next(sub)
	if d.Stream != adapters.StreamSuspect || d.Count != 1 {
		t.Errorf("got count %d from %s", d.Count, d.Stream)
	}
	// A connection that dies counts too.
	b.Close(sub)
	sub = b.Subscribe(c)
	if d := b.Next(sub); d.Stream != adapters.StreamSuspect || d.Count != 2 {
		t.Errorf("got count %d from %s", d.Count, d.Stream)
	} else {
		b.Ack(d)
	}
}

// R6: a crash loop that the chain does not stop ends in the dead letter queue,
// on every version.
func TestDeliveryLimitIsANet(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{DeliveryLimit: 25})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	b.publish(c.Topic, "", persistent("m"))
	for range 26 {
		b.Return(b.Next(sub))
	}
	dlq := queueOf(adapters.StreamDeadLetter, c)
	b.depthBecomes(dlq, 1)
	b.Quiet(sub, 50*time.Millisecond)
	got := b.Drain(dlq)
	h, ok := header(got[0], "x-death")
	if !ok || h.Type != "array" || !strings.Contains(string(h.Value), `"reason":"delivery_limit"`) || got[0].ID != "m" {
		t.Errorf("dead letter %+v", got[0])
	}
}

func TestStopGivesBackWhatWasOnItsWay(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(4)
	sub := b.Subscribe(c)
	for i := range 10 {
		b.publish(c.Topic, "", persistent(fmt.Sprint(i)))
	}
	first, second := b.Next(sub), b.Next(sub)
	if err := sub.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, ok := <-sub.Deliveries(); ok {
		t.Errorf("%s was delivered after Stop", d.ID)
	}
	b.depthBecomes(queueOf(adapters.StreamMain, c), 8)
	b.Ack(first) // what was received before can still be settled
	if err := sub.Stop(t.Context()); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	b.Close(sub)
	b.depthBecomes(queueOf(adapters.StreamMain, c), 9)
	if err := second.Settler.Ack(t.Context(), second); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("ack after Close: %v", err)
	}
	b.Close(sub)
}

// The client library mixes up the answers to concurrent requests on a channel,
// which made a Close during the start wait forever.
func TestCloseDuringTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 5 {
				s, err := b.Broker.Subscribe(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				b.Close(s)
			}
		})
	}
	wg.Wait()
}

// R28: a queue that vanishes brings no phantom message, and comes back.
func TestQueueDeletedUnderItsConsumer(t *testing.T) {
	t.Parallel()
	for _, stream := range []adapters.Stream{adapters.StreamMain, adapters.StreamRetry, adapters.StreamSuspect} {
		t.Run(string(stream), func(t *testing.T) {
			t.Parallel()
			b := setup(t, rabbitmq.Config{})
			c := b.consumer(2)
			sub := b.Subscribe(c)
			b.publish(c.Topic, "", persistent("before"))
			before := b.Next(sub)
			if _, err := b.ch.QueueDelete(queueOf(stream, c), false, false, false); err != nil {
				t.Fatal(err)
			}
			b.Eventually("the queue is declared anew, and read", func() bool {
				ch := b.channel()
				q, err := ch.QueueDeclarePassive(queueOf(stream, c), true, false, false, false, nil)
				_ = ch.Close()
				return err == nil && (q.Consumers == 1 || stream == adapters.StreamSuspect) // which is looked at, not consumed
			})
			// Its channel lives on until it is settled.
			_ = before.Settler.Ack(t.Context(), before)
			if stream == adapters.StreamMain {
				b.publish(c.Topic, "", persistent("after"))
			} else {
				b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: adapters.Record{ID: "after"}})
			}
			d := b.Next(sub)
			if d.ID != "after" || d.Stream != stream {
				t.Errorf("got %q from %s", d.ID, d.Stream)
			}
			b.Ack(d)
		})
	}
}

// A suspect is alone in its process, however many subscriptions that has.
func TestOneSuspectAtATimeInAProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	one, two := b.Subscribe(c), b.Subscribe(c)
	for i := range 2 {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamSuspect, Record: adapters.Record{ID: fmt.Sprint(i)}})
	}
	either := func() *adapters.Delivery {
		select {
		case d := <-one.Deliveries():
			return d
		case d := <-two.Deliveries():
			return d
		case <-time.After(300 * time.Millisecond):
			return nil
		}
	}
	b.Eventually("the first arrives", func() bool {
		d := either()
		if d == nil {
			return false
		}
		if again := either(); again != nil {
			t.Errorf("%s and %s are out together", d.ID, again.ID)
		}
		b.Ack(d)
		return true
	})
	// Whoever had the token is gone, and the other takes over.
	b.Close(one)
	d := b.Next(two)
	if d.Stream != adapters.StreamSuspect {
		t.Errorf("got %q from %s", d.ID, d.Stream)
	}
	b.Ack(d)
}

// R11: a retry is seen by the group that failed, and by nobody else.
func TestRetriesStayWithTheirGroup(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	failing := b.consumer(1)
	healthy := b.consumerOf(failing.Topic, "shipping", 1)
	subFailing, subHealthy := b.Subscribe(failing), b.Subscribe(healthy)
	b.publish(failing.Topic, "", persistent("m"))
	b.Ack(b.Next(subHealthy))
	for range 6 { // R2: the same rung again and again
		d := b.Next(subFailing)
		b.Handoff(adapters.Handoff{Consumer: failing, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(100 * time.Millisecond)})
		b.Ack(d)
	}
	d := b.Next(subFailing)
	// R8: no queue is in x-death but the rung, and that once.
	deaths, _ := d.Native.(*amqp.Delivery).Headers["x-death"].([]any)
	if len(deaths) != 1 || deaths[0].(amqp.Table)["count"] != int64(1) {
		t.Errorf("x-death %v", deaths)
	}
	if len(d.Headers) > 0 {
		t.Errorf("the handler sees %v", d.Headers)
	}
	b.Ack(d)
	b.Quiet(subHealthy, 100*time.Millisecond)
}

func TestSubscribeRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	for _, n := range []int{0, -1, 65536} {
		c.Concurrency = n
		if _, err := b.Broker.Subscribe(t.Context(), c); err == nil {
			t.Errorf("concurrency %d was taken", n)
		}
	}
	c.Concurrency, c.Retry = 1, adapters.RetryInPlace
	if err := b.Broker.Ensure(t.Context(), c); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("retry in place: %v", err)
	}
	if _, err := b.Broker.Subscribe(t.Context(), c); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("retry in place: %v", err)
	}
}

func TestClosedBroker(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	closed := open(t, b.rawURL, b.cfg)
	for range 2 {
		if err := closed.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, subErr := closed.Subscribe(t.Context(), c)
	for what, err := range map[string]error{
		"Ensure":    closed.Ensure(t.Context(), c),
		"Subscribe": subErr,
		"Handoff":   closed.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry}),
		"Drain":     closed.Drain(t.Context(), "x", func(context.Context, adapters.Record) error { return nil }),
	} {
		if !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
