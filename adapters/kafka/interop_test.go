package kafka_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

func (b *bench) addrs() []string { return strings.Split(strings.TrimPrefix(b.rawURL, "kafka://"), ",") }

// Producers and consumers of watermill-kafka work with ours, in both directions.
func TestWireFormatIsWatermillKafkas(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		sc := wkafka.DefaultSaramaSyncPublisherConfig()
		theirs, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: b.addrs(), Marshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: sc}, watermill.NopLogger{})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = theirs.Close() }()
		msg := message.NewMessage("theirs", []byte("body"))
		msg.Metadata.Set("tenant", "acme")
		if err := theirs.Publish(c.Topic, msg); err != nil {
			b.Fatal(err)
		}
		d := b.Next(b.SubscribeOn(b.Broker, c))
		want := []adapters.Header{{Key: "tenant", Value: []byte("acme")}}
		if diff := cmp.Diff(want, d.Headers); diff != "" || d.ID != "theirs" || string(d.Payload) != "body" {
			b.Errorf("got %q %q (-want +got):\n%s", d.ID, d.Payload, diff)
		}
		b.Ack(d)

		ours := message.NewMessage("ours", []byte("body"))
		ours.Metadata.Set("tenant", "acme")
		if err := b.Broker.Publisher().Publish(c.Topic, ours); err != nil {
			b.Fatal(err)
		}
		ssc := wkafka.DefaultSaramaSubscriberConfig()
		ssc.Consumer.Offsets.Initial = sarama.OffsetOldest
		sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{Brokers: b.addrs(), ConsumerGroup: "audit-" + c.Topic, Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: ssc}, watermill.NopLogger{})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = sub.Close() }()
		in, err := sub.Subscribe(b.Context(), c.Topic)
		if err != nil {
			b.Fatal(err)
		}
		for {
			select {
			case got := <-in:
				got.Ack()
				if got.UUID != "ours" {
					continue
				}
				if string(got.Payload) != "body" || got.Metadata.Get("tenant") != "acme" {
					b.Errorf("watermill-kafka reads %q %v", got.Payload, got.Metadata)
				}
			case <-time.After(patience):
				b.Fatal("watermill-kafka reads nothing of ours")
			}
			return
		}
	})
}

// A group that was watermill-kafka's goes on where that was.
func TestGroupOfWatermillKafkaIsContinued(t *testing.T) {
	t.Parallel()
	b := setup(t, fake(t), kafka.Config{})
	c := b.consumer(1)
	b.publish(c.Topic, 3)
	// A commit as any client makes it: without our metadata.
	group := c.Topic + "." + c.Group
	coordinator, err := b.client.Coordinator(group)
	if err != nil {
		t.Fatal(err)
	}
	req := sarama.NewOffsetCommitRequest(b.client.Config(), group)
	req.AddBlock(c.Topic, 0, 2, 0, "theirs")
	if _, err := coordinator.CommitOffset(req); err != nil {
		t.Fatal(err)
	}
	d := b.Next(b.SubscribeOn(b.Broker, c))
	if d.ID != "m-00002" || d.Count != 1 {
		t.Errorf("got %s as delivery %d, want m-00002 for the first time", d.ID, d.Count)
	}
	b.Ack(d)
}

// StartNewest: a new group gets what is published from its first Ensure on.
func TestStartNewest(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		b.publish(c.Topic, 2)
		c.Group = "late"
		cfg := b.cfg
		cfg.Start = kafka.StartNewest
		broker := b.openWith(cfg)
		for range 2 { // the second one changes nothing
			if err := broker.Ensure(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			b.send(keyed(c.Topic, 0, 7))
		}
		s := b.SubscribeOn(broker, c)
		for range 2 {
			d := b.Next(s)
			if string(d.Payload) != bodyOf(7) {
				b.Errorf("got %q, which was there before the group", d.Payload)
			}
			b.Ack(d)
		}
		b.Quiet(s, 500*time.Millisecond)
	})
}

// StartNewest, with one group for several topics: nobody but members may commit for
// a group that has some, so whoever reads the topic first begins where it was noted.
func TestStartNewestInAGroupThatRuns(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Partitions: 2}, func(b *bench) {
		cfg := b.cfg
		cfg.Start, cfg.GroupPerTopic = kafka.StartNewest, false
		broker := b.openWith(cfg)
		first, second := b.consumer(1), b.consumer(1)
		first.Group = "shared-" + first.Topic
		second.Group = first.Group
		if err := broker.Ensure(b.Context(), first); err != nil {
			b.Fatal(err)
		}
		s := b.SubscribeOn(broker, first)
		b.publish(first.Topic, 1)
		b.Ack(b.Next(s)) // the group has a member
		b.publish(second.Topic, 20)
		if err := broker.Ensure(b.Context(), second); err != nil {
			b.Fatal(err)
		}
		for i := range 8 {
			b.send(keyed(second.Topic, i, 7)) // in both partitions
		}
		late := b.SubscribeOn(broker, second)
		for range 8 {
			d := b.Next(late)
			if string(d.Payload) != bodyOf(7) {
				b.Errorf("got %q, which was there before the group", d.Payload)
			}
			b.Ack(d)
		}
		b.Quiet(late, 500*time.Millisecond)
		// It is noted once: the next process goes on where this one was.
		b.Close(late)
		b.send(keyed(second.Topic, 0, 8))
		next := b.openWith(cfg)
		if err := next.Ensure(b.Context(), second); err != nil {
			b.Fatal(err)
		}
		if d := b.Next(b.SubscribeOn(next, second)); string(d.Payload) != bodyOf(8) {
			b.Errorf("got %q, want what came meanwhile", d.Payload)
		}
	})
}

// picky is a marshaler that cannot read everything.
type picky struct{ wkafka.DefaultMarshaler }

var errPicky = errors.New("cannot read this")

func (p picky) Unmarshal(m *sarama.ConsumerMessage) (*message.Message, error) {
	if strings.HasPrefix(string(m.Value), "bad") {
		return nil, errPicky
	}
	msg, err := p.DefaultMarshaler.Unmarshal(m)
	if err == nil {
		msg.Payload = append([]byte("read: "), msg.Payload...)
	}
	return msg, err
}

// K5, invariant 13: what the user's marshaler cannot read reaches the chain, raw,
// and hand-offs keep the original bytes of what it can.
func TestMarshalerOfTheUser(t *testing.T) {
	t.Parallel()
	b := setup(t, fake(t), kafka.Config{Marshaler: picky{}})
	c := b.consumer(1)
	b.send(&sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder("bad body")})
	b.send(&sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder("good")})
	s := b.SubscribeOn(b.Broker, c)
	d := b.Next(s)
	if !errors.Is(d.Undecodable, errPicky) || string(d.Payload) != "bad body" {
		t.Errorf("got %q, undecodable: %v", d.Payload, d.Undecodable)
	}
	b.Ack(d)
	d = b.Next(s)
	if d.Undecodable != nil || string(d.Payload) != "read: good" {
		t.Errorf("got %q, undecodable: %v", d.Payload, d.Undecodable)
	}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: d.Record})
	b.Ack(d)
	if m := b.raw(of(adapters.StreamDeadLetter, c), 1)[0]; string(m.Value) != "good" {
		t.Errorf("the dead letter is %q, want the original", m.Value)
	}
}

// tracer counts what it wraps.
type tracer struct {
	mu             sync.Mutex
	sent, consumed int
}

func (t *tracer) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }
func (t *tracer) WrapPartitionConsumer(pc sarama.PartitionConsumer) sarama.PartitionConsumer {
	return pc
}
func (t *tracer) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	return tracedHandler{h, t}
}
func (t *tracer) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return tracedProducer{p, t}
}

type tracedProducer struct {
	sarama.SyncProducer
	t *tracer
}

func (p tracedProducer) SendMessage(m *sarama.ProducerMessage) (int32, int64, error) {
	p.t.mu.Lock()
	p.t.sent++
	p.t.mu.Unlock()
	return p.SyncProducer.SendMessage(m)
}

type tracedHandler struct {
	sarama.ConsumerGroupHandler
	t *tracer
}

func (h tracedHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	h.t.mu.Lock()
	h.t.consumed++
	h.t.mu.Unlock()
	return h.ConsumerGroupHandler.ConsumeClaim(s, c)
}

// Issue 4.6: the user's tracer wraps what the application publishes and reads,
// and the user's client id is what the broker sees.
func TestTracerOfTheUser(t *testing.T) {
	t.Parallel()
	tr := &tracer{}
	b := setup(t, fake(t), kafka.Config{Tracer: tr})
	c := b.consumer(1)
	if err := b.Broker.Publisher().Publish(c.Topic, message.NewMessage("a", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	d := b.Next(b.SubscribeOn(b.Broker, c))
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: d.Record})
	b.Ack(d)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.sent != 1 || tr.consumed == 0 {
		t.Errorf("%d publishes and %d claims were wrapped, want 1 and some", tr.sent, tr.consumed)
	}
}

// A URL that cannot be right says why, before anything is asked of a broker.
func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"kafka://":                     "names no broker",
		"kafka://h:0":                  "no port",
		"kafka://h:9092/orders":        "has a path",
		"kafka://h:9092?acks=1":        "option \"acks\"",
		"kafka://u:hunter2@h:9092?x=y": "option \"x\"",
	} {
		_, err := openURL(t, rawURL, kafka.Config{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
	}
	_, err := openURL(t, "kafka://h:1", kafka.Config{
		Order: "x", Start: "y", Window: 20_000, WindowBytes: -1, CommitInterval: time.Hour, RevokeGrace: time.Minute,
		Partitions: -1, DeadLetterRetention: 1, RetryRetention: 1, PublishTimeout: -1,
	})
	for _, field := range []string{"Order", "Start", "Window", "WindowBytes", "CommitInterval", "RevokeGrace", "Partitions", "DeadLetterRetention", "RetryRetention", "PublishTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s is not among the problems: %v", field, err)
		}
	}
}

func openURL(t *testing.T, rawURL string, cfg kafka.Config) (adapters.Broker, error) {
	t.Helper()
	u, err := parseURL(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return kafka.OpenerWith(cfg).Open(ctx, adapters.OpenParams{URL: u})
}
