package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

const (
	urlVariable = "SPILLWAY_TEST_RABBITMQ"
	ctlVariable = "SPILLWAY_TEST_RABBITMQCTL"
	patience    = 20 * time.Second
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(adaptertest.PubSubLeak))
}

// bench is a broker under test, and a plain client beside it.
type bench struct {
	adaptertest.Bench
	rawURL string
	cfg    rabbitmq.Config
	client *amqp.Connection
	ch     *amqp.Channel
}

// setup opens a broker whose ladder belongs to the test alone.
func setup(t *testing.T, cfg rabbitmq.Config) *bench {
	t.Helper()
	rawURL := brokertest.URL(t, urlVariable)
	if cfg.Prefix == "" {
		cfg.Prefix = "test-" + watermill.NewShortUUID()
	}
	b := &bench{Bench: adaptertest.Bench{T: t, Patience: patience}, rawURL: rawURL, cfg: cfg}
	var err error
	if b.client, err = amqp.Dial(rawURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	b.ch = b.channel()
	b.Broker = open(t, rawURL, cfg)
	t.Cleanup(func() {
		for _, n := range shared(cfg.Prefix) {
			b.drop(n)
		}
	})
	return b
}

// shared names the queues and exchanges that a ladder may have.
func shared(prefix string) []string {
	names := []string{prefix + ".return", prefix + ".undeliverable"}
	for _, rung := range rabbitmq.NewLadder(125*time.Millisecond, 15*time.Minute) {
		names = append(names, fmt.Sprintf("%s.delay.%dms", prefix, rung.Milliseconds()))
	}
	return names
}

func open(t *testing.T, rawURL string, cfg rabbitmq.Config) adapters.Broker {
	t.Helper()
	b, err := tryOpen(t, rawURL, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close broker: %v", err)
		}
	})
	return b
}

func tryOpen(t *testing.T, rawURL string, cfg rabbitmq.Config) (adapters.Broker, error) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return rabbitmq.OpenerWith(cfg).Open(t.Context(), adapters.OpenParams{
		URL: u, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

func (b *bench) channel() *amqp.Channel {
	b.Helper()
	ch, err := b.client.Channel()
	if err != nil {
		b.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	return ch
}

// drop deletes a queue and an exchange of one name, also after the client was
// thrown out.
func (b *bench) drop(name string) {
	if b.client.IsClosed() {
		c, err := amqp.Dial(b.rawURL)
		if err != nil {
			b.Errorf("clean up: %v", err)
			return
		}
		b.client = c
		b.Cleanup(func() { _ = c.Close() })
	}
	if b.ch.IsClosed() {
		b.ch = b.channel()
	}
	_, _ = b.ch.QueueDelete(name, false, false, false)
	if b.ch.IsClosed() {
		b.ch = b.channel()
	}
	_ = b.ch.ExchangeDelete(name, false, false)
}

// consumer returns a consumer with a topic of its own, whose streams are gone
// after the test.
func (b *bench) consumer(concurrency int) adapters.Consumer {
	return b.consumerOf(watermill.NewShortUUID(), "billing", concurrency)
}

func (b *bench) consumerOf(topic, group string, concurrency int) adapters.Consumer {
	b.Helper()
	c := adapters.Consumer{Topic: topic, Group: group, Concurrency: concurrency}
	b.Cleanup(func() { b.dropStreams(topic, group) })
	return c
}

func (b *bench) dropStreams(topic, group string) {
	c := adapters.Consumer{Topic: topic, Group: group}
	b.drop(topic)
	for _, s := range []adapters.Stream{
		adapters.StreamMain, adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect,
	} {
		b.drop(queueOf(s, c))
	}
	for _, name := range rabbitmq.BayNames(queueOf(adapters.StreamParking, c))[1:] {
		_, _ = b.ch.QueueDelete(name, false, false, false) // one that is missing is no error
	}
}

// parked is how many messages wait in c's parking lot.
func (b *bench) parked(c adapters.Consumer) (n int) {
	b.Helper()
	for _, name := range rabbitmq.BayNames(queueOf(adapters.StreamParking, c)) {
		if b.exists(name) {
			n += b.depth(name)
		}
	}
	return n
}

func queueOf(s adapters.Stream, c adapters.Consumer) string {
	if s == adapters.StreamMain {
		return c.Topic + "_" + c.Group
	}
	return adapters.Names{}.Of(s, c)
}

// publish writes as a foreign producer would.
func (b *bench) publish(exchange, key string, p amqp.Publishing) {
	b.Helper()
	c, err := b.ch.PublishWithDeferredConfirm(exchange, key, false, false, p)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if ok, err := c.WaitContext(ctx); err != nil || !ok {
		b.Fatalf("publish: confirmed %v, %v", ok, err)
	}
}

// depth is how many messages of a queue are ready.
func (b *bench) depth(queue string) int {
	b.Helper()
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	return q.Messages
}

func (b *bench) depthBecomes(queue string, n int) {
	b.Helper()
	b.Eventually(fmt.Sprintf("queue %q has %d messages", queue, n), func() bool { return b.depth(queue) == n })
}

// ctl runs rabbitmqctl.
func (b *bench) ctl(args ...string) string {
	b.Helper()
	cmd := brokertest.Command(b, ctlVariable)
	out, err := exec.Command(cmd[0], append(cmd[1:], args...)...).CombinedOutput()
	if err != nil {
		b.Fatalf("%s %s: %v\n%s", ctlVariable, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// withUser is the broker's URL with another user.
func (b *bench) withUser(user, password string) string {
	u, err := url.Parse(b.rawURL)
	if err != nil {
		b.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func header(r adapters.Record, key string) (adapters.Header, bool) {
	for _, h := range r.Headers {
		if h.Key == key {
			return h, true
		}
	}
	return adapters.Header{}, false
}

func persistent(id string) amqp.Publishing {
	return amqp.Publishing{
		Headers: amqp.Table{"_watermill_message_uuid": id}, DeliveryMode: amqp.Persistent, Body: []byte("body of " + id),
	}
}
