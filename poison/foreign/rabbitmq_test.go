package foreign_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// at is the time of a death, as the broker writes it.
var at = time.Unix(1_700_000_000, 0).UTC()

func record(xDeath string, more ...adapters.Header) adapters.Record {
	r := adapters.Record{
		ID: "id-1", Payload: []byte("body"), Position: envelope.Position{Topic: "orders.billing.dlq"},
		Headers: append([]adapters.Header{{Key: "kept", Value: []byte("yes")}}, more...),
	}
	if xDeath != "" {
		r.Headers = append(r.Headers, adapters.Header{Key: "x-death", Value: []byte(xDeath), Type: "array"})
	}
	return r
}

func text(key, value string) adapters.Header {
	return adapters.Header{Key: key, Value: []byte(value)}
}

const rejected = `[{"count":1,"exchange":"orders","queue":"orders_billing","reason":"rejected","routing-keys":["eu.1"],"time":{"$timestamp":"1700000000"}}]`

// stateOf are the headers that Spillway wrote.
func stateOf(s envelope.State) (headers []adapters.Header) {
	pairs, _ := s.Pairs(0)
	for _, p := range pairs {
		headers = append(headers, text(p.Key, p.Value))
	}
	return headers
}

func TestRabbitMQTellsWhatTheBrokerDid(t *testing.T) {
	t.Parallel()
	got, ok := foreign.RabbitMQ(record(rejected, text("x-trace-id", "trace-7")), adapters.Names{})
	if !ok || got.ID == "" {
		t.Fatalf("got %v, id %q", ok, got.ID)
	}
	got.ID = ""
	want := envelope.DeadLetter{
		FailedMessage: envelope.FailedMessage{ID: "id-1", Payload: []byte("body"), Headers: record(rejected, text("x-trace-id", "trace-7")).Headers},
		Failure: envelope.FailureInfo{
			Class: failure.ClassUnknown, Nature: failure.NatureUnknown, Code: "rabbitmq:rejected",
			Message: `rejected by a consumer of queue "orders_billing"`, Reason: "rejected_by_broker",
			Attempts: 1, FirstAttemptAt: at, FailedAt: at,
		},
		Source:   envelope.SourceInfo{Broker: "rabbitmq", Position: envelope.Position{Topic: "orders"}},
		Consumer: envelope.ConsumerInfo{Group: "billing"},
		TraceID:  "trace-7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	deaths := foreign.Deaths(record(rejected).Headers)
	if diff := cmp.Diff([]foreign.Death{{
		Queue: "orders_billing", Exchange: "orders", RoutingKeys: []string{"eu.1"}, Reason: foreign.DeathRejected, Count: 1, Time: at,
	}}, deaths); diff != "" {
		t.Errorf("deaths (-want +got):\n%s", diff)
	}
}

func TestRabbitMQReasons(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]struct {
		class    failure.Class
		attempts int
		text     string
	}{
		foreign.DeathRejected:      {failure.ClassUnknown, 3, "rejected"},
		foreign.DeathExpired:       {failure.ClassExpired, 0, "expired"},
		foreign.DeathMaxLength:     {failure.ClassUnknown, 0, "full"},
		foreign.DeathDeliveryLimit: {failure.ClassUnknown, 3, "limit"},
		"of next year":             {failure.ClassUnknown, 0, "of next year"},
	} {
		got, ok := foreign.RabbitMQ(record(`[{"count":3,"exchange":"","queue":"jobs","reason":"`+reason+`","time":{"$timestamp":"1700000000"}}]`), adapters.Names{})
		f := got.Failure
		if !ok || f.Class != want.class || f.Attempts != want.attempts || f.Code != failure.Code("rabbitmq:"+reason) ||
			f.Reason != "rejected_by_broker" || !strings.Contains(f.Message, want.text) ||
			!f.FirstAttemptAt.Equal(at) || !f.FailedAt.IsZero() { // of three deaths the broker keeps the time of the first
			t.Errorf("%s: %v, %+v", reason, ok, f)
		}
		// The default exchange has no name, and a stream that is not the topic's
		// says nothing of the group.
		if got.Source.Topic != "jobs" || got.Consumer.Group != "jobs" {
			t.Errorf("%s: topic %q, group %q", reason, got.Source.Topic, got.Consumer.Group)
		}
	}
}

// A retry of the old kind: rejected into a queue that expires back, three times.
func TestRabbitMQMessageThatWentRound(t *testing.T) {
	t.Parallel()
	const round = `[
		{"count":3,"exchange":"wait","queue":"orders.wait","reason":"expired","routing-keys":["orders"],"time":{"$timestamp":"1700000010"}},
		{"count":4,"exchange":"shop","queue":"orders","reason":"rejected","routing-keys":["orders"],"time":{"$timestamp":"1700000000"}}]`
	r := record(round,
		text("x-first-death-queue", "orders"), text("x-first-death-reason", "rejected"),
		text("x-last-death-queue", "orders"), text("x-last-death-reason", "rejected"))
	got, ok := foreign.RabbitMQ(r, adapters.Names{})
	if !ok || got.Source.Topic != "shop" || got.Failure.Code != "rabbitmq:rejected" || got.Failure.Attempts != 4 {
		t.Errorf("got %v, %+v", ok, got)
	}
	if deaths := foreign.Deaths(r.Headers); len(deaths) != 2 || deaths[0].Queue != "orders" {
		t.Errorf("deaths %+v", deaths)
	}
	// Without the broker's word for it, the times decide.
	if deaths := foreign.Deaths(record(round).Headers); len(deaths) != 2 || deaths[0].Queue != "orders.wait" {
		t.Errorf("deaths %+v", deaths)
	}
}

func TestRabbitMQReadsOurOwn(t *testing.T) {
	t.Parallel()
	s := envelope.State{
		Broker: "rabbitmq", Attempt: 3, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"},
		Class: failure.ClassValidation, Message: "no such item", Reason: "permanent", DeadLetteredAt: at.Add(-time.Hour), DeadLetterID: "dlid",
	}
	own := func(t *testing.T, r adapters.Record) {
		t.Helper()
		got, ok := foreign.RabbitMQ(r, adapters.Names{})
		if !ok || got.ID != "dlid" || got.Failure.Reason != "permanent" || got.Failure.Attempts != 3 || got.Failure.Message != "no such item" {
			t.Errorf("got %v, %+v", ok, got)
		}
	}
	own(t, record("", stateOf(s)...))
	// Somebody's policy moved it on to an archive.
	archived := strings.ReplaceAll(rejected, "orders_billing", "orders.billing.dlq")
	own(t, record(strings.ReplaceAll(archived, "rejected", "expired"), stateOf(s)...))
}

// The broker gave up on a message in the middle of its retries.
func TestRabbitMQBelievesStateFromTheRetryStream(t *testing.T) {
	t.Parallel()
	s := envelope.State{
		Broker: "rabbitmq", Attempt: 3, FirstAttemptAt: at.Add(-time.Hour), ConsumerGroup: "billing", Handler: "h",
		Source: envelope.Position{Topic: "orders"}, Class: failure.ClassDependencyTimeout, Message: "slow", DueAt: at,
	}
	looped := strings.ReplaceAll(strings.ReplaceAll(rejected, "orders_billing", "orders.billing.retry"), `"rejected"`, `"delivery_limit"`)
	got, ok := foreign.RabbitMQ(record(looped, stateOf(s)...), adapters.Names{})
	f := got.Failure
	if !ok || f.Attempts != 3 || !f.FirstAttemptAt.Equal(s.FirstAttemptAt) || got.Consumer.Handler != "h" || got.Source.Topic != "orders" ||
		f.Reason != "rejected_by_broker" || f.Code != "rabbitmq:delivery_limit" || f.Class != failure.ClassUnknown || strings.Contains(f.Message, "slow") {
		t.Errorf("got %v, %+v", ok, got)
	}
}

// O32 and invariant 10: what a producer wrote into its message changes neither
// what the broker did nor which dead letter it is.
func TestRabbitMQIgnoresForgedState(t *testing.T) {
	t.Parallel()
	forged := envelope.State{
		Attempt: 900, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}, Class: "forged",
		Reason: "permanent", DeadLetteredAt: at, DeadLetterID: "somebody-elses",
	}
	got, ok := foreign.RabbitMQ(record(rejected, stateOf(forged)...), adapters.Names{})
	if !ok || got.ID == "somebody-elses" || got.Failure.Attempts != 1 || got.Failure.Class != failure.ClassUnknown || got.Failure.Reason != "rejected_by_broker" {
		t.Errorf("got %v, %+v", ok, got)
	}
	plain, _ := foreign.RabbitMQ(record(rejected), adapters.Names{})
	if got.ID != plain.ID {
		t.Errorf("the forged message has the id %s, a plain one %s", got.ID, plain.ID)
	}
}

func TestRabbitMQLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for name, xDeath := range map[string]string{
		"nothing": "", "no JSON": "{", "no array": `{"queue":"q"}`, "empty": "[]", "no tables": `[1,"x",null,[]]`,
		"no queue": `[{"reason":"rejected"}]`, "no reason": `[{"queue":"q"}]`, "odd types": `[{"queue":7.5e3,"reason":[]}]`,
	} {
		if got, ok := foreign.RabbitMQ(record(xDeath), adapters.Names{}); ok {
			t.Errorf("%s: decoded as %+v", name, got)
		}
	}
}

func FuzzRabbitMQ(f *testing.F) {
	f.Add([]byte(rejected), "orders_billing", "rejected", "billing")
	f.Add([]byte(`[{"queue":{"$text":"/w=="},"reason":"expired","count":{"$int32":"-5"},"time":{"$timestamp":"9223372036854775807"},"routing-keys":[{"$bytes":"!"}]}]`), "", "", "")
	f.Add([]byte(`[{"queue":"..retry","reason":"maxlen"}]`), "..retry", "maxlen", "")
	f.Fuzz(func(t *testing.T, xDeath []byte, queue, reason, group string) {
		r := record(string(xDeath), text("x-first-death-queue", queue), text("x-last-death-queue", queue),
			text("x-first-death-reason", reason), text("x-last-death-reason", reason), text(envelope.KeyConsumerGroup, group))
		d, ok := foreign.RabbitMQ(r, adapters.Names{})
		if !ok {
			return
		}
		if d.Failure.Reason != "rejected_by_broker" || d.Failure.Attempts < 0 || d.Failure.Attempts > envelope.MaxCount || len(d.Failure.Message) > 4*envelope.MaxErrorRunes || !bytes.Equal(d.FailedMessage.Payload, r.Payload) {
			t.Errorf("got %+v", d)
		}
		out, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := envelope.DecodeDeadLetter(out); err != nil {
			t.Errorf("%s\n%v", out, err)
		}
	})
}
