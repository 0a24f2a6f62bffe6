package rabbitmq_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

// check returns the findings of a broker, as "severity rule stream" and by that.
func check(t *testing.T, broker adapters.Broker, consumers ...adapters.Consumer) map[string]adapters.Finding {
	t.Helper()
	findings, err := broker.(adapters.Checker).Check(t.Context(), consumers)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]adapters.Finding{}
	for _, f := range findings {
		key := strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Severity, f.Rule, f.Stream))
		if _, twice := found[key]; twice {
			t.Errorf("%s was found twice", key)
		}
		if f.Message == "" || f.Severity != adapters.SeverityInfo && f.Fix == "" {
			t.Errorf("%s: message %q, fix %q", key, f.Message, f.Fix)
		}
		found[key] = f
	}
	return found
}

// want checks that exactly these were found, each with a text.
func want(t *testing.T, got map[string]adapters.Finding, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	for key, text := range want {
		if f, ok := got[key]; ok && !strings.Contains(f.Message+" "+f.Fix, text) {
			t.Errorf("%s: %q is not in message %q, fix %q", key, text, f.Message, f.Fix)
		}
	}
}

// arguments of a queue that handlers are fed from, as the package documents them.
func netted(c adapters.Consumer) amqp.Table {
	return amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 10000, "x-dead-letter-exchange": "",
		"x-dead-letter-routing-key": queueOf(adapters.StreamDeadLetter, c), "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}
}

// replace declares a queue of the test's own in place of one.
func (b *bench) replace(name string, durable bool, args amqp.Table) {
	b.Helper()
	if err := b.deleteQueue(name); err != nil {
		b.Fatal(err)
	}
	if _, err := b.ch.QueueDeclare(name, durable, false, false, false, args); err != nil {
		b.Fatal(err)
	}
}

func TestCheckFindsNothingWrong(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond, WholeLadder: true})
	c := b.consumer(1)
	b.Subscribe(c)
	want(t, check(t, b.Broker, c), nil)
}

// It declares nothing, neither what is missing nor what differs.
func TestCheckFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	main, retry := queueOf(adapters.StreamMain, c), queueOf(adapters.StreamRetry, c)
	parking, dead, suspect := queueOf(adapters.StreamParking, c), queueOf(adapters.StreamDeadLetter, c), queueOf(adapters.StreamSuspect, c)
	nothing := map[string]string{
		"error rabbitmq-exchange-missing " + c.Topic:                         "does not exist",
		"error rabbitmq-stream-missing " + main:                              "start the application once",
		"error rabbitmq-stream-missing " + retry:                             "does not exist",
		"error rabbitmq-stream-missing " + parking:                           "does not exist",
		"error rabbitmq-stream-missing " + dead:                              "does not exist",
		"warning rabbitmq-stream-missing " + suspect:                         "does not exist",
		"error rabbitmq-exchange-missing " + b.cfg.Prefix + ".return":        "does not exist",
		"error rabbitmq-exchange-missing " + b.cfg.Prefix + ".undeliverable": "does not exist",
		"error rabbitmq-stream-missing " + b.cfg.Prefix + ".undeliverable":   "does not exist",
	}
	for range 2 { // the first look has not declared anything
		found := check(t, b.Broker, c)
		want(t, found, nothing)
		if f := found["error rabbitmq-stream-missing "+main]; f.Consumer.Topic != c.Topic || f.Consumer.Group != c.Group {
			t.Errorf("consumer %+v", f.Consumer)
		}
	}

	b.Ensure(c)
	if err := b.deleteQueue(dead); err != nil {
		t.Fatal(err)
	}
	want(t, check(t, b.Broker, c), map[string]string{"error rabbitmq-stream-missing " + dead: "start the application once"})

	// Where nothing is declared on first use, rungs must be there.
	v := open(t, b.rawURL, rabbitmq.Config{Prefix: b.cfg.Prefix, MaxDelay: 200 * time.Millisecond, VerifyOnly: true})
	want(t, check(t, v, c), map[string]string{
		"error rabbitmq-stream-missing " + dead:                          "WholeLadder",
		"error rabbitmq-stream-missing " + b.cfg.Prefix + ".delay.125ms": "WholeLadder",
		"error rabbitmq-stream-missing " + b.cfg.Prefix + ".delay.156ms": "WholeLadder",
		"error rabbitmq-stream-missing " + b.cfg.Prefix + ".delay.187ms": "WholeLadder",
	})
}

// Every argument that matters is compared, and all differences are found at
// once, whatever version of the broker compares them in which order.
func TestCheckComparesArguments(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond, WholeLadder: true})
	c := b.consumer(1)
	b.Ensure(c)
	retry := queueOf(adapters.StreamRetry, c)
	for argument, tc := range map[string]struct {
		value any
		rule  string
		text  string
	}{
		"x-dead-letter-exchange":    {"elsewhere", "rabbitmq-stream-net", `x-dead-letter-exchange is "elsewhere", should be ""`},
		"x-dead-letter-routing-key": {nil, "rabbitmq-stream-net", "x-dead-letter-routing-key is not set, should be"},
		"x-dead-letter-strategy":    {"at-most-once", "rabbitmq-stream-net", `x-dead-letter-strategy is "at-most-once", should be "at-least-once"`},
		"x-overflow":                {"drop-head", "rabbitmq-stream-net", `x-overflow is "drop-head", should be "reject-publish"`},
		"x-delivery-limit":          {5, "rabbitmq-stream-argument", `x-delivery-limit is "5", should be "10000"`},
		"x-message-ttl":             {60000, "rabbitmq-stream-argument", `x-message-ttl is "60000", should be not set`},
		"x-max-length":              {10, "rabbitmq-stream-argument", `x-max-length is "10", should be not set`},
		"x-expires":                 {3600000, "rabbitmq-stream-argument", `x-expires is "3600000", should be not set`},
	} {
		args := netted(c)
		args[argument] = tc.value
		if tc.value == nil {
			delete(args, argument)
		}
		b.replace(retry, true, args)
		want(t, check(t, b.Broker, c), map[string]string{"error " + tc.rule + " " + retry: tc.text})
	}

	// No net at all, and a limit.
	b.replace(retry, true, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 5})
	found := check(t, b.Broker, c)
	want(t, found, map[string]string{
		"error rabbitmq-stream-net " + retry:      "x-dead-letter-exchange is not set",
		"error rabbitmq-stream-argument " + retry: `"5"`,
	})
	for _, argument := range []string{"exchange", "routing-key", "strategy"} {
		if m := found["error rabbitmq-stream-net "+retry].Message; !strings.Contains(m, "x-dead-letter-"+argument) {
			t.Errorf("%s is not in %q", argument, m)
		}
	}

	// A classic queue, as others declare them, and one that a restart deletes.
	b.replace(retry, true, nil)
	if f, ok := check(t, b.Broker, c)["error rabbitmq-stream-type "+retry]; !ok || !strings.Contains(f.Message, "x-queue-type is") {
		t.Errorf("a classic queue: %+v", f)
	}
	b.replace(retry, false, nil)
	if f, ok := check(t, b.Broker, c)["error rabbitmq-stream-type "+retry]; !ok || !strings.Contains(f.Message, `durable is "false", should be "true"`) {
		t.Errorf("a transient queue: %+v", f)
	}
	b.replace(retry, true, netted(c))

	rung := b.cfg.Prefix + ".delay.250ms"
	b.replace(rung, true, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 1<<31 - 1, "x-message-ttl": 7,
		"x-dead-letter-exchange": b.cfg.Prefix + ".return", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	})
	want(t, check(t, b.Broker, c), map[string]string{"error rabbitmq-stream-argument " + rung: `x-message-ttl is "7", should be "250"`})
}

func TestCheckComparesExchanges(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	back := b.cfg.Prefix + ".return"
	for name, kind := range map[string]string{c.Topic: "topic", back: "direct"} {
		if err := b.ch.ExchangeDelete(name, false, false); err != nil {
			t.Fatal(err)
		}
		if err := b.ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	want(t, check(t, b.Broker, c), map[string]string{
		"error rabbitmq-exchange-argument " + c.Topic: `type is "topic", should be "fanout"`,
		"error rabbitmq-exchange-argument " + back:    "alternate-exchange is not set",
	})
}

func TestCheckLooksAtMessagesAndReaders(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 2 * time.Second})
	c := b.consumer(1)
	b.Ensure(c)
	main, retry, suspect := queueOf(adapters.StreamMain, c), queueOf(adapters.StreamRetry, c), queueOf(adapters.StreamSuspect, c)
	parking, dead := queueOf(adapters.StreamParking, c), queueOf(adapters.StreamDeadLetter, c)
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		h := adapters.Handoff{Consumer: c, Stream: s, Record: adapters.Record{ID: "m"}}
		if s == adapters.StreamParking {
			h.Due = time.Now().Add(time.Hour)
		}
		b.Handoff(h)
	}
	b.publish(c.Topic, "", persistent("m"))
	for range 2 {
		b.publish("", b.cfg.Prefix+".undeliverable", persistent("m"))
	}
	lying := map[string]string{
		"warning rabbitmq-nobody-reads " + main:                           "1 message and no reader",
		"warning rabbitmq-nobody-reads " + retry:                          "1 message and no reader",
		"warning rabbitmq-nobody-reads " + suspect:                        "1 message and no reader",
		"warning rabbitmq-suspects " + suspect:                            "1 message that may have ended a process",
		"info rabbitmq-parked " + parking:                                 "1 parked message",
		"info rabbitmq-dead-letters " + dead:                              "1 dead letter",
		"error rabbitmq-undeliverable " + b.cfg.Prefix + ".undeliverable": "2 messages came back from a delay",
	}
	want(t, check(t, b.Broker, c), lying)

	// Counts are those of the look before: nothing was consumed.
	bay := parking + ".4096000ms" // for an hour
	for _, q := range []string{main, retry, suspect, bay, dead} {
		if n := b.depth(q); n != 1 {
			t.Errorf("%s has %d messages", q, n)
		}
	}

	// Somebody reads a rung and the parking lot.
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "m"}, Due: time.Now().Add(100 * time.Millisecond)})
	rung := b.cfg.Prefix + ".delay.125ms"
	b.depthBecomes(retry, 2)
	for _, q := range []string{bay, rung} {
		if err := b.ch.Qos(1, 0, false); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ch.Consume(q, "", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.depthBecomes(bay, 0)
	lying["warning rabbitmq-nobody-reads "+retry] = "2 messages"
	lying["error rabbitmq-foreign-reader "+bay] = "1 reader"
	lying["error rabbitmq-foreign-reader "+rung] = "1 reader"
	delete(lying, "info rabbitmq-parked "+parking) // it is with the reader
	want(t, check(t, b.Broker, c), lying)
}

func TestCheckCountsWhatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Subscribe(c)
	for _, d := range []time.Duration{10 * time.Minute, 10 * time.Minute, 12 * time.Minute} {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "m"}, Due: time.Now().Add(d)})
	}
	want(t, check(t, b.Broker, c), map[string]string{"info rabbitmq-waiting": "3 messages wait for the next attempt, on 2 rungs"})
}

func TestCheckOfQueuesThatOthersOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	theirs := open(t, b.rawURL, rabbitmq.Config{Prefix: b.cfg.Prefix, MaxDelay: 500 * time.Millisecond, Topics: map[string]rabbitmq.Topic{c.Topic: {Existing: true}}})
	b.replace(queueOf(adapters.StreamMain, c), true, nil)
	want(t, check(t, theirs, c), map[string]string{"info rabbitmq-net-unknown " + queueOf(adapters.StreamMain, c): "somebody else"})
}

// An exclusive queue of another connection cannot be looked at.
func TestCheckOfAQueueThatIsNotAvailable(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	dead := queueOf(adapters.StreamDeadLetter, c)
	if err := b.deleteQueue(dead); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ch.QueueDeclare(dead, false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	want(t, check(t, b.Broker, c), map[string]string{"error rabbitmq-stream-unavailable " + dead: "RESOURCE_LOCKED"})
}

func TestCheckOfConsumersThatCannotRun(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	inPlace := b.consumer(1)
	inPlace.Retry = adapters.RetryInPlace
	findings, err := b.Broker.(adapters.Checker).Check(t.Context(), []adapters.Consumer{inPlace, c, {Topic: strings.Repeat("x", 300), Group: "g"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(findings) != 2 {
		t.Errorf("findings: %+v", findings)
	}
	for i, text := range []string{"inPlace", "300 bytes"} {
		if i < len(findings) && (findings[i].Rule != "rabbitmq-consumer" || findings[i].Severity != adapters.SeverityError || !strings.Contains(findings[i].Message, text)) {
			t.Errorf("finding: %+v", findings[i])
		}
	}
}

// What a user may not do is found, and the rest is looked at all the same.
func TestCheckWithoutPermissions(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "m"}})
	user := "user-" + watermill.NewShortUUID()
	b.ctl("add_user", user, "pw")
	t.Cleanup(func() { b.ctl("delete_user", user) })
	b.ctl("set_permissions", user, "^$", "^$", "^$")
	broker := open(t, b.withUser(user, "pw"), b.cfg)
	want(t, check(t, broker, c), map[string]string{
		"warning rabbitmq-permission":                                         "the arguments of 9 queues and exchanges were not compared",
		"info rabbitmq-dead-letters " + queueOf(adapters.StreamDeadLetter, c): "1 dead letter",
	})
}

func TestCheckThatCannotLook(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	broker := open(t, b.rawURL, b.cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := broker.(adapters.Checker).Check(ctx, nil); err == nil {
		t.Error("no error after the end of the context")
	}
	u, err := url.Parse(b.rawURL)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := rabbitmq.OpenerWith(b.cfg).Open(t.Context(), adapters.OpenParams{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := closed.(adapters.Checker).Check(t.Context(), nil); err == nil {
		t.Error("no error from a closed broker")
	}
}
