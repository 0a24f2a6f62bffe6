package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestWatermillPublisherToUs(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]struct {
		topic  rabbitmq.Topic
		config func(url string) wamqp.Config
	}{
		"DurablePubSub": {rabbitmq.Topic{}, func(url string) wamqp.Config { return wamqp.NewDurablePubSubConfig(url, nil) }},
		"DurableQueue":  {rabbitmq.Topic{Kind: rabbitmq.KindQueue}, wamqp.NewDurableQueueConfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, rabbitmq.Config{Topic: layout.topic})
			c := b.consumer(1)
			sub := b.Subscribe(c)
			pub, err := wamqp.NewPublisher(layout.config(b.rawURL), watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			defer pub.Close()
			sent := message.NewMessage(watermill.NewUUID(), []byte("payload"))
			sent.Metadata = message.Metadata{"a": "1", "b": ""}
			if err := pub.Publish(c.Topic, sent); err != nil {
				t.Fatal(err)
			}
			d := b.Next(sub)
			got := message.Metadata{}
			for _, h := range d.Headers {
				got[h.Key] = string(h.Value)
			}
			if d.ID != sent.UUID || string(d.Payload) != "payload" || !cmp.Equal(got, sent.Metadata) {
				t.Errorf("got %q, %q, %v", d.ID, d.Payload, got)
			}
			b.Ack(d)
		})
	}
}

func TestOurPublisherToWatermill(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]struct {
		topic  rabbitmq.Topic
		config func(url string) wamqp.Config
	}{
		"DurablePubSub": {rabbitmq.Topic{}, func(url string) wamqp.Config {
			return wamqp.NewDurablePubSubConfig(url, wamqp.GenerateQueueNameTopicNameWithSuffix("plain"))
		}},
		"DurableQueue": {rabbitmq.Topic{Kind: rabbitmq.KindQueue}, wamqp.NewDurableQueueConfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, rabbitmq.Config{Topic: layout.topic})
			c := b.consumer(1)
			t.Cleanup(func() { b.drop(c.Topic + "_plain") })
			sub, err := wamqp.NewSubscriber(layout.config(b.rawURL), watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			msgs, err := sub.Subscribe(t.Context(), c.Topic)
			if err != nil {
				t.Fatal(err)
			}
			sent := message.NewMessage(watermill.NewUUID(), []byte("payload"))
			sent.Metadata = message.Metadata{"a": "1", "b": ""}
			if err := b.Broker.Publisher().Publish(c.Topic, sent); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-msgs:
				got.Ack()
				if got.UUID != sent.UUID || string(got.Payload) != "payload" || !cmp.Equal(got.Metadata, sent.Metadata) {
					t.Errorf("got %q, %q, %v", got.UUID, got.Payload, got.Metadata)
				}
			case <-time.After(patience):
				t.Fatal("nothing arrived")
			}
		})
	}
}

func TestPublisherKeepsOrderInBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	var msgs []*message.Message
	for i := range 600 {
		msgs = append(msgs, message.NewMessage(fmt.Sprint(i), nil))
	}
	pub := b.Broker.Publisher()
	if err := pub.Publish(c.Topic, msgs...); err != nil {
		t.Fatal(err)
	}
	for i := range msgs {
		d := b.Next(sub)
		if d.ID != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, d.ID)
		}
		b.Ack(d)
	}
	if err := pub.Publish(c.Topic); err != nil {
		t.Errorf("no messages: %v", err)
	}
	if err := pub.Close(); err != nil {
		t.Error(err)
	}
	// Close does nothing, and the end of the message's context neither.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	msg := message.NewMessage("after", nil)
	msg.SetContext(ctx)
	if err := pub.Publish(c.Topic, msg); err != nil {
		t.Fatal(err)
	}
	b.Ack(b.Next(sub))
}

func TestPublisherManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{Lanes: 4})
	c := b.consumer(32)
	sub := b.Subscribe(c)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if err := b.Broker.Publisher().Publish(c.Topic, message.NewMessage(fmt.Sprint(i), nil)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for len(seen) < 200 {
		d := b.Next(sub)
		seen[d.ID] = true
		b.Ack(d)
	}
}

func TestPublisherSaysWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	pub := b.Broker.Publisher()
	large := message.NewMessage("large", nil)
	large.Metadata.Set("k", strings.Repeat("v", 200_000))
	if err := pub.Publish(c.Topic, large); !errors.Is(err, adapters.ErrTooLarge) {
		t.Errorf("200,000 bytes of metadata: %v", err)
	}
	long := message.NewMessage("long", nil)
	long.Metadata.Set(strings.Repeat("k", 256), "v")
	if err := pub.Publish(c.Topic, long); !errors.Is(err, adapters.ErrRefused) {
		t.Errorf("a key of 256 bytes: %v", err)
	}
	// Nobody has to listen.
	nobody := b.consumer(1)
	if err := pub.Publish(nobody.Topic, message.NewMessage("m", nil)); err != nil {
		t.Errorf("a topic without groups: %v", err)
	}
	// An exchange that was deleted is declared anew by the next publish.
	if err := b.ch.ExchangeDelete(c.Topic, false, false); err != nil {
		t.Fatal(err)
	}
	if err := pub.Publish(c.Topic, message.NewMessage("m", nil)); err == nil {
		t.Error("a publish to an exchange that is gone was confirmed")
	}
	if err := pub.Publish(c.Topic, message.NewMessage("m", nil)); err != nil {
		t.Error(err)
	}
}
