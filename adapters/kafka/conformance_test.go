package kafka_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

const urlVariable = "SPILLWAY_TEST_KAFKA"

// fake starts an in-process cluster.
func fake(t testing.TB, opts ...kfake.Opt) string {
	t.Helper()
	_, rawURL := fakeCluster(t, nil, opts...)
	return rawURL
}

// fakeCluster starts an in-process cluster with settings of its own, for tests
// that interfere.
func fakeCluster(t testing.TB, settings map[string]string, opts ...kfake.Opt) (c *kfake.Cluster, rawURL string) {
	t.Helper()
	all := map[string]string{"group.initial.rebalance.delay.ms": "0"}
	maps.Copy(all, settings)
	c, err := kfake.NewCluster(append(opts,
		kfake.NumBrokers(1), kfake.DefaultNumPartitions(3),
		kfake.GroupMinSessionTimeout(500*time.Millisecond), kfake.BrokerConfigs(all),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, "kafka://" + strings.Join(c.ListenAddrs(), ",")
}

func TestConformanceOnFake(t *testing.T) {
	t.Parallel()
	conformance(t, func(t testing.TB) adaptertest.Target {
		return target(t, fake(t), kafka.Config{CommitInterval: commitInterval})
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	rawURL := brokertest.URL(t, urlVariable)
	conformance(t, func(t testing.TB) adaptertest.Target {
		// All subtests have the same group, and would interrupt each other.
		return target(t, rawURL, kafka.Config{CommitInterval: commitInterval, GroupPerTopic: true, Partitions: 3})
	})
}

func conformance(t *testing.T, start func(testing.TB) adaptertest.Target) {
	adaptertest.Run(t, adaptertest.Harness{
		Parallel: true,
		Start:    start,
		// The first retry of each delay waits for its tier to be created and joined,
		// and other tests run beside these, on the same processors. See
		// TestRetriesAreOnTimeAndSpread for tiers that exist.
		Late:      3 * time.Second,
		Delay:     500 * time.Millisecond,
		AckWithin: commitInterval + time.Second,
	})
}

const commitInterval = 200 * time.Millisecond

// target is the cluster as processes see it that can be killed, with a producer
// that does not know Spillway.
func target(t testing.TB, rawURL string, cfg kafka.Config) adaptertest.Target {
	addrs := strings.Split(strings.TrimPrefix(rawURL, "kafka://"), ",")
	sc := sarama.NewConfig()
	sc.Version = sarama.V2_8_0_0
	sc.Producer.Return.Successes = true
	client, err := sarama.NewClient(addrs, sc)
	if err != nil {
		t.Fatal(err)
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(producer.Close(), admin.Close()) })
	var p adaptertest.Processes
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return adaptertest.Target{
		URL:    rawURL,
		Opener: opener(&p, cfg),
		Kill:   p.Kill,
		Publish: func(topic string, r adapters.Record) error {
			m := &sarama.ProducerMessage{Topic: topic}
			if r.Key != nil {
				m.Key = sarama.ByteEncoder(r.Key)
			}
			if r.Payload != nil {
				m.Value = sarama.ByteEncoder(r.Payload)
			}
			if r.ID != "" {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte("_watermill_message_uuid"), Value: []byte(r.ID)})
			}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
			}
			_, _, err := producer.SendMessage(m)
			return err
		},
		Streams: func(topic string) (n int, err error) {
			if err := client.RefreshMetadata(); err != nil {
				return 0, err
			}
			all, err := client.Topics()
			for _, name := range all {
				if name == topic || strings.HasPrefix(name, topic+".") {
					n++
				}
			}
			return n, err
		},
	}
}

// opener opens brokers that p can kill.
func opener(p *adaptertest.Processes, cfg kafka.Config) adapters.Opener {
	return p.Opener(func(dial adaptertest.Dial) adapters.Opener {
		cfg := cfg
		cfg.Sarama = testSarama()
		cfg.Sarama.Net.Proxy.Enable, cfg.Sarama.Net.Proxy.Dialer = true, dialer(dial)
		return kafka.OpenerWith(cfg)
	})
}

// dialer is what sarama dials with.
type dialer adaptertest.Dial

func (d dialer) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return d(ctx, network, addr)
}

// testSarama notices soon that a member has died.
func testSarama() *sarama.Config {
	sc := sarama.NewConfig()
	sc.ClientID = "spillway-test"
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Group.Session.Timeout = 3 * time.Second
	sc.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	// kfake waits as long as this for a member that died while it was joining, by
	// default a minute; Kafka's session time-out covers such members too.
	sc.Consumer.Group.Rebalance.Timeout = 10 * time.Second
	return sc
}
