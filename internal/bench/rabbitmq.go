package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/middleware"
)

const (
	group = "bench"
	// ladderPrefix is of our own, and our policies are short, so that the whole
	// ladder can be declared before anything is measured.
	ladderPrefix = "spillway-bench"
)

var shortLadder = rabbitmq.Config{Prefix: ladderPrefix, MaxDelay: 2 * time.Second, WholeLadder: true}

// onRabbitMQ measures on a real broker.
type onRabbitMQ struct {
	url      string
	brokers  string // what kills and starts it
	messages int
	rounds   int
	work     time.Duration
	collect  int // dead letters
	window   time.Duration

	version string // of the broker, once connected
}

// sections are in the order that they must have: the last kills the broker.
func (r *onRabbitMQ) sections() []section {
	collect := collecting{name: "RabbitMQ", messages: r.collect, rounds: 3, open: r.dead}
	return []section{{"throughput", r.throughput}, {"collect-rabbitmq", collect.measure}, {"lateness", r.lateness}, {"kill", r.kill}}
}

func (r *onRabbitMQ) throughput(ctx context.Context, t *table) {
	if err := r.measureThroughput(ctx, t); err != nil {
		t.fail("RabbitMQ: throughput", err)
	}
}

func (r *onRabbitMQ) measureThroughput(ctx context.Context, t *table) error {
	defer r.cleanUp()
	run := func(s stack, messages, failEvery int, work time.Duration) func() (float64, error) {
		return func() (float64, error) {
			return trial{messages: messages, failEvery: failEvery, work: work}.run(ctx, s)
		}
	}
	const quorum, classic = amqp.QueueTypeQuorum, amqp.QueueTypeClassic
	n := r.messages
	warm := trial{messages: n / 4, failEvery: 10}
	for _, s := range []stack{r.spillway, r.watermill(quorum)} {
		if _, err := warm.run(ctx, s); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
	}
	// Handlers that do nothing show every disturbance, and leave time for more.
	all, err := inTurns(3*r.rounds, run(r.spillway, 2*n, 0, 0), run(r.bare(quorum), 2*n, 0, 0), run(r.bare(classic), 2*n, 0, 0))
	if err != nil {
		return err
	}
	t.check("RabbitMQ: success path, of the bare watermill-amqp router's, quorum queues",
		all.ratio(0, 1) >= 1, "at least 1", "%.2f (%.0f of %.0f msg/s)", all.ratio(0, 1), all.median(0), all.median(1))
	t.note("RabbitMQ: the same, of the bare router's with classic queues", "%.2f (%.0f of %.0f msg/s)", all.ratio(0, 2), all.median(0), all.median(2))

	all, err = inTurns(r.rounds,
		run(r.spillway, n, 0, r.work), run(r.spillway, n, 100, r.work), run(r.spillway, n, 10, r.work),
		// Stacks that block are measured on fewer messages.
		run(r.watermill(quorum), n, 0, r.work), run(r.watermill(quorum), n/2, 100, r.work), run(r.watermill(quorum), n/4, 10, r.work),
	)
	if err != nil {
		return err
	}
	t.kept("RabbitMQ, Spillway", "1%", all, 1, 0, 95)
	t.kept("RabbitMQ, Spillway", "10%", all, 2, 0, 80)
	t.kept("RabbitMQ, Watermill's PoisonQueue + Retry", "1%", all, 4, 3, 0)
	t.kept("RabbitMQ, Watermill's PoisonQueue + Retry", "10%", all, 5, 3, 0)
	return nil
}

// spillway is a stack: subscriber, Router and chain.
func (r *onRabbitMQ) spillway(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	return r.startSpillway(ctx, newTopic(), t.batch(), benchConfig(middleware.Hooks{OnOutcome: onEnd(ended)}), shortLadder, handle)
}

func (r *onRabbitMQ) startSpillway(ctx context.Context, topic string, batch []*message.Message, cfg spillway.Config, on rabbitmq.Config, handle message.NoPublishHandlerFunc) (func() error, error) {
	stop := stops{func() error { return r.dropStreams(topic) }}
	sw, err := spillway.Open(ctx, r.url, cfg, rabbitmq.OpenerWith(on))
	if err != nil {
		return nil, err
	}
	stop = append(stop, func() error { return sw.Close(context.WithoutCancel(ctx)) })
	router := newRouter()
	sw.Install(router)
	sub := sw.Subscriber().(interface {
		message.Subscriber
		message.SubscribeInitializer
	})
	if err := errors.Join(sub.SubscribeInitialize(topic), r.publish(ctx, topic, batch)); err != nil {
		return nil, errors.Join(err, stop.all())
	}
	router.AddConsumerHandler("charge", topic, sub, handle)
	end, err := runRouter(ctx, router)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	return append(stop, end).all, nil
}

// bare is a stack of watermill-amqp and a Router, without middlewares.
func (r *onRabbitMQ) bare(queueType string) stack {
	return func(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
		router := newRouter()
		router.AddMiddleware(countEnds(ended))
		return r.startWatermill(ctx, t, queueType, router, nil, handle)
	}
}

// watermill is a stack with watermill-amqp and what Watermill documents for
// handlers that fail. Its publisher waits for confirms, as ours does.
func (r *onRabbitMQ) watermill(queueType string) stack {
	return func(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
		cfg := wamqp.NewDurableQueueConfig(r.url)
		cfg.Queue.Arguments = amqp.Table{amqp.QueueTypeArg: queueType}
		cfg.Publish.ConfirmDelivery = true
		cfg.Publish.ChannelPoolSize = concurrency
		pub, err := wamqp.NewPublisher(cfg, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		stop := stops{pub.Close, func() error { return r.drop(poisonTopic) }}
		router := newRouter()
		err = errors.Join(r.declare(poisonTopic, cfg.Queue.Arguments), addWatermillStack(router, pub, poisonTopic, ended))
		if err != nil {
			return nil, errors.Join(err, stop.all())
		}
		return r.startWatermill(ctx, t, queueType, router, stop, handle)
	}
}

// startWatermill makes the concurrency of as many handlers: a subscription of
// watermill-amqp has one message in flight. Each has a channel of its own, and
// holds the next message beside the one in its handler, as Spillway's slots do;
// its preset's prefetch of one would make each slot wait for the broker.
func (r *onRabbitMQ) startWatermill(ctx context.Context, t trial, queueType string, router *message.Router, stop stops, handle message.NoPublishHandlerFunc) (func() error, error) {
	topic := newTopic()
	stop = append(stop, func() error { return r.dropStreams(topic) })
	cfg := wamqp.NewDurablePubSubConfig(r.url, wamqp.GenerateQueueNameTopicNameWithSuffix(group))
	cfg.Queue.Arguments = amqp.Table{amqp.QueueTypeArg: queueType}
	cfg.Consume.Qos.PrefetchCount = 2
	sub, err := wamqp.NewSubscriber(cfg, watermill.NopLogger{})
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	stop = append(stop, sub.Close)
	if err := errors.Join(sub.SubscribeInitialize(topic), r.publish(ctx, topic, t.batch())); err != nil {
		return nil, errors.Join(err, stop.all())
	}
	for i := range concurrency {
		router.AddConsumerHandler("charge "+strconv.Itoa(i), topic, sub, handle)
	}
	end, err := runRouter(ctx, router)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	return append(stop, end).all, nil
}

// stops are called in reverse order, all of them.
type stops []func() error

func (s stops) all() error {
	var errs []error
	for i := len(s) - 1; i >= 0; i-- {
		errs = append(errs, s[i]())
	}
	return errors.Join(errs...)
}

// newTopic is a name that no run before has left anything in.
func newTopic() string { return "bench." + watermill.NewShortUUID() }

// onChannel runs f on a channel of its own.
func (r *onRabbitMQ) onChannel(f func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", redacted(r.url), err)
	}
	defer conn.Close()
	r.version, _ = conn.Properties["version"].(string)
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(ch)
}

// redacted is a URL without its password.
func redacted(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "SPILLWAY_TEST_RABBITMQ, which is no URL"
	}
	return u.Redacted()
}

// publish writes to a topic's exchange, and waits until the broker has all.
func (r *onRabbitMQ) publish(ctx context.Context, topic string, batch []*message.Message) error {
	return r.onChannel(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		return publish(ctx, ch, topic, batch)
	})
}

// publish writes on a channel in confirm mode.
func publish(ctx context.Context, ch *amqp.Channel, topic string, batch []*message.Message) error {
	confirms := make([]*amqp.DeferredConfirmation, 0, len(batch))
	for _, msg := range batch {
		wire, err := wamqp.DefaultMarshaler{}.Marshal(msg)
		if err != nil {
			return err
		}
		c, err := ch.PublishWithDeferredConfirm(topic, "", false, false, wire)
		if err != nil {
			return err
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if acked, err := c.WaitContext(ctx); err != nil || !acked {
			return errors.Join(fmt.Errorf("the broker did not confirm what was published to %q", topic), err)
		}
	}
	return nil
}

func (r *onRabbitMQ) declare(queue string, args amqp.Table) error {
	return r.onChannel(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
}

// drop deletes queues, whatever they hold, and exchanges of the same name. The
// broker takes it well when there are none.
func (r *onRabbitMQ) drop(names ...string) error {
	return r.onChannel(func(ch *amqp.Channel) error {
		for _, name := range names {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				return err
			}
			if err := ch.ExchangeDelete(name, false, false); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *onRabbitMQ) dropStreams(topic string) error {
	c := adapters.Consumer{Topic: topic, Group: group}
	names := []string{topic, topic + "_" + group}
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		names = append(names, adapters.Names{}.WithDefaults().Of(s, c))
	}
	return r.drop(names...)
}

// cleanUp deletes the ladder: the next measurement may want other rungs.
func (r *onRabbitMQ) cleanUp() {
	if err := r.drop(ladderNames()...); err != nil {
		slog.Warn("the queues of the benchmark's ladder are left on the broker", "error", err)
	}
}

func ladderNames() []string {
	names := []string{ladderPrefix + ".return", ladderPrefix + ".undeliverable"}
	for octave := 125 * time.Millisecond; octave <= time.Minute; octave *= 2 {
		for quarter := range time.Duration(4) {
			names = append(names, fmt.Sprintf("%s.delay.%dms", ladderPrefix, (octave+octave*quarter/4).Milliseconds()))
		}
	}
	return names
}
