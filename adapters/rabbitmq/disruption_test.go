package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// The tests of this file change the broker for everybody. They are not
// parallel, and so run while the parallel ones wait.

// R20: an alarm of the broker ends no wait but by time-out, leaves nothing
// half done that it knows of, and passes.
func TestAlarmBlocksPublishersOnly(t *testing.T) {
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(2)
	sub := b.Subscribe(c)
	b.publish(c.Topic, "", persistent("waits"))
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "warm"}})
	d := b.Next(sub)

	b.ctl("set_vm_memory_high_watermark", "0")
	calm := sync.OnceFunc(func() { b.ctl("set_vm_memory_high_watermark", "0.4") })
	t.Cleanup(calm)
	try := func(id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return b.Broker.Handoff(ctx, adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id}})
	}
	b.Eventually("publishers are blocked", func() bool {
		start := time.Now()
		err := try("limbo")
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("a hand-off took %s to fail", took)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		return err != nil && strings.Contains(err.Error(), "blocks publishers")
	})
	for range 3 {
		if err := try("never written"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	// Consumers go on, and so do declarations.
	b.Ack(d)
	b.Ensure(c)
	calm()
	b.Eventually("publishers go on", func() bool { return try("after") == nil })
	after := 0
	for _, r := range b.Drain(queueOf(adapters.StreamDeadLetter, c)) {
		switch r.ID {
		case "never written":
			t.Error("a hand-off that failed while the connection was blocked was written later")
		case "after":
			after++
		}
	}
	if after != 1 {
		t.Errorf("the hand-off after the alarm was written %d times", after)
	}
}

// R5 in small, and section 11: no id is lost when the broker restarts below
// consumers that hand off. R23: nor what came transient, once it was handed off.
func TestBrokerRestartLosesNothing(t *testing.T) {
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(20)
	sub := b.Subscribe(c)
	const n = 500
	var msgs []*message.Message
	for i := range n {
		msgs = append(msgs, message.NewMessage(fmt.Sprint(i), []byte("x")))
	}
	if err := b.Broker.Publisher().Publish(c.Topic, msgs...); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	dead := map[string]int{} // confirmed hand-offs by id
	done := make(chan struct{})
	halfway := make(chan struct{})
	var workers sync.WaitGroup
	for range c.Concurrency + 1 {
		workers.Go(func() {
			for d := range sub.Deliveries() {
				h := adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(200 * time.Millisecond)}
				if d.Stream == adapters.StreamRetry {
					h.Stream = adapters.StreamDeadLetter
				}
				for {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					err := b.Broker.Handoff(ctx, h)
					cancel()
					if err == nil {
						break
					}
					pause(100 * time.Millisecond)
				}
				_ = d.Settler.Ack(context.Background(), d)
				if h.Stream != adapters.StreamDeadLetter {
					continue
				}
				mu.Lock()
				dead[d.ID]++
				if len(dead) == n/5 && dead[d.ID] == 1 {
					close(halfway)
				}
				if len(dead) == n && dead[d.ID] == 1 {
					close(done)
				}
				mu.Unlock()
			}
		})
	}
	transient := b.consumer(1)
	waiting := b.Subscribe(transient)
	for _, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter} {
		b.publish(transient.Topic, "", amqp.Publishing{Headers: amqp.Table{"_watermill_message_uuid": "transient"}, DeliveryMode: amqp.Transient})
		d := b.Next(waiting)
		b.Handoff(adapters.Handoff{Consumer: transient, Stream: stream, Record: d.Record, Due: time.Now().Add(10 * time.Minute)})
		b.Ack(d)
	}
	wait(t, halfway, "some are dead letters")
	b.ctl("stop_app")
	b.ctl("start_app")
	wait(t, done, "all are dead letters")
	b.Close(sub)
	workers.Wait()

	seen := map[string]int{}
	b.reconnect()
	for _, r := range b.Drain(queueOf(adapters.StreamDeadLetter, c)) {
		seen[r.ID]++
	}
	duplicates := 0
	for i := range n {
		if seen[fmt.Sprint(i)] == 0 {
			t.Errorf("message %d is lost", i)
		}
		duplicates += max(seen[fmt.Sprint(i)]-1, 0)
	}
	t.Logf("%d duplicates", duplicates)
	for what, n := range map[string]int{
		"wait":             b.depth(fmt.Sprintf("%s.delay.%dms", b.cfg.Prefix, rabbitmq.NewLadder(125*time.Millisecond, 15*time.Minute).Rung(10*time.Minute).Milliseconds())),
		"are parked":       b.parked(transient),
		"are dead letters": b.depth(queueOf(adapters.StreamDeadLetter, transient)),
	} {
		if n != 1 {
			t.Errorf("%d messages that came transient %s, want 1", n, what)
		}
	}
}

// reconnect replaces the plain client after the broker threw everybody out.
func (b *bench) reconnect() {
	b.Helper()
	b.Eventually("the broker answers", func() bool {
		b.drop("no-such-queue")
		return !b.client.IsClosed()
	})
}

func pause(d time.Duration) { <-time.After(d) }

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(3 * patience):
		t.Fatalf("not within %s: %s", 3*patience, what)
	}
}

// What the broker never takes for its size is told apart from what fails today.
func TestMaximumMessageSize(t *testing.T) {
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	usual := strings.TrimSpace(b.ctl("eval", "application:get_env(rabbit, max_message_size, 134217728)."))
	limit := func(n string) { // RabbitMQ 4 reads the second
		b.ctl("eval", "[application:set_env(rabbit, max_message_size, "+n+"), persistent_term:put(max_message_size, "+n+")].")
	}
	limit("100000")
	t.Cleanup(func() { limit(usual) })
	sub := b.Subscribe(c)
	record := adapters.Record{ID: "fits", Payload: make([]byte, 100_000)}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: record})
	b.Ack(b.Next(sub))
	record.Payload = make([]byte, 100_001)
	err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: record})
	if !errors.Is(err, adapters.ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
}

// What happens to a queue that was being declared when the broker died: it is
// there, takes messages, and never confirms them. The storm found it.
func TestARungThatDoesNotConfirmIsAvoided(t *testing.T) {
	b := setup(t, rabbitmq.Config{PublishTimeout: time.Second})
	c := b.consumer(2)
	sub := b.Subscribe(c)
	retry := func(id string) error {
		return b.Broker.Handoff(t.Context(), adapters.Handoff{
			Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id}, Due: time.Now().Add(490 * time.Millisecond),
		})
	}
	if err := retry("before"); err != nil {
		t.Fatal(err)
	}
	b.Ack(b.Next(sub))

	server := fmt.Sprintf("{list_to_atom(%q), node()}", "%2F_"+b.cfg.Prefix+".delay.500ms")
	b.ctl("eval", "sys:suspend("+server+").")
	t.Cleanup(func() { b.ctl("eval", "sys:resume("+server+").") })
	if err := retry("silent"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a hand-off to a queue that does not confirm: %v", err)
	}
	for range 3 {
		if err := retry("around"); err != nil {
			t.Fatalf("the next one: %v", err)
		}
		if d := b.Next(sub); d.ID != "around" {
			t.Errorf("got %s", d.ID)
		} else {
			b.Ack(d)
		}
	}
}

func TestConnectionErrorsKeepTheSecret(t *testing.T) {
	t.Parallel()
	b := &bench{Bench: adaptertest.Bench{T: t}, rawURL: brokertest.URL(t, urlVariable)}
	const secret = "p@ss/w?rd#1%41"
	for name, rawURL := range map[string]string{
		"wrong password": b.withUser("guest", secret),
		"nobody there":   "amqp://guest:hunter2hunter2@127.0.0.1:1/",
		"no such vhost":  b.withUser("guest", "guest") + "no-such-vhost",
		"bad heartbeat":  "amqp://guest:hunter2hunter2@127.0.0.1:1/?heartbeat=never",
	} {
		_, err := tryOpen(t, rawURL, rabbitmq.Config{})
		if err == nil {
			t.Errorf("%s: connected", name)
			continue
		}
		for _, s := range []string{secret, "p%40ss", "hunter2", "guest:guest"} {
			if strings.Contains(err.Error(), s) {
				t.Errorf("%s: the secret is in %v", name, err)
			}
		}
	}
}

// A broker that accepts and says nothing.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now()
	_, err = tryOpen(t, "amqp://guest:guest@"+l.Addr().String()+"/", rabbitmq.Config{DialTimeout: 200 * time.Millisecond})
	if err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
}
