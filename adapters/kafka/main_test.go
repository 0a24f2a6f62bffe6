package kafka_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"go.uber.org/goleak"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if raw := os.Getenv(childVariable); raw != "" {
		var child crasher
		if err := json.Unmarshal([]byte(raw), &child); err != nil {
			panic(err)
		}
		child.run()
		return
	}
	// They wait more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(adaptertest.PubSubLeak),
		// sarama gives the goroutines of a closed client's connections no time.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// bench is a cluster under test, and a plain client beside it.
type bench struct {
	adaptertest.Bench
	rawURL   string
	cfg      kafka.Config
	client   sarama.Client
	producer sarama.SyncProducer
	admin    sarama.ClusterAdmin
}

// onBoth runs a test on a cluster in the process and on a real one.
func onBoth(t *testing.T, cfg kafka.Config, test func(*bench)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(setup(t, fake(t), cfg))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(setup(t, brokertest.URL(t, urlVariable), cfg))
	})
}

func setup(t *testing.T, rawURL string, cfg kafka.Config) *bench {
	t.Helper()
	if cfg.Sarama == nil {
		cfg.Sarama = testSarama()
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = 1
	}
	cfg.GroupPerTopic = true
	b := &bench{Bench: adaptertest.Bench{T: t, Patience: patience}, rawURL: rawURL, cfg: cfg}
	sc := testSarama()
	sc.Producer.Return.Successes = true
	sc.Producer.Partitioner = sarama.NewHashPartitioner
	var err error
	if b.client, err = sarama.NewClient(strings.Split(strings.TrimPrefix(rawURL, "kafka://"), ","), sc); err != nil {
		t.Fatal(err)
	}
	if b.producer, err = sarama.NewSyncProducerFromClient(b.client); err != nil {
		t.Fatal(err)
	}
	if b.admin, err = sarama.NewClusterAdminFromClient(b.client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.producer.Close()
		_ = b.admin.Close()
	})
	b.Broker = b.open()
	return b
}

// open opens a connection of its own, like that of another process.
func (b *bench) open() adapters.Broker {
	b.Helper()
	return b.openWith(b.cfg)
}

func (b *bench) openWith(cfg kafka.Config) adapters.Broker {
	b.Helper()
	u, err := url.Parse(b.rawURL)
	if err != nil {
		b.Fatal(err)
	}
	broker, err := kafka.OpenerWith(cfg).Open(b.Context(), adapters.OpenParams{URL: u, Logger: slog.New(slog.NewTextHandler(b.Output(), nil))})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := broker.Close(ctx); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	return broker
}

// consumer returns a consumer with a topic of its own, whose topics exist.
func (b *bench) consumer(concurrency int) adapters.Consumer {
	b.Helper()
	c := adapters.Consumer{Topic: "test-" + watermill.NewShortUUID(), Group: "billing", Concurrency: concurrency}
	if err := b.Broker.Ensure(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { b.dropTopics(c.Topic) })
	return c
}

func (b *bench) dropTopics(prefix string) {
	if err := b.client.RefreshMetadata(); err != nil {
		return
	}
	names, _ := b.client.Topics()
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			_ = b.admin.DeleteTopic(name)
		}
	}
}

func of(s adapters.Stream, c adapters.Consumer) string { return adapters.Names{}.Of(s, c) }

// publish writes n messages with ids, and keys of their own, as a foreign
// producer does.
func (b *bench) publish(topic string, n int) {
	b.Helper()
	const most = 1000
	for from := 0; from < n; from += most {
		var msgs []*sarama.ProducerMessage
		for i := from; i < min(from+most, n); i++ {
			id := fmt.Sprintf("m-%05d", i)
			msgs = append(msgs, &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(id), Value: sarama.StringEncoder("body of " + id),
				Headers: []sarama.RecordHeader{{Key: []byte("_watermill_message_uuid"), Value: []byte(id)}},
			})
		}
		if err := b.producer.SendMessages(msgs); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *bench) send(m *sarama.ProducerMessage) {
	b.Helper()
	if _, _, err := b.producer.SendMessage(m); err != nil {
		b.Fatal(err)
	}
}

func idsOf(records []adapters.Record) []string {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

func parseURL(rawURL string) (*url.URL, error) { return url.Parse(rawURL) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
