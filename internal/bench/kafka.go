package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// onKafka measures on a real broker.
type onKafka struct {
	url      string
	messages int // that a run of handlers that do nothing has
	rounds   int
	work     time.Duration
}

const (
	// kafkaPartitions is how many messages the bare router handles at once.
	kafkaPartitions = 4
	// kafkaSlots is how many Spillway does, whatever the number of partitions.
	kafkaSlots   = 64
	kafkaPayload = 512
	kafkaWork    = 5 * time.Millisecond
)

func (k *onKafka) sections() []section {
	return []section{{"kafka-success", k.success}, {"kafka", k.throughput}, {"kafka-memory", k.waiting}}
}

func (k *onKafka) success(ctx context.Context, t *table) {
	if err := k.measureSuccess(ctx, t); err != nil {
		t.fail("Kafka: success path", err)
	}
}

func (k *onKafka) measureSuccess(ctx context.Context, t *table) error {
	n := k.messages
	warm := trial{messages: n / 10, failEvery: 10, slots: kafkaSlots, size: kafkaPayload}
	if _, err := warm.run(ctx, k.spillway); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	var busy [4][]float64
	run := func(i int, s stack, slots, messages int) func() (float64, error) {
		return func() (float64, error) {
			return trial{messages: messages, slots: slots, size: kafkaPayload, busy: &busy[i]}.run(ctx, s)
		}
	}
	all, err := inTurns(3*k.rounds,
		run(0, k.spillway, kafkaSlots, n), run(1, k.bare, kafkaPartitions, n),
		run(2, k.sarama, kafkaPartitions, 2*n), run(3, k.noBroker, kafkaPartitions, 2*n))
	if err != nil {
		return err
	}
	t.check("Kafka: success path, of the bare watermill-kafka router's", all.ratio(0, 1) >= 1, "at least 1",
		"%.2f (%.0f of %.0f msg/s; %.1f of %.1f µs of processor each)",
		all.ratio(0, 1), all.median(0), all.median(1), median(busy[0]), median(busy[1]))
	t.note("Kafka: beside it, a consumer group of sarama without a router", "%.0f msg/s; %.1f µs", all.median(2), median(busy[2]))
	t.note("Kafka: beside it, the router without a broker", "%.0f msg/s; %.1f µs", all.median(3), median(busy[3]))
	return nil
}

func (k *onKafka) throughput(ctx context.Context, t *table) {
	if err := k.measureThroughput(ctx, t); err != nil {
		t.fail("Kafka: throughput", err)
	}
}

func (k *onKafka) measureThroughput(ctx context.Context, t *table) error {
	run := func(s stack, slots, messages, failEvery int, work time.Duration) func() (float64, error) {
		return func() (float64, error) {
			return trial{messages: messages, failEvery: failEvery, work: work, slots: slots, size: kafkaPayload}.run(ctx, s)
		}
	}
	const few, many = kafkaPartitions, kafkaSlots
	n := k.messages
	for _, warm := range []func() (float64, error){run(k.spillway, many, n/10, 10, 0), run(k.watermill, few, n/100, 100, 0)} {
		if _, err := warm(); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
	}
	second := func(slots int, work time.Duration) int { return slots * int(time.Second/work) }
	all, err := inTurns(k.rounds,
		run(k.spillway, many, second(many, kafkaWork), 0, kafkaWork), run(k.bare, few, second(few, kafkaWork), 0, kafkaWork))
	if err != nil {
		return err
	}
	t.check(fmt.Sprintf("Kafka: handlers that take %s, %d at once on %d partitions, of the bare router's", kafkaWork, kafkaSlots, kafkaPartitions),
		all.ratio(0, 1) >= 10, "at least 10", "%.1f (%.0f of %.0f msg/s)", all.ratio(0, 1), all.median(0), all.median(1))

	busy := 2 * second(many, k.work)
	all, err = inTurns(k.rounds,
		run(k.spillway, many, busy, 0, k.work), run(k.spillway, many, busy, 1000, k.work),
		run(k.spillway, many, busy, 100, k.work), run(k.spillway, many, busy, 10, k.work),
		run(k.watermill, few, 2*second(few, k.work), 0, k.work), run(k.watermill, few, 2*second(few, k.work), 100, k.work),
	)
	if err != nil {
		return err
	}
	spillway := fmt.Sprintf("Kafka, Spillway, %d at once", kafkaSlots)
	t.kept(spillway, "0.1%", all, 1, 0, 95)
	t.kept(spillway, "1%", all, 2, 0, 95)
	t.kept(spillway, "10%", all, 3, 0, 80)
	t.kept("Kafka, Watermill's PoisonQueue + Retry", "1%", all, 5, 4, 0)

	// What blocks is measured on fewer messages.
	all, err = inTurns(k.rounds,
		run(k.watermill, few, n, 0, 0), run(k.watermill, few, n/10, 1000, 0), run(k.watermill, few, n/25, 100, 0))
	if err != nil {
		return err
	}
	t.kept("Kafka, Watermill's, handlers that do nothing", "0.1%", all, 1, 0, 0)
	t.kept("Kafka, Watermill's, handlers that do nothing", "1%", all, 2, 0, 0)
	return nil
}

// spillway is a stack: subscriber, Router and chain.
func (k *onKafka) spillway(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	cfg := benchConfig(middleware.Hooks{OnOutcome: onEnd(ended)})
	cfg.Concurrency = t.slots
	return k.startSpillway(ctx, t.batch(), cfg, kafka.Config{}, handle)
}

func (k *onKafka) startSpillway(ctx context.Context, batch []*message.Message, cfg spillway.Config, on kafka.Config, handle message.NoPublishHandlerFunc) (func() error, error) {
	topic := newTopic()
	stop := stops{func() error { return k.drop(topic) }}
	if err := k.create(topic); err != nil {
		return nil, err
	}
	sw, err := spillway.Open(ctx, k.url, cfg, kafka.OpenerWith(on))
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	stop = append(stop, func() error { return sw.Close(context.WithoutCancel(ctx)) })
	router := newRouter()
	sw.Install(router)
	sub := sw.Subscriber().(interface {
		message.Subscriber
		message.SubscribeInitializer
	})
	if err := errors.Join(sub.SubscribeInitialize(topic), k.publish(ctx, topic, batch)); err != nil {
		return nil, errors.Join(err, stop.all())
	}
	router.AddConsumerHandler("charge", topic, sub, handle)
	return k.start(ctx, router, stop)
}

func (k *onKafka) start(ctx context.Context, router *message.Router, stop stops) (func() error, error) {
	end, err := runRouter(ctx, router)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	return append(stop, end).all, nil
}

// bare is a stack of watermill-kafka and a Router, without middlewares.
func (k *onKafka) bare(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	router := newRouter()
	router.AddMiddleware(countEnds(ended))
	return k.startWatermill(ctx, t, router, nil, handle)
}

// watermill is a stack with watermill-kafka and what Watermill documents for
// handlers that fail.
func (k *onKafka) watermill(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	poisonTo := newTopic() + ".poison"
	if err := k.create(poisonTo); err != nil {
		return nil, err
	}
	stop := stops{func() error { return k.drop(poisonTo) }}
	pub, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: k.brokers(), Marshaler: wkafka.DefaultMarshaler{}}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	stop = append(stop, pub.Close)
	router := newRouter()
	if err := addWatermillStack(router, pub, poisonTo, ended); err != nil {
		return nil, errors.Join(err, stop.all())
	}
	return k.startWatermill(ctx, t, router, stop, handle)
}

// startWatermill has one message of each partition in a handler: watermill-kafka
// takes the next one when that is acknowledged.
func (k *onKafka) startWatermill(ctx context.Context, t trial, router *message.Router, stop stops, handle message.NoPublishHandlerFunc) (func() error, error) {
	topic, err := k.filled(ctx, t, &stop)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	cfg := wkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers: k.brokers(), ConsumerGroup: topic + "." + group, Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	stop = append(stop, sub.Close)
	router.AddConsumerHandler("charge", topic, sub, handle)
	return k.start(ctx, router, stop)
}

// sarama is a stack without Watermill: what the client can do.
func (k *onKafka) sarama(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	var stop stops
	topic, err := k.filled(ctx, t, &stop)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	cfg := clientConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	g, err := sarama.NewConsumerGroup(k.brokers(), topic+"."+group, cfg)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	consuming, cancel := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() {
		for consuming.Err() == nil {
			// An error is that of a rebalance; if it stays, the run ends by its time.
			_ = g.Consume(consuming, []string{topic}, claims{handle, ended})
		}
	})
	return append(stop, func() error {
		cancel()
		loop.Wait()
		return g.Close()
	}).all, nil
}

// claims handles every message of its partitions.
type claims struct {
	handle message.NoPublishHandlerFunc
	ended  func()
}

func (claims) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c claims) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		if err := c.handle(&message.Message{Payload: m.Value}); err != nil {
			return err
		}
		s.MarkMessage(m, "")
		c.ended()
	}
	return nil
}

// noBroker is a stack of a Router and a subscriber that has everything at hand,
// and waits for acknowledgements as that of watermill-kafka does.
func (k *onKafka) noBroker(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	router := newRouter()
	router.AddMiddleware(countEnds(ended))
	sub := &atHand{batch: t.batch(), lanes: t.slots}
	router.AddConsumerHandler("charge", "at hand", sub, handle)
	return k.start(ctx, router, nil)
}

type atHand struct {
	batch []*message.Message
	lanes int
}

func (a *atHand) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	var lanes sync.WaitGroup
	for lane := range a.lanes {
		lanes.Go(func() {
			for i := lane; i < len(a.batch); i += a.lanes {
				msg := a.batch[i]
				msg.SetContext(ctx)
				select {
				case out <- msg:
				case <-ctx.Done():
					return
				}
				select {
				case <-msg.Acked():
				case <-msg.Nacked():
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() { lanes.Wait(); <-ctx.Done(); close(out) }()
	return out, nil
}

func (a *atHand) Close() error { return nil }

// waiting measures memory with the default window of what is read ahead, and
// with a small one, which must show.
func (k *onKafka) waiting(ctx context.Context, t *table) {
	what := fmt.Sprintf("Kafka: memory with %d messages of %d bytes waiting in retry, window of ", waitingInRetry, waitingPayload)
	const format = "%.1f MB more than before (the payloads of all of them: %d MB)"
	for _, w := range []struct {
		cfg   kafka.Config
		name  string
		bound int64
	}{
		{cfg: kafka.Config{}, name: "10000 a partition"},
		{cfg: kafka.Config{Window: smallWindow}, name: fmt.Sprintf("%d a partition", smallWindow), bound: smallBound},
	} {
		held, err := k.measureWaiting(ctx, w.cfg)
		mb := float64(held) / (1 << 20)
		switch {
		case err != nil:
			t.fail(what+w.name, err)
		case w.bound == 0:
			t.note(what+w.name, format, mb, waitingInRetry*waitingPayload>>20)
		default:
			t.check(what+w.name, held <= w.bound, fmt.Sprintf("at most %d MB", w.bound>>20), format, mb, waitingInRetry*waitingPayload>>20)
		}
	}
}

const (
	waitingInRetry = 100_000
	waitingPayload = 1024
	smallWindow    = 1000
	// smallBound is 8 KiB for each of 1,000 messages of 4 partitions: a message with
	// its state takes about 2 KiB, and shares its buffer with others.
	smallBound = 32 << 20
)

// measureWaiting returns how much more of the heap is in use when all messages
// wait than before.
func (k *onKafka) measureWaiting(ctx context.Context, on kafka.Config) (held int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("a run took more than %s", trialTime))
	defer cancel()
	before := heapInUse()
	var retried atomic.Int64
	done := make(chan struct{})
	cfg := benchConfig(middleware.Hooks{OnOutcome: func(_ context.Context, o *middleware.OutcomeInfo) {
		if o.Outcome == middleware.OutcomeRetried && retried.Add(1) == waitingInRetry {
			close(done)
		}
	}})
	cfg.Concurrency = kafkaSlots
	cfg.Policy = policy.Policy{
		Attempts: policy.Attempts{Transient: 2},
		// One tier: what is read ahead is bounded for each partition of each tier.
		Backoff: policy.Backoff{Base: 10 * time.Minute, Factor: 1, Max: 10 * time.Minute, Jitter: policy.JitterNone},
	}
	all := trial{messages: waitingInRetry, failEvery: 1, size: waitingPayload}
	stop, err := k.startSpillway(ctx, all.batch(), cfg, on, func(*message.Message) error { return errOutage })
	if err != nil {
		return 0, err
	}
	if err := await(ctx, done); err != nil {
		return 0, errors.Join(fmt.Errorf("%d handed off: %w", retried.Load(), err), stop())
	}
	// What can be read ahead has been by then.
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return heapInUse() - before, stop()
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers have let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (k *onKafka) brokers() []string {
	u, err := url.Parse(k.url)
	if err != nil {
		return nil // which every client refuses
	}
	return []string{u.Host}
}

// clientConfig is sarama's, with confirms by all replicas.
func clientConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.ClientID = "bench"
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Return.Successes = true
	cfg.Producer.Flush.Frequency = 5 * time.Millisecond
	return cfg
}

// admin runs f with an administrator's connection.
func (k *onKafka) admin(f func(sarama.ClusterAdmin) error) error {
	a, err := sarama.NewClusterAdmin(k.brokers(), clientConfig())
	if err != nil {
		return fmt.Errorf("connect to %s: %w", redacted(k.url), err)
	}
	return errors.Join(f(a), a.Close())
}

func (k *onKafka) create(topic string) error {
	return k.admin(func(a sarama.ClusterAdmin) error {
		return a.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: kafkaPartitions, ReplicationFactor: 1}, false)
	})
}

// drop deletes a topic and all streams of its consumer.
func (k *onKafka) drop(topic string) error {
	return k.admin(func(a sarama.ClusterAdmin) error {
		topics, err := a.ListTopics()
		if err != nil {
			return err
		}
		var errs []error
		for name := range topics {
			if name == topic || len(name) > len(topic) && name[:len(topic)+1] == topic+"." {
				errs = append(errs, a.DeleteTopic(name))
			}
		}
		return errors.Join(errs...)
	})
}

// filled makes a topic with the messages of a trial, and lets stop delete it.
func (k *onKafka) filled(ctx context.Context, t trial, stop *stops) (topic string, err error) {
	topic = newTopic()
	if err := k.create(topic); err != nil {
		return "", err
	}
	*stop = append(*stop, func() error { return k.drop(topic) })
	return topic, k.publish(ctx, topic, t.batch())
}

// publish writes messages, each with its id as its key, and waits until the
// broker has all.
func (k *onKafka) publish(ctx context.Context, topic string, batch []*message.Message) error {
	p, err := sarama.NewAsyncProducer(k.brokers(), clientConfig())
	if err != nil {
		return err
	}
	var answers sync.WaitGroup
	var refused error
	answers.Go(func() {
		for range p.Successes() {
		}
	})
	answers.Go(func() {
		for e := range p.Errors() {
			refused = e
		}
	})
	for _, msg := range batch {
		if ctx.Err() != nil {
			break
		}
		wire, err := wkafka.DefaultMarshaler{}.Marshal(topic, msg)
		if err != nil {
			p.AsyncClose()
			answers.Wait()
			return err
		}
		wire.Key = sarama.StringEncoder(msg.UUID)
		p.Input() <- wire
	}
	p.AsyncClose()
	answers.Wait()
	return errors.Join(refused, context.Cause(ctx))
}
