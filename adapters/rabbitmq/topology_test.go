package rabbitmq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestConfigurationProblemsAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := tryOpen(t, "amqp://nobody:secret@127.0.0.1:1/", rabbitmq.Config{
		Prefix: strings.Repeat("p", 250), MinDelay: time.Millisecond, MaxDelay: 48 * time.Hour, QueueType: "classic",
		DeliveryLimit: -1, Lanes: 5000, PublishTimeout: -1, VerifyOnly: true, WholeLadder: true,
		Topic:  rabbitmq.Topic{Exchange: "x.{group}"},
		Topics: map[string]rabbitmq.Topic{"jobs": {Kind: rabbitmq.KindQueue, Exchange: "e", Queue: "q.{group}"}},
	})
	if err == nil {
		t.Fatal("everything was taken")
	}
	for _, want := range []string{
		"Prefix", "MinDelay", "MaxDelay", "QueueType", "DeliveryLimit", "Lanes", "PublishTimeout", "WholeLadder",
		"Topic.Exchange", `Topics["jobs"].Exchange`, `Topics["jobs"].Queue`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	unique := watermill.NewShortUUID()
	for _, topic := range []string{
		"orders.eu.v1-" + unique, "orders/eu/v1-" + unique, "Bestellungen für Zürich " + unique, "a#b*c-" + unique,
		strings.Repeat("l", 255-len("..parking.2097152000ms")-len("shipping")-len(unique)-1) + "-" + unique,
	} {
		c := b.consumerOf(topic, "shipping", 1)
		sub := b.Subscribe(c)
		b.publish(topic, "", persistent("m"))
		d := b.Next(sub)
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(10 * time.Millisecond)})
		b.Ack(d)
		b.Ack(b.Next(sub))
	}
	for topic, group := range map[string]string{
		strings.Repeat("x", 300): "g", "ok-" + unique: strings.Repeat("g", 300), "amq.mine": "g", "": "g",
	} {
		err := b.Broker.Ensure(t.Context(), adapters.Consumer{Topic: topic, Group: group, Concurrency: 1})
		if err == nil {
			t.Errorf("topic %.20q with group %.20q was taken", topic, group)
		}
	}
	for _, topic := range []string{"", strings.Repeat("x", 300), "amq.mine"} {
		if err := b.Broker.Publisher().Publish(topic, message.NewMessage("m", nil)); err == nil {
			t.Errorf("a publish to topic %.20q was taken", topic)
		}
	}
}

func TestCollidingNames(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	u := watermill.NewShortUUID()
	b.Ensure(b.consumerOf(u+"_a", "b", 1))
	err := b.Broker.Ensure(t.Context(), adapters.Consumer{Topic: u, Group: "a_b"})
	if err == nil || !strings.Contains(err.Error(), u+"_a_b") {
		t.Errorf("two groups with one queue: %v", err)
	}
	c := adapters.Consumer{Topic: b.cfg.Prefix + ".delay", Group: "x"}
	if err := b.Broker.Ensure(t.Context(), c); err == nil || !strings.Contains(err.Error(), "ladder") {
		t.Errorf("a group in the ladder: %v", err)
	}
}

// R16: a queue that exists with other arguments.
func TestClashingTopology(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	main := queueOf(adapters.StreamMain, c)
	if _, err := b.ch.QueueDeclare(main, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
		t.Fatal(err)
	}
	err := b.Broker.Ensure(t.Context(), c)
	var te *rabbitmq.TopologyError
	if !errors.As(err, &te) {
		t.Fatalf("got %v", err)
	}
	if te.Kind != "queue" || te.Name != main || te.Argument == "" || te.Want == te.Have || !strings.Contains(te.Hint, "Existing") {
		t.Errorf("got %+v", te)
	}
	t.Log(err)

	// Another kind of exchange, and a rung with another time to live.
	other := b.consumer(1)
	if err := b.ch.ExchangeDeclare(other.Topic, "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Broker.Ensure(t.Context(), other); !errors.As(err, &te) || te.Kind != "exchange" || te.Argument != "type" || te.Want != "fanout" || te.Have != "direct" {
		t.Errorf("got %+v (%v)", te, err)
	}
	third := b.consumer(1)
	b.Ensure(third)
	if _, err := b.ch.QueueDeclare(b.cfg.Prefix+".delay.500ms", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-message-ttl": 7}); err != nil {
		t.Fatal(err)
	}
	err = b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: third, Stream: adapters.StreamRetry, Due: time.Now().Add(500 * time.Millisecond)})
	if !errors.As(err, &te) || te.Name != b.cfg.Prefix+".delay.500ms" {
		t.Errorf("got %v", err)
	}
	// The other rungs are of use all the same.
	b.Handoff(adapters.Handoff{Consumer: third, Stream: adapters.StreamRetry, Due: time.Now().Add(100 * time.Millisecond)})

	// The ways out: the queue is somebody else's, or all is.
	existing := open(t, b.rawURL, rabbitmq.Config{Prefix: b.cfg.Prefix, Topics: map[string]rabbitmq.Topic{
		c.Topic: {Existing: true, Kind: rabbitmq.KindQueue, Queue: main},
	}})
	if err := existing.Ensure(t.Context(), c); err != nil {
		t.Errorf("Existing: %v", err)
	}
	s, err := existing.Subscribe(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(s) })
	b.publish("", main, persistent("m"))
	d := b.Next(s)
	b.Return(d)
	if d = b.Next(s); d.Count != 2 { // a classic queue does not count
		t.Errorf("count %d", d.Count)
	}
	b.Ack(d)
}

func TestVerifyOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond, WholeLadder: true})
	c := b.consumer(1)
	cfg := b.cfg
	cfg.WholeLadder, cfg.VerifyOnly = false, true
	v := open(t, b.rawURL, cfg)
	var te *rabbitmq.TopologyError
	err := v.Ensure(t.Context(), c)
	if !errors.As(err, &te) || te.Argument != "" || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("nothing is there: %v", err)
	}
	if b.exists(queueOf(adapters.StreamRetry, c)) {
		t.Error("VerifyOnly declared a queue")
	}
	b.Ensure(c)
	s, err := v.Subscribe(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(s) })
	b.publish(c.Topic, "", persistent("m"))
	d := b.Next(s)
	if err := v.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(400 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	b.Ack(d)
	b.Ack(b.Next(s))
	for _, name := range []string{b.cfg.Prefix + ".delay.500ms", queueOf(adapters.StreamDeadLetter, c)} {
		if err := b.deleteQueue(name); err != nil {
			t.Fatal(err)
		}
		if err := v.Ensure(t.Context(), c); !errors.As(err, &te) || te.Name != name {
			t.Errorf("%s is missing: %v", name, err)
		}
	}
}

func TestTopicIsAQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{Topic: rabbitmq.Topic{Kind: rabbitmq.KindQueue}})
	c := b.consumer(1)
	if err := b.Broker.Publisher().Publish(c.Topic, message.NewMessage("m", []byte("x"))); err == nil {
		t.Error("a publish to a queue that does not exist was confirmed")
	}
	sub := b.Subscribe(c)
	if err := b.Broker.Publisher().Publish(c.Topic, message.NewMessage("m", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	b.Ack(b.Next(sub))
	if err := b.Broker.Ensure(t.Context(), adapters.Consumer{Topic: c.Topic, Group: "second"}); err == nil {
		t.Error("a queue has two groups")
	}
}

func TestTopicOfATopicExchange(t *testing.T) {
	t.Parallel()
	exchange := "events-" + watermill.NewShortUUID()
	topic := rabbitmq.Topic{Exchange: exchange, Kind: "topic", Queue: "{group}-of-{topic}", BindKey: "order.*", PublishKey: "order.created", Mandatory: true}
	b := setup(t, rabbitmq.Config{Topic: topic})
	c := b.consumer(1)
	t.Cleanup(func() { b.drop(exchange); b.drop("billing-of-" + c.Topic) })
	if err := b.Broker.Publisher().Publish(c.Topic, message.NewMessage("nobody", nil)); err == nil {
		t.Error("a mandatory publish that reached nobody was confirmed")
	}
	sub := b.Subscribe(c)
	if err := b.Broker.Publisher().Publish(c.Topic, message.NewMessage("m", nil)); err != nil {
		t.Fatal(err)
	}
	b.publish(exchange, "order.paid", persistent("foreign"))
	b.publish(exchange, "invoice.paid", persistent("not ours"))
	for _, want := range []string{"m", "foreign"} {
		d := b.Next(sub)
		if d.ID != want {
			t.Errorf("got %q, want %q", d.ID, want)
		}
		b.Ack(d)
	}
	b.Quiet(sub, 50*time.Millisecond)
}

// A dead letter queue can be read as a topic: it is a queue, and not ours to
// change.
func TestDeadLetterQueueAsTopic(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	dead := b.consumerOf(queueOf(adapters.StreamDeadLetter, c), "triage", 1)
	sub := b.Subscribe(dead)
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "m"}})
	b.Ack(b.Next(sub))
	b.Ensure(c)
}

// The permissions that the package documentation states are enough, and
// without them the error says what is missing.
func TestPermissions(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 250 * time.Millisecond})
	c := b.consumer(1)
	user := "user-" + watermill.NewShortUUID()
	b.ctl("add_user", user, "pw")
	t.Cleanup(func() { b.ctl("delete_user", user) })

	ours := b.cfg.Prefix + `\..*`
	streams := c.Topic + `\.` + c.Group + `\..*`
	main := c.Topic + `(_` + c.Group + `)?`
	b.ctl("set_permissions", user, "^("+main+"|"+streams+"|"+ours+")$", "^("+main+"|"+streams+"|"+ours+`|amq\.default)$`, "^("+main+"|"+streams+"|"+ours+")$")
	roundTrip := func(broker adapters.Broker) {
		t.Helper()
		if err := broker.Ensure(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		s, err := broker.Subscribe(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(s)
		if err := broker.Publisher().Publish(c.Topic, message.NewMessage("m", nil)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for _, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect} {
				d := b.Next(s)
				if err := broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: stream, Record: d.Record, Due: time.Now().Add(200 * time.Millisecond)}); err != nil {
					t.Fatal(err)
				}
				b.Ack(d)
			}
		}
		d := b.Next(s)
		if err := broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: d.Record}); err != nil {
			t.Fatal(err)
		}
		b.Ack(d)
		n := 0
		if err := broker.Drain(t.Context(), queueOf(adapters.StreamDeadLetter, c), func(context.Context, adapters.Record) error { n++; return nil }); err != nil || n != 1 {
			t.Errorf("drained %d: %v", n, err)
		}
	}
	cfg := b.cfg
	cfg.WholeLadder = true
	roundTrip(open(t, b.withUser(user, "pw"), cfg))

	// With everything declared, less is enough.
	b.ctl("set_permissions", user, "^$", "^("+c.Topic+"|"+b.cfg.Prefix+`\.delay\..*|amq\.default)$`, "^("+c.Topic+"_"+c.Group+"|"+streams+")$")
	cfg.WholeLadder, cfg.VerifyOnly = false, true
	roundTrip(open(t, b.withUser(user, "pw"), cfg))

	cfg.VerifyOnly = false
	err := open(t, b.withUser(user, "pw"), cfg).Ensure(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "permission") {
		t.Errorf("without permissions: %v", err)
	}
}
