package kafka

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/retrytopic"
)

// Opener serves kafka and kafkas URLs with the zero [Config].
func Opener() adapters.Opener { return OpenerWith(Config{}) }

// OpenerWith serves kafka and kafkas URLs with a configuration.
func OpenerWith(cfg Config) adapters.Opener {
	return adapters.Opener{
		Schemes: []string{"kafka", "kafkas"},
		Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
			return open(ctx, cfg.withDefaults(), p)
		},
	}
}

// broker implements adapters.Broker.
type broker struct {
	cfg    Config
	names  adapters.Names
	logger *slog.Logger
	addrs  []string
	sarama *sarama.Config
	tiers  retrytopic.Tiers
	// messageMax is the cluster's limit of a message on a topic without its own.
	messageMax int
	// metadataMax is how many bytes of metadata the cluster takes with a position.
	metadataMax atomic.Int64

	client   sarama.Client
	admin    sarama.ClusterAdmin
	topics   *topics
	producer *producer
	places   places
	readers  readers

	alone func(stop <-chan struct{}) (end func(), ok bool) // see adapters.OpenParams

	mu      sync.Mutex
	tokens  map[consumerKey]chan struct{} // see tokenOf
	renewed map[string]time.Time          // by topic: see renew
	starts  map[start]int64               // see startAtEnd
	owners  []uint64                      // names of this process: see owner
	once    sync.Once
}

type consumerKey struct{ topic, group string }

func open(ctx context.Context, cfg Config, p adapters.OpenParams) (adapters.Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("kafka: configuration: %w", err)
	}
	addrs, sc, err := cfg.endpoint(p.URL)
	if err != nil {
		return nil, fmt.Errorf("kafka: configuration: %w", withoutURL(err, p.URL))
	}
	b := &broker{
		cfg: cfg, names: p.Names.WithDefaults(), logger: p.Logger, addrs: addrs, sarama: sc,
		tiers: retrytopic.DefaultTiers(), alone: p.Alone, tokens: map[consumerKey]chan struct{}{},
		places: places{out: map[*sarama.ConsumerMessage]place{}}, renewed: map[string]time.Time{}, starts: map[start]int64{}, owners: []uint64{newOwner()},
	}
	b.metadataMax.Store(retrytopic.MaxProgress)
	if b.alone == nil {
		b.alone = func(<-chan struct{}) (func(), bool) { return func() {}, true }
	}
	if b.logger == nil {
		b.logger = slog.Default()
	}
	connect := func() (struct{}, error) { return struct{}{}, b.connect() }
	if _, err := boundedOr(ctx, connect, func(struct{}) { _ = b.Close(context.Background()) }); err != nil {
		return nil, fmt.Errorf("kafka: connect: %w", explain(err, sc))
	}
	return b, nil
}

// withoutURL keeps what a URL hides out of errors about it.
func withoutURL(err error, u *url.URL) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

func newOwner() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

func (b *broker) connect() (err error) {
	if b.client, err = sarama.NewClient(b.addrs, b.sarama); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.client.Close())
		}
	}()
	if err = b.checkVersions(); err != nil {
		return err
	}
	if b.admin, err = sarama.NewClusterAdminFromClient(b.client); err != nil {
		return err
	}
	b.topics = newTopics(b.cfg, b.admin)
	b.messageMax = b.clusterLimit()
	if n, ok := b.clusterSetting("offset.metadata.max.bytes"); ok && n < retrytopic.MaxProgress {
		b.littleMetadata(n)
	}
	b.producer, err = newProducer(b.sarama, b.addrs)
	return err
}

// clusterLimit asks for the limit of topics that have none of their own.
func (b *broker) clusterLimit() int {
	if n, ok := b.clusterSetting("message.max.bytes"); ok && n > 0 {
		return n
	}
	return defaultMessageMax
}

// clusterSetting asks for a setting of the brokers; ok is false where the user may
// not see it.
func (b *broker) clusterSetting(name string) (n int, ok bool) {
	controller, err := b.client.Controller()
	if err != nil {
		return 0, false
	}
	results, err := b.admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.BrokerResource, Name: strconv.Itoa(int(controller.ID())), ConfigNames: []string{name},
	}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return 0, false
	}
	for _, r := range results {
		for _, e := range r.Configs {
			if n, err := strconv.Atoi(e.Value); err == nil && e.Name == name {
				return n, true
			}
		}
	}
	return 0, false
}

// littleMetadata notes that the cluster takes less metadata than it does by default.
func (b *broker) littleMetadata(most int) {
	b.metadataMax.Store(int64(most))
	b.logger.Warn("kafka: the cluster takes little metadata with positions: of what is finished above a message that is not, some may be handled again after a rebalance; set offset.metadata.max.bytes to 4096",
		"bytes", most)
}

func (b *broker) Capabilities() adapters.Capabilities {
	return adapters.Capabilities{
		Broker:          "kafka",
		Positions:       true,
		DeliveryCount:   true,
		Keys:            true,
		NullPayload:     true,
		RepeatedHeaders: true,
		InPlaceRetry:    b.cfg.Order != OrderNone,
		DelayStep:       func(time.Duration) time.Duration { return 0 },
		MaxMessageBytes: b.messageMax,
	}
}

// Quantize changes nothing: readers hold a message exactly until it is due.
func (b *broker) Quantize(d time.Duration) time.Duration { return d }

func (b *broker) Publisher() message.Publisher { return publisher{b} }

func (b *broker) Ensure(ctx context.Context, c adapters.Consumer) error {
	if err := b.supports(c); err != nil {
		return err
	}
	if err := b.ensure(ctx, c); err != nil {
		return fmt.Errorf("kafka: topics of group %q on topic %q: %w", c.Group, c.Topic, err)
	}
	return nil
}

func (b *broker) supports(c adapters.Consumer) error {
	if c.Retry == adapters.RetryInPlace && b.cfg.Order == OrderNone {
		return fmt.Errorf("kafka: %w: retry in place keeps an order, and Config.Order is %q", adapters.ErrUnsupported, OrderNone)
	}
	return nil
}

func (b *broker) Handoff(ctx context.Context, h adapters.Handoff) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.PublishTimeout)
	defer cancel()
	if err := b.handoff(ctx, h); err != nil {
		return fmt.Errorf("kafka: hand-off to %s: %w", b.names.Of(h.Stream, h.Consumer), err)
	}
	return nil
}

func (b *broker) handoff(ctx context.Context, h adapters.Handoff) error {
	stream, held := b.names.Of(h.Stream, h.Consumer), h.Due
	if at, ok := b.places.of(h.Record.Native); ok {
		// Whoever has the partition decides: elsewhere it would be out of order.
		if err := at.p.hold(ctx); err != nil {
			return err
		}
		at.p.mu.Unlock()
		if h.Stream == adapters.StreamRetry {
			return b.keepInPlace(ctx, h, at)
		}
	}
	switch h.Stream {
	case adapters.StreamRetry:
		now := time.Now()
		stream = b.tierName(h.Consumer, b.tiers.Of(h.Due.Sub(now)))
		// The chain hands off what is left of a longer delay.
		if most := now.Add(b.tiers.Longest()); held.After(most) {
			held = most
		}
	case adapters.StreamParking, adapters.StreamSuspect:
	case adapters.StreamDeadLetter:
		held = time.Time{}
	default:
		return fmt.Errorf("%w: no hand-off goes to stream %q", adapters.ErrRefused, h.Stream)
	}
	topic, err := b.topics.ensure(ctx, stream, b.ownSpec(h.Consumer, h.Stream))
	if err != nil {
		return err
	}
	err = b.producer.send(ctx, outgoing(h, topic, held))
	if isGone(err) {
		b.topics.forget(stream)
	}
	return err
}

// tierName is the stream of a tier.
func (b *broker) tierName(c adapters.Consumer, tier time.Duration) string {
	return b.names.Of(adapters.StreamRetry, c) + "." + retrytopic.Name(tier)
}

// mainGroup is the consumer group that reads a topic.
func (b *broker) mainGroup(c adapters.Consumer) string {
	if b.cfg.GroupPerTopic {
		return c.Topic + "." + c.Group
	}
	return c.Group
}

// tokenOf returns what one subscription of this process at a time may hold to
// handle a suspect of c: they are alone in their process.
func (b *broker) tokenOf(c adapters.Consumer) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := consumerKey{c.Topic, c.Group}
	token, ok := b.tokens[key]
	if !ok {
		token = make(chan struct{}, 1)
		b.tokens[key] = token
	}
	return token
}

// Close closes the connections. What was not settled is delivered again.
func (b *broker) Close(ctx context.Context) (err error) {
	b.once.Do(func() {
		_, err = bounded(ctx, func() (struct{}, error) {
			return struct{}{}, errors.Join(b.producer.close(), b.admin.Close())
		})
	})
	if err != nil {
		return fmt.Errorf("kafka: close: %w", err)
	}
	return nil
}
