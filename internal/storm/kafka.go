package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// kafkaTarget is a Kafka of the storm's own, one node, which scripts/brokers runs.
type kafkaTarget struct {
	instance
	url     *url.URL // past the proxy
	proxied *url.URL // who connects there is told to go to the proxy
}

// aftermath is how long after a fault of the broker or the network what was
// acknowledged may still get lost: an acknowledgement marks a message, the mark
// is committed later, and a group that lost its session takes its time to notice.
const aftermath = 12 * time.Second

var kafkaClients = []string{"github.com/ThreeDotsLabs/watermill-kafka/v3", "github.com/IBM/sarama"}

func (t *kafkaTarget) Start(ctx context.Context) error {
	variables, err := t.start(ctx)
	if err != nil {
		return err
	}
	for variable, u := range map[string]**url.URL{"SPILLWAY_TEST_KAFKA": &t.url, "SPILLWAY_TEST_KAFKA_PROXIED": &t.proxied} {
		if *u, err = url.Parse(variables[variable]); err != nil {
			return err
		}
		if (*u).Host == "" {
			return fmt.Errorf("scripts/brokers names no %s", variable)
		}
	}
	return t.admin(func(a sarama.ClusterAdmin) error {
		for _, topic := range []string{topicIn, topicOut} {
			if err := a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, false); err != nil {
				return fmt.Errorf("create %s: %w", topic, err)
			}
		}
		return nil
	})
}

func (t *kafkaTarget) URL() string     { return t.url.String() }
func (t *kafkaTarget) Addr() string    { return t.proxied.Host }
func (t *kafkaTarget) InProcess() bool { return false }
func (t *kafkaTarget) Kill(string)     {}

// ProxyAddr is what the broker tells those who come through the proxy.
func (t *kafkaTarget) ProxyAddr() string {
	port, _ := strconv.Atoi(t.proxied.Port())
	return net.JoinHostPort(t.proxied.Hostname(), strconv.Itoa(port+2))
}

func (t *kafkaTarget) Via(addr string) string {
	via := *t.proxied
	via.Host = addr
	return via.String()
}

func (t *kafkaTarget) Opener() adapters.Opener { return kafka.Opener() }

func (t *kafkaTarget) Headers(r *rand.Rand) []adapters.Header {
	return []adapters.Header{
		{Key: "count", Value: []byte(strconv.Itoa(r.Int()))},
		{Key: "empty", Value: []byte{}},
		{Key: "twice", Value: []byte("first")},
		{Key: "twice", Value: []byte("second")},
		{Key: "binary", Value: []byte{0, 0xff, byte(r.Int())}},
	}
}

// Streams has the topic only where nobody consumes it. What a group has handled
// stays in a Kafka topic; Held knows what it has not.
func (t *kafkaTarget) Streams(_ context.Context, c adapters.Consumer) ([]Place, error) {
	if c.Group == groupSink {
		return []Place{{Stream: adapters.StreamMain, Name: c.Topic, Group: c.Group}}, nil
	}
	return nil, nil
}

// Held is what each group has not finished, and nobody has drained.
func (t *kafkaTarget) Held(context.Context) (map[string]int, error) {
	held := map[string]int{}
	err := t.admin(func(a sarama.ClusterAdmin) error {
		groups, err := a.ListConsumerGroups()
		if err != nil {
			return err
		}
		for group := range groups {
			if base, drains := strings.CutSuffix(group, drainSuffix); drains && groups[base] != "" {
				continue // it counts with its group
			}
			offsets, err := a.ListConsumerGroupOffsets(group, nil)
			if err != nil {
				return fmt.Errorf("offsets of %s: %w", group, err)
			}
			drained, err := a.ListConsumerGroupOffsets(group+drainSuffix, nil)
			if err != nil {
				return fmt.Errorf("offsets of %s: %w", group+drainSuffix, err)
			}
			for topic, partitions := range offsets.Blocks {
				first, next, err := t.ends(topic)
				if err != nil {
					return err
				}
				for partition, block := range partitions {
					finished := max(block.Offset, first[partition])
					if d := drained.GetBlock(topic, partition); d != nil {
						finished = max(finished, d.Offset)
					}
					if lag := next[partition] - finished; lag > 0 {
						held[topic+" for "+group] += int(lag)
					}
				}
			}
		}
		return nil
	})
	return held, err
}

// drainSuffix makes the name of the group in whose name a stream is drained.
const drainSuffix = ".drain"

// ends are the offsets of a topic's oldest record and of its next, by partition.
func (t *kafkaTarget) ends(topic string) (first, next map[int32]int64, err error) {
	c, err := sarama.NewClient([]string{t.url.Host}, kafkaClientConfig())
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	partitions, err := c.Partitions(topic)
	if err != nil {
		return nil, nil, fmt.Errorf("partitions of %s: %w", topic, err)
	}
	first, next = map[int32]int64{}, map[int32]int64{}
	for _, p := range partitions {
		var errFirst, errNext error
		first[p], errFirst = c.GetOffset(topic, p, sarama.OffsetOldest)
		next[p], errNext = c.GetOffset(topic, p, sarama.OffsetNewest)
		if err := errors.Join(errFirst, errNext); err != nil {
			return nil, nil, fmt.Errorf("offsets of %s: %w", topic, err)
		}
	}
	return first, next, nil
}

// kafkaClientConfig is for a machine whose network is cut all the time.
func kafkaClientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "storm"
	cfg.Version = sarama.V2_8_0_0
	cfg.Net.DialTimeout, cfg.Net.ReadTimeout, cfg.Net.WriteTimeout = 5*time.Second, 5*time.Second, 5*time.Second
	return cfg
}

// admin runs f with a connection past the proxy.
func (t *kafkaTarget) admin(f func(sarama.ClusterAdmin) error) error {
	a, err := sarama.NewClusterAdmin([]string{t.url.Host}, kafkaClientConfig())
	if err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	return errors.Join(f(a), a.Close())
}

func (t *kafkaTarget) Trials() []Trial {
	names := adapters.Names{}.WithDefaults()
	watching := adapters.Consumer{Topic: topicIn, Group: groupWatching}
	acting := adapters.Consumer{Topic: topicIn, Group: groupActing}
	return []Trial{
		{Name: "kill -9 of the broker", Weight: 3, Aftermath: aftermath, Do: t.killed},
		{Name: "restart of the broker", Weight: 2, Aftermath: aftermath, Do: t.restarted},
		{Name: "broker frozen", Weight: 2, Aftermath: aftermath, Do: t.frozen},
		{Name: "groups deleted while they have members", Weight: 1, Do: t.deleteGroups},
		{Name: "empty topic deleted and made again", Weight: 2, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			// The watching group never fails, and so never writes there.
			stream := []adapters.Stream{adapters.StreamRetry, adapters.StreamParking}[r.IntN(2)]
			return "", t.remake(ctx, r, names.Of(stream, watching), true)
		}},
		{
			Name: "dead letters deleted with their topic", Weight: 1, Destroys: adapters.StreamDeadLetter, Of: groupActing,
			Do: func(ctx context.Context, r *rand.Rand) (string, error) {
				return "", t.remake(ctx, r, names.Of(adapters.StreamDeadLetter, acting), false)
			},
		},
	}
}

// frozen stops the broker's process, as a long pause of its machine does. Beyond
// the session time-out, the coordinator then gives up all members of all groups.
func (t *kafkaTarget) frozen(ctx context.Context, r *rand.Rand) (string, error) {
	status, err := t.brokers(ctx, "status", t.name)
	if err != nil {
		return "", err
	}
	_, pid, _ := strings.Cut(strings.TrimSpace(status), "pid ")
	signal := func(name string) error {
		if out, err := exec.CommandContext(context.WithoutCancel(ctx), "kill", "-"+name, pid).CombinedOutput(); err != nil {
			return fmt.Errorf("%s to the broker: %w: %s", name, err, out)
		}
		return nil
	}
	if err := signal("STOP"); err != nil {
		return "", err
	}
	pause(ctx, between(r, time.Second, 14*time.Second))
	return "", signal("CONT")
}

// deleteGroups asks for what the coordinator must refuse: groups with members.
// One that it deletes would be an accident of the storm's: all its offsets are lost.
func (t *kafkaTarget) deleteGroups(context.Context, *rand.Rand) (string, error) {
	return scopeNobody, t.admin(func(a sarama.ClusterAdmin) error {
		groups, err := a.ListConsumerGroups()
		if err != nil {
			return err
		}
		for group := range groups {
			described, err := a.DescribeConsumerGroups([]string{group})
			if err != nil || len(described) != 1 || len(described[0].Members) == 0 {
				continue // one without members would be deleted
			}
			if err := a.DeleteConsumerGroup(group); err == nil {
				return fmt.Errorf("the group %s was deleted although it has members", group)
			}
		}
		return nil
	})
}

// remake deletes a topic, or its siblings whose names begin like it, and makes
// it again as it was, unless somebody else already has.
func (t *kafkaTarget) remake(ctx context.Context, r *rand.Rand, name string, mustBeEmpty bool) error {
	return t.admin(func(a sarama.ClusterAdmin) error {
		topics, err := a.ListTopics()
		if err != nil {
			return err
		}
		var candidates []string
		for topic := range topics {
			if topic == name || strings.HasPrefix(topic, name+".") {
				candidates = append(candidates, topic)
			}
		}
		if len(candidates) == 0 {
			return fmt.Errorf("there is no topic %s", name)
		}
		slices.Sort(candidates)
		topic := candidates[r.IntN(len(candidates))]
		if mustBeEmpty {
			_, next, err := t.ends(topic)
			if err != nil {
				return err
			}
			for _, n := range next {
				if n != 0 {
					return fmt.Errorf("%s has had messages", topic)
				}
			}
		}
		detail := topics[topic]
		if err := a.DeleteTopic(topic); err != nil {
			return fmt.Errorf("delete %s: %w", topic, err)
		}
		pause(ctx, between(r, 0, 2*time.Second))
		// A deletion takes a moment, in which the name is still taken.
		for deadline := time.Now().Add(10 * time.Second); ; {
			err := a.CreateTopic(topic, &sarama.TopicDetail{
				NumPartitions: detail.NumPartitions, ReplicationFactor: detail.ReplicationFactor, ConfigEntries: detail.ConfigEntries,
			}, false)
			if err == nil || errors.Is(err, sarama.ErrTopicAlreadyExists) {
				return nil
			}
			if time.Now().After(deadline) || !pause(ctx, 200*time.Millisecond) {
				return fmt.Errorf("make %s again: %w", topic, err)
			}
		}
	})
}

// uuidHeader is where Watermill's marshaler keeps a message's id.
const uuidHeader = "_watermill_message_uuid"

// NativePublisher publishes as a service does that knows no Spillway, but
// Watermill's header of the id.
func (t *kafkaTarget) NativePublisher(rawURL string) (NativePublisher, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	return &kafkaPublisher{addr: u.Host}, nil
}

type kafkaPublisher struct {
	addr string

	mu       sync.Mutex
	producer sarama.SyncProducer
}

func (p *kafkaPublisher) open() (sarama.SyncProducer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.producer != nil {
		return p.producer, nil
	}
	cfg := kafkaClientConfig()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Retry.Max = 0 // or else a message may be there twice, and no ledger says so
	producer, err := sarama.NewSyncProducer([]string{p.addr}, cfg)
	if err != nil {
		return nil, err
	}
	p.producer = producer
	return producer, nil
}

func (p *kafkaPublisher) Publish(_ context.Context, topic string, r adapters.Record) error {
	producer, err := p.open()
	if err != nil {
		return err
	}
	msg := &sarama.ProducerMessage{
		Topic: topic, Value: sarama.ByteEncoder(r.Payload),
		Headers: []sarama.RecordHeader{{Key: []byte(uuidHeader), Value: []byte(r.ID)}},
	}
	if r.Key != nil {
		msg.Key = sarama.ByteEncoder(r.Key)
	}
	for _, h := range r.Headers {
		msg.Headers = append(msg.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	_, _, err = producer.SendMessage(msg)
	return err
}

func (p *kafkaPublisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.producer == nil {
		return nil
	}
	return p.producer.Close()
}
