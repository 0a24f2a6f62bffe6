package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

func runRouter(t *testing.T, sw *spillway.Spillway, topic string, handler message.NoPublishHandlerFunc) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	sw.Install(router)
	router.AddConsumerHandler("handler", topic, sw.Subscriber(), handler)
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		if err := router.Close(); err != nil {
			t.Errorf("close router: %v", err)
		}
		if err := <-ran; err != nil {
			t.Errorf("router: %v", err)
		}
	})
}

// One message of each fate, from a producer that knows nothing of Spillway.
func TestChain(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(4)
	sw := openFacade(t, b, spillway.Config{Group: c.Group, Concurrency: 4, Policy: fastPolicy()})
	var mu sync.Mutex
	calls := map[string][]string{}
	paid := make(chan struct{})
	runRouter(t, sw, c.Topic, func(msg *message.Message) error {
		d, ok := spillway.DeliveryFrom(msg.Context())
		if !ok {
			t.Error("no delivery in the context")
			return nil
		}
		mu.Lock()
		calls[msg.UUID] = append(calls[msg.UUID], fmt.Sprintf("%s:%d:%s", d.Stream, d.State.Attempt, msg.Metadata))
		n := len(calls[msg.UUID])
		mu.Unlock()
		msg.Payload[0], msg.Metadata["scribble"] = 'X', "by the handler"
		switch msg.UUID {
		case "transient":
			if n < 3 {
				return failure.Transient(errors.New("not yet"))
			}
			close(paid)
		case "permanent":
			return failure.Permanent(errors.New(strings.Repeat("ä", 1<<19)), failure.Code("E42")) // R14
		case "hopeless":
			return failure.Transient(errors.New("never"))
		case "missing":
			return failure.Missing("customer", "7")
		}
		return nil
	})
	send := func(id string) {
		b.publish(c.Topic, "", amqp.Publishing{
			Headers: amqp.Table{"_watermill_message_uuid": id, "n": int32(7), "k": "v"}, Body: []byte("original"),
		})
	}
	for _, id := range []string{"fine", "transient", "permanent", "hopeless", "missing"} {
		send(id)
	}
	wait(t, paid, "the third attempt")
	b.depthBecomes(queueOf(adapters.StreamDeadLetter, c), 2)
	b.Eventually("one is parked", func() bool { return b.parked(c) == 1 })

	dead := map[string]adapters.Record{}
	for _, r := range b.Drain(queueOf(adapters.StreamDeadLetter, c)) {
		dead[r.ID] = r
	}
	for id, want := range map[string]map[string]string{
		"permanent": {envelope.KeyDeadLetterReason: "permanent", envelope.KeyAttempt: "1", envelope.KeyErrorCode: "E42", envelope.KeyTruncated: "true"},
		"hopeless":  {envelope.KeyDeadLetterReason: "attempts_exhausted", envelope.KeyAttempt: "4", envelope.KeyBroker: "rabbitmq"},
	} {
		r, ok := dead[id]
		if !ok {
			t.Errorf("%s is no dead letter", id)
			continue
		}
		if n, _ := header(r, "n"); string(r.Payload) != "original" || n.Type != "int32" || string(n.Value) != "7" {
			t.Errorf("%s: payload %q, header %+v", id, r.Payload, n)
		}
		if _, ok := header(r, "scribble"); ok {
			t.Errorf("%s: the handler's metadata is in the dead letter", id)
		}
		for key, value := range want {
			if h, _ := header(r, key); string(h.Value) != value {
				t.Errorf("%s: %s is %q, want %q", id, key, h.Value, value)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"main:1:map[k:v n:7]", "retry:2:map[k:v n:7]", "retry:3:map[k:v n:7]"}; fmt.Sprint(calls["transient"]) != fmt.Sprint(want) {
		t.Errorf("transient was handled %v, want %v", calls["transient"], want)
	}
	if n := len(calls["hopeless"]); n != 4 { // R26
		t.Errorf("hopeless was handled %d times", n)
	}
	if n := len(calls["fine"]); n != 1 {
		t.Errorf("fine was handled %d times", n)
	}
}

// R6 and invariant 8: a message that takes its process with it is found, alone,
// and its neighbours are not.
func TestMessageThatKillsItsConsumer(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	b.publish(c.Topic, "", persistent("killer"))
	b.publish(c.Topic, "", persistent("neighbour"))
	// Processes that die with the message in hand.
	for range 3 {
		process := open(t, b.rawURL, b.cfg)
		s, err := process.Subscribe(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if d := b.Next(s); d.ID != "killer" {
			t.Errorf("got %q", d.ID)
		}
		b.Close(s)
	}
	sw := openFacade(t, b, spillway.Config{Group: c.Group})
	handled := make(chan string, 10)
	runRouter(t, sw, c.Topic, func(msg *message.Message) error {
		d, _ := spillway.DeliveryFrom(msg.Context())
		handled <- msg.UUID + " from " + string(d.Stream)
		return nil
	})
	got := map[string]bool{}
	for range 2 {
		select {
		case s := <-handled:
			got[s] = true
		case <-time.After(patience):
			t.Fatal("nothing was handled")
		}
	}
	if !got["killer from suspect"] || !got["neighbour from main"] {
		t.Errorf("handled %v", got)
	}
}

// fastPolicy has four transient attempts within a second, and parks what is
// missing at once.
func fastPolicy() policy.Policy {
	return policy.Policy{
		Attempts: policy.Attempts{Transient: 4, Ambiguous: 1},
		Backoff:  policy.Backoff{Base: 100 * time.Millisecond, Max: 200 * time.Millisecond},
	}
}
