package kafka_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/internal/cputime"
)

// BenchmarkSuccessPath is a message that its handler processes at once, from a
// cluster in this process, whose share is the same on both sides, through
// subscriber, Router and chain. Beside it is watermill-kafka with a bare Router.
func BenchmarkSuccessPath(b *testing.B) {
	b.Run("spillway", func(b *testing.B) {
		rawURL := fake(b)
		sw, err := spillway.Open(b.Context(), rawURL, spillway.Config{
			Group: "billing", Concurrency: 64, ConsumerVersion: "v1", Logger: slog.New(slog.DiscardHandler),
		}, kafka.OpenerWith(kafka.Config{Sarama: testSarama()}))
		if err != nil {
			b.Fatal(err)
		}
		router := message.NewDefaultRouter(watermill.NopLogger{})
		sw.Install(router)
		measurePath(b, rawURL, router, sw.Subscriber())
		if err := sw.Close(testContext(b)); err != nil {
			b.Error(err)
		}
	})
	b.Run("bare", func(b *testing.B) {
		rawURL := fake(b)
		sc := wkafka.DefaultSaramaSubscriberConfig()
		sc.Consumer.Offsets.Initial = sarama.OffsetOldest
		sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
			Brokers: brokersOf(rawURL), ConsumerGroup: "billing", Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: sc,
			InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1},
		}, watermill.NopLogger{})
		if err != nil {
			b.Fatal(err)
		}
		measurePath(b, rawURL, message.NewDefaultRouter(watermill.NopLogger{}), sub)
	})
}

// measurePath consumes messages that lie in three partitions.
func measurePath(b *testing.B, rawURL string, router *message.Router, sub message.Subscriber) {
	const topic = "orders"
	if err := sub.(message.SubscribeInitializer).SubscribeInitialize(topic); err != nil {
		b.Fatal(err)
	}
	fill(b, rawURL, topic)
	open, done := make(chan struct{}), make(chan struct{})
	var handled atomic.Int64
	router.AddConsumerHandler("charge", topic, sub, func(*message.Message) error {
		<-open
		if handled.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(b.Context())) }()
	<-router.Running()

	b.ReportAllocs()
	b.ResetTimer()
	spent := cputime.Spent()
	close(open)
	<-done
	b.StopTimer()
	b.ReportMetric(float64(cputime.Spent()-spent)/float64(b.N), "cpu-ns/op")

	if err := router.Close(); err != nil {
		b.Error(err)
	}
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

func fill(b *testing.B, rawURL, topic string) {
	sc := testSarama()
	sc.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(brokersOf(rawURL), sc)
	if err != nil {
		b.Fatal(err)
	}
	var batch []*sarama.ProducerMessage
	for i := range b.N {
		wire, err := wkafka.DefaultMarshaler{}.Marshal(topic, message.NewMessage(strconv.Itoa(i), make([]byte, 512)))
		if err != nil {
			b.Fatal(err)
		}
		wire.Key = sarama.StringEncoder(strconv.Itoa(i))
		if batch = append(batch, wire); len(batch) == 1000 || i == b.N-1 {
			if err := p.SendMessages(batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
}

func brokersOf(rawURL string) []string {
	return strings.Split(strings.TrimPrefix(rawURL, "kafka://"), ",")
}
