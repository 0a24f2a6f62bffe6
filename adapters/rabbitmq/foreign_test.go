package rabbitmq_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// What the broker dead-letters by itself, for each reason that it has, lies in
// the dead letter queue of its consumer and can be decoded.
func TestDeadLettersOfTheBrokerDecode(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{DeliveryLimit: 10})
	rejected, expired, looped, retried := b.consumer(1), b.consumer(1), b.consumer(1), b.consumer(1)
	full := b.consumer(1)
	for _, c := range []adapters.Consumer{rejected, expired, looped} {
		b.Ensure(c)
	}

	b.publish(rejected.Topic, "eu.orders", persistent("rejected"))
	b.take(queueOf(adapters.StreamMain, rejected), func(d amqp.Delivery) error { return d.Reject(false) })

	policy := "ttl-" + expired.Topic
	b.ctl("set_policy", "--apply-to", "queues", policy, "^"+queueOf(adapters.StreamMain, expired)+"$", `{"message-ttl":200}`)
	t.Cleanup(func() { b.ctl("clear_policy", policy) })
	b.publish(expired.Topic, "", persistent("expired"))

	b.publish(looped.Topic, "", persistent("looped"))
	for range 11 {
		b.take(queueOf(adapters.StreamMain, looped), func(d amqp.Delivery) error { return d.Nack(false, true) })
	}

	sub := b.Subscribe(retried)
	b.Handoff(adapters.Handoff{
		Consumer: retried, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "retried", Payload: []byte("body of retried")},
		Due:   time.Now().Add(50 * time.Millisecond),
		State: pairs(envelope.State{Attempt: 4, ConsumerGroup: retried.Group, Source: envelope.Position{Topic: retried.Topic}, Handler: "h"}),
	})
	for range 11 {
		b.Return(b.Next(sub))
	}

	// Our own queues refuse what they have no room for. Somebody else's may drop it.
	b.Ensure(full)
	queue := full.Topic + "-existing"
	t.Cleanup(func() { b.drop(queue) })
	if _, err := b.ch.QueueDeclare(queue, true, false, false, false, amqp.Table{
		"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queueOf(adapters.StreamDeadLetter, full),
	}); err != nil {
		t.Fatal(err)
	}
	b.publish("", queue, persistent("full"))
	b.publish("", queue, persistent("the next"))

	for _, want := range []struct {
		id       string
		c        adapters.Consumer
		topic    string
		group    string
		code     failure.Code
		class    failure.Class
		attempts int
		queue    string
		keys     string
	}{
		{"rejected", rejected, rejected.Topic, "billing", "rabbitmq:rejected", "unknown", 1, queueOf(adapters.StreamMain, rejected), "eu.orders"},
		{"expired", expired, expired.Topic, "billing", "rabbitmq:expired", "expired", 0, queueOf(adapters.StreamMain, expired), ""},
		{"looped", looped, looped.Topic, "billing", "rabbitmq:delivery_limit", "unknown", 1, queueOf(adapters.StreamMain, looped), ""},
		{"retried", retried, retried.Topic, "billing", "rabbitmq:delivery_limit", "unknown", 4, queueOf(adapters.StreamRetry, retried), queueOf(adapters.StreamRetry, retried)},
		{"full", full, queue, queue, "rabbitmq:maxlen", "unknown", 0, queue, queue},
	} {
		dlq := queueOf(adapters.StreamDeadLetter, want.c)
		b.depthBecomes(dlq, 1)
		r := b.Drain(dlq)[0]
		got, ok := foreign.RabbitMQ(r, adapters.Names{})
		f := got.Failure
		if !ok || got.FailedMessage.ID != want.id || string(got.FailedMessage.Payload) != "body of "+want.id || got.ID == "" ||
			got.Source.Broker != "rabbitmq" || got.Source.Topic != want.topic || got.Consumer.Group != want.group ||
			f.Reason != "rejected_by_broker" || f.Code != want.code || f.Class != want.class || f.Attempts != want.attempts {
			t.Errorf("%s: %v, %+v\nof %+v", want.id, ok, got, r)
		}
		if age := time.Since(f.FailedAt); age < 0 || age > time.Minute || f.FirstAttemptAt.After(f.FailedAt) {
			t.Errorf("%s: failed at %s, first at %s", want.id, f.FailedAt, f.FirstAttemptAt)
		}
		deaths := foreign.Deaths(r.Headers)
		if d := deaths[0]; d.Queue != want.queue || d.Count != 1 || strings.Join(d.RoutingKeys, " ") != want.keys {
			t.Errorf("%s: deaths %+v", want.id, deaths)
		}
	}
}

// take gets the next message of a queue for a client without Spillway.
func (b *bench) take(queue string, settle func(amqp.Delivery) error) {
	b.Helper()
	b.Eventually("queue "+queue+" has a message", func() bool {
		d, ok, err := b.ch.Get(queue, false)
		if err == nil && ok {
			err = settle(d)
		}
		if err != nil {
			b.Fatal(err)
		}
		return ok
	})
}

func pairs(s envelope.State) []envelope.Pair {
	p, _ := s.Pairs(0)
	return p
}
