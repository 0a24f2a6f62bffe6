package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// runs is a program with retries in place, until stop is called.
func (b *bench) runs(c adapters.Consumer, delay time.Duration, handle func(d *adapters.Delivery) error) (stop func()) {
	b.Helper()
	cfg := b.cfg
	sw, err := spillway.Open(context.Background(), b.rawURL, spillway.Config{
		Group: c.Group, Concurrency: c.Concurrency, Retry: adapters.RetryInPlace, ConsumerVersion: "v1", CloseGrace: 2 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
		Policy: policy.Policy{
			Attempts: policy.Attempts{Transient: 4},
			Backoff:  policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone},
		},
	}, kafka.OpenerWith(cfg))
	if err != nil {
		b.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		b.Fatal(err)
	}
	sw.Install(router)
	router.AddConsumerHandler("handler", c.Topic, sw.Subscriber(), func(msg *message.Message) error {
		d, _ := spillway.DeliveryFrom(msg.Context())
		return handle(d)
	})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- router.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ran, sw.Close(context.Background())); err != nil {
			b.Errorf("stop: %v", err)
		}
	})
	b.Cleanup(stop)
	return stop
}

// Issue 4.5: with retries in place those behind a failing message of a key wait
// for it, other keys go on, and the attempts are counted over restarts.
func TestRetryInPlace(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(8)
		const delay = 2 * time.Second
		var mu sync.Mutex
		calls := map[string][]string{}
		var at []time.Time
		other := make(chan time.Time, 10)
		handle := func(d *adapters.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			key := string(d.Key)
			calls[key] = append(calls[key], fmt.Sprintf("%s %s attempt %d", d.Payload, d.Stream, d.State.Attempt))
			if key == "0" && string(d.Payload) == bodyOf(0) {
				at = append(at, time.Now())
				if d.State.Attempt < 4 {
					return failure.Transient(errors.New("not yet"))
				}
			}
			if key == "0" && string(d.Payload) == bodyOf(2) {
				return failure.Permanent(errors.New("never"))
			}
			if key == "1" {
				other <- time.Now()
			}
			return nil
		}
		for i := range 4 {
			b.send(keyed(c.Topic, 0, i))
		}
		b.send(keyed(c.Topic, 1, 0))
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(calls["0"])
		}
		stop := b.runs(c, delay, handle)
		b.Eventually("the first attempt", func() bool { return count() == 1 })
		select {
		case <-other:
		case <-time.After(patience):
			b.Fatal("the other key waits too")
		}
		b.Eventually("the second attempt", func() bool { return count() == 2 })
		b.Eventually("its hand-off", func() bool {
			end, err := b.client.GetOffset(of(adapters.StreamRetry, c)+".inplace", 0, sarama.OffsetNewest)
			return err == nil && end == 2
		})
		stop()
		b.runs(c, delay, handle)
		b.Eventually("all", func() bool { return count() == 7 })
		mu.Lock()
		defer mu.Unlock()
		want := map[string][]string{
			"0": {
				"body 0 main attempt 1", "body 0 retry attempt 2", "body 0 retry attempt 3", "body 0 retry attempt 4",
				"body 1 main attempt 1", "body 2 main attempt 1", "body 3 main attempt 1",
			},
			"1": {"body 0 main attempt 1"},
		}
		if diff := cmp.Diff(want, calls); diff != "" {
			b.Errorf("calls by key (-want +got):\n%s", diff)
		}
		for i := 1; i < len(at); i++ {
			if waited := at[i].Sub(at[i-1]); waited < delay {
				b.Errorf("attempt %d came %s after the one before, want at least %s", i+1, waited, delay)
			}
		}
		var dead []adapters.Record
		b.Eventually("the dead letter", func() bool {
			dead = append(dead, b.Drain(of(adapters.StreamDeadLetter, c))...)
			return len(dead) > 0
		})
		st := envelope.Parse(dead[0].Headers, time.Now())
		if len(dead) != 1 || string(dead[0].Payload) != bodyOf(2) || st.Source.Offset == nil || *st.Source.Offset != 2 {
			b.Errorf("dead letters %q from %+v, want the third message", idsOf(dead), st.Source)
		}
		if left := b.Drain(of(adapters.StreamRetry, c)); len(left) > 0 {
			b.Errorf("%q in the retry topics, want nothing: retries are in place", idsOf(left))
		}
	})
}

// A state that is left of a topic that was deleted is not another message's.
func TestStateInPlaceBelongsToItsMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, fake(t), kafka.Config{})
	c := b.consumer(2)
	c.Retry = adapters.RetryInPlace
	if err := b.Broker.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s := b.SubscribeOn(b.Broker, c)
	b.publish(c.Topic, 1)
	d := b.Next(s)
	b.Handoff(adapters.Handoff{
		Consumer: c, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(time.Hour),
		State: []envelope.Pair{{Key: envelope.KeyAttempt, Value: "2"}},
	})
	b.Ack(d)
	b.Quiet(s, 300*time.Millisecond)
	b.Close(s)
	if err := b.admin.DeleteTopic(c.Topic); err != nil {
		t.Fatal(err)
	}
	b.Eventually("the topic is gone", func() bool {
		topics, err := b.admin.ListTopics()
		_, there := topics[c.Topic]
		return err == nil && !there
	})
	fresh := b.open()
	if err := fresh.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.publish(c.Topic, 1)
	if d := b.Next(b.SubscribeOn(fresh, c)); d.Stream != adapters.StreamMain {
		t.Errorf("a new message came from %s with headers %v", d.Stream, d.Headers)
	} else {
		b.Ack(d)
	}
}

// Where there is no order to keep, retries in place are refused.
func TestRetryInPlaceNeedsAnOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, fake(t), kafka.Config{Order: kafka.OrderNone})
	c := adapters.Consumer{Topic: "t", Group: "g", Concurrency: 1, Retry: adapters.RetryInPlace}
	if b.Broker.Capabilities().InPlaceRetry {
		t.Error("the capability is declared")
	}
	if err := b.Broker.Ensure(t.Context(), c); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("ensure: %v, want ErrUnsupported", err)
	}
}

// What is decided about a message after its partition was lost is not carried out:
// whoever has the partition decides. A retry elsewhere would be a second copy, and
// out of order.
func TestLostPartitionHandsOffNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(2)
		c.Retry = adapters.RetryInPlace
		if err := b.Broker.Ensure(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		s := b.SubscribeOn(b.Broker, c)
		b.publish(c.Topic, 1)
		d := b.Next(s)
		b.Close(s) // the partition goes
		for _, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamDeadLetter} {
			err := b.Broker.Handoff(testContext(b), adapters.Handoff{
				Consumer: c, Stream: stream, Record: d.Record, Due: time.Now().Add(time.Second),
				State: []envelope.Pair{{Key: envelope.KeyAttempt, Value: "2"}},
			})
			if !errors.Is(err, adapters.ErrClosed) {
				b.Errorf("hand-off to %s: %v, want ErrClosed", stream, err)
			}
		}
		if err := d.Settler.Ack(b.Context(), d); err == nil {
			b.Error("the ack was carried out")
		}
		next := b.SubscribeOn(b.open(), c)
		if again := b.Next(next); again.ID != d.ID || again.Stream != adapters.StreamMain {
			b.Errorf("the next owner got %s from %s, want the message as it was", again.ID, again.Stream)
		} else {
			b.Ack(again)
		}
		b.Quiet(next, 1500*time.Millisecond)
		for _, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamDeadLetter} {
			if left := b.Drain(of(stream, c)); len(left) > 0 {
				b.Errorf("%q in the stream %s, want nothing", idsOf(left), stream)
			}
		}
	})
}

// slowDialer is a network on which connections take their time.
type slowDialer struct{ net.Dialer }

func (d slowDialer) Dial(network, addr string) (net.Conn, error) {
	<-time.After(100 * time.Millisecond)
	return d.Dialer.Dial(network, addr)
}

// However many partitions a member gets, it reads what waits in them in time.
func TestRetryInPlaceInManyPartitions(t *testing.T) {
	t.Parallel()
	const n = 120
	// On the fake: a shared broker has other things to do than to make 600 partitions.
	b := setup(t, fake(t), kafka.Config{Partitions: n})
	c := b.consumer(n)
	c.Retry = adapters.RetryInPlace
	if err := b.Broker.Ensure(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	producer, err := sarama.NewSyncProducerFromClient(manual{b.client})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = producer.Close() }()
	for i := range n {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: c.Topic, Partition: int32(i), Value: sarama.StringEncoder("x")}); err != nil {
			b.Fatal(err)
		}
	}
	s := b.SubscribeOn(b.Broker, c)
	var handedOff sync.WaitGroup
	for range n {
		d := b.Next(s)
		handedOff.Go(func() {
			b.Handoff(adapters.Handoff{
				Consumer: c, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(time.Second),
				State: []envelope.Pair{{Key: envelope.KeyAttempt, Value: "2"}},
			})
		})
	}
	handedOff.Wait()
	b.Close(s) // without an ack: what was handed off counts
	cfg := b.cfg
	sc := *cfg.Sarama
	sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, slowDialer{}
	cfg.Sarama = &sc
	s = b.SubscribeOn(b.openWith(cfg), c)
	began := time.Now()
	for range n {
		d := b.Next(s)
		if d.Stream != adapters.StreamRetry {
			b.Errorf("the message of partition %d came from %s, want its second attempt", *d.Position.Partition, d.Stream)
		}
		b.Ack(d)
	}
	b.Logf("%d partitions after %s", n, time.Since(began))
}

// manual is a client whose producers write to the partition that they are told.
type manual struct{ sarama.Client }

func (m manual) Config() *sarama.Config {
	sc := *m.Client.Config()
	sc.Producer.Partitioner = sarama.NewManualPartitioner
	return &sc
}
