package rabbitmq_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/envelope"
)

// everyType is a header of each type that AMQP has.
func everyType() amqp.Table {
	when := time.Unix(1_700_000_000, 0)
	return amqp.Table{
		"text": "Grüße", "empty": "", "not utf-8": "\xff\x00", "bytes": []byte{0, 255, 'x'},
		"true": true, "int8": int8(-8), "uint8": uint8(200), "int16": int16(-300), "uint16": uint16(60000),
		"int32": int32(-70000), "uint32": uint32(4e9), "int64": int64(math.MinInt64),
		"float32": float32(1.5), "float64": math.Pi, "decimal": amqp.Decimal{Scale: 2, Value: -1234},
		"time": when, "nil": nil,
		"array": []any{int64(1), "two", []any{true, nil}, amqp.Table{"k": int32(3)}},
		"table": amqp.Table{
			"s": "text", "n": int64(5), "i": int16(7), "f": 2.5, "t": when, "b": []byte("raw"), "nil": nil,
			"bad": "\xff", "$int8": "not a type", "deep": amqp.Table{"$": "x", "y": []any{amqp.Table{"int8": int8(1)}}},
		},
	}
}

// wire is what arrives of a table: the client reads and writes times in seconds.
func sameTable(want, got amqp.Table) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Unix() == b.Unix() }))
}

// R1: any header is kept, and none makes a message unreadable.
func TestHeadersOfEveryTypeSurviveEveryHop(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)

	sent := everyType()
	sent["_watermill_message_uuid"] = "id-1"
	p := amqp.Publishing{
		Headers: sent, Body: []byte{0, 1, 2, 255}, DeliveryMode: amqp.Transient,
		ContentType: "application/json", ContentEncoding: "gzip", Priority: 4, CorrelationId: "corr", ReplyTo: "answers",
		MessageId: "mid", Timestamp: time.Unix(1_600_000_000, 0), Type: "order", AppId: "shop",
	}
	b.publish(c.Topic, "", p)
	d := b.Next(sub)
	if d.ID != "id-1" || d.Stream != adapters.StreamMain || d.Count != 1 || d.Undecodable != nil {
		t.Errorf("got id %q, stream %s, count %d, undecodable %v", d.ID, d.Stream, d.Count, d.Undecodable)
	}
	if _, ok := header(d.Record, "_watermill_message_uuid"); ok {
		t.Error("the UUID is among the headers")
	}
	b.Handoff(adapters.Handoff{
		Consumer: c, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(50 * time.Millisecond),
		State: []envelope.Pair{{Key: envelope.KeyAttempt, Value: "2"}},
	})
	b.Ack(d)
	d = b.Next(sub)
	if d.Stream != adapters.StreamRetry || d.ID != "id-1" {
		t.Fatalf("got %q from %s", d.ID, d.Stream)
	}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: d.Record})
	b.Ack(d)

	// Once more without the native record, as a replay from an inventory.
	records := b.Drain(queueOf(adapters.StreamDeadLetter, c))
	if len(records) != 1 {
		t.Fatalf("%d dead letters", len(records))
	}
	stored := records[0]
	stored.Native = nil
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: stored})
	d = b.Next(sub)
	native := d.Native.(*amqp.Delivery)
	if diff := sameTable(sent, native.Headers); diff != "" {
		t.Errorf("headers after all hops (-sent +got):\n%s", diff)
	}
	if !bytes.Equal(d.Payload, p.Body) {
		t.Errorf("payload %v", d.Payload)
	}
	got := amqp.Publishing{
		ContentType: native.ContentType, ContentEncoding: native.ContentEncoding, Priority: native.Priority,
		CorrelationId: native.CorrelationId, ReplyTo: native.ReplyTo, MessageId: native.MessageId,
		Timestamp: native.Timestamp, Type: native.Type, AppId: native.AppId,
	}
	want := p
	want.Headers, want.Body, want.DeliveryMode = nil, nil, 0
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		t.Errorf("properties after all hops (-sent +got):\n%s", diff)
	}
	// R23: a message that came transient is kept safe from then on.
	if native.DeliveryMode != amqp.Persistent {
		t.Errorf("delivery mode is %d", native.DeliveryMode)
	}
	b.Ack(d)
}

// R7, R27, and the two that routers obey: a copy starts without the broker's
// own headers, whoever wrote them.
func TestBrokersHeadersAreNotCopied(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	other := b.consumer(1)
	b.Ensure(other)

	forged := amqp.Table{
		"x-death":                     []any{amqp.Table{"queue": "somewhere", "count": int64(9), "reason": "expired"}},
		"x-first-death-queue":         "somewhere",
		"x-last-death-reason":         "rejected",
		"x-delivery-count":            int64(50),
		"x-acquired-count":            int64(50),
		"spillway-attempt":            "7",
		"kept":                        "yes",
		"Secret":                      "drop me",
		"x-delay":                     int32(-5),
		"_watermill_amqp_redelivered": "true",
	}
	b.publish(c.Topic, "", amqp.Publishing{Headers: forged, Body: []byte("x"), Expiration: "600000"})
	d := b.Next(sub)
	if d.Count != 1 {
		t.Errorf("a forged delivery count made it %d", d.Count)
	}
	d.Native.(*amqp.Delivery).Headers["CC"] = []any{queueOf(adapters.StreamMain, other)}
	d.Native.(*amqp.Delivery).Headers["BCC"] = []any{queueOf(adapters.StreamMain, other)}
	d.Native.(*amqp.Delivery).UserId = "somebody-else"
	b.Handoff(adapters.Handoff{
		Consumer: c, Stream: adapters.StreamDeadLetter, Record: d.Record,
		State: []envelope.Pair{{Key: envelope.KeyAttempt, Value: "1"}}, DropHeaders: []string{"secret"},
	})
	b.Ack(d)
	b.Handoff(adapters.Handoff{ // the same from portable fields
		Consumer: c, Stream: adapters.StreamDeadLetter,
		Record: adapters.Record{Payload: []byte("x"), Headers: []adapters.Header{
			{Key: "kept", Value: []byte("yes")}, {Key: "x-death", Value: []byte("[]"), Type: "array"},
			{Key: "CC", Value: []byte(`["x"]`), Type: "array"}, {Key: "user-id", Value: []byte("me"), Type: "property"},
			{Key: "spillway-attempt", Value: []byte("7")}, {Key: "Secret", Value: []byte("x")},
			{Key: "x-delay", Value: []byte("-5"), Type: "int32"},
		}},
		State: []envelope.Pair{{Key: envelope.KeyAttempt, Value: "1"}}, DropHeaders: []string{"secret"},
	})
	ch := b.channel()
	for range 2 {
		got, ok, err := ch.Get(queueOf(adapters.StreamDeadLetter, c), true)
		if err != nil || !ok {
			t.Fatalf("got %v, %v", ok, err)
		}
		delete(got.Headers, "x-delivery-count") // basic.get adds it
		want := amqp.Table{"kept": "yes", "x-delay": int32(-5), "spillway-attempt": "1"}
		if diff := cmp.Diff(want, got.Headers); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		if got.Expiration != "" || got.UserId != "" {
			t.Errorf("expiration %q, user %q", got.Expiration, got.UserId)
		}
	}
	if n := b.depth(queueOf(adapters.StreamMain, other)); n != 0 {
		t.Errorf("%d copies went elsewhere", n)
	}
}

// CC and BCC of the producer, and a user id that is not ours.
func TestForeignRoutingAndUser(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c, copied := b.consumer(1), b.consumer(1)
	b.Ensure(copied)
	sub := b.Subscribe(c)
	b.publish("", queueOf(adapters.StreamMain, c), amqp.Publishing{
		Headers: amqp.Table{
			"CC":  []any{queueOf(adapters.StreamMain, copied)},
			"BCC": []any{queueOf(adapters.StreamMain, copied)},
		},
		UserId: b.client.Config.SASL[0].(*amqp.PlainAuth).Username, Body: []byte("x"),
	})
	d := b.Next(sub)
	if _, ok := header(d.Record, "CC"); ok {
		t.Error("the handler sees CC, and would not see it on the next attempt")
	}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: d.Record})
	b.Ack(d)
	b.Ack(b.Next(sub))
	if n := b.depth(queueOf(adapters.StreamMain, copied)); n != 1 {
		t.Errorf("the other queue has %d messages, its producer sent 1", n)
	}
}

func TestMessagesWithoutAnything(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	b.publish(c.Topic, "", amqp.Publishing{})
	d := b.Next(sub)
	if d.ID != "" || d.Payload == nil || len(d.Payload) != 0 || len(d.Headers) != 0 || d.Key != nil {
		t.Errorf("got %+v", d.Record)
	}
	if d.Position.Topic != c.Topic || d.Position.Partition != nil || d.Position.Offset != nil || !d.Position.Timestamp.IsZero() {
		t.Errorf("position %+v", d.Position)
	}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: d.Record})
	b.Ack(d)
	b.Ack(b.Next(sub))

	// A UUID that is no text, and a message id to fall back to.
	b.publish(c.Topic, "", amqp.Publishing{Headers: amqp.Table{"_watermill_message_uuid": int64(7)}, MessageId: "mid"})
	d = b.Next(sub)
	if h, _ := header(d.Record, "_watermill_message_uuid"); d.ID != "mid" || h.Type != "int64" {
		t.Errorf("id %q, header %+v", d.ID, h)
	}
	b.Ack(d)
}

// R14: what is too large for the broker is told apart, and costs no connection.
func TestMetadataLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	most := b.Broker.Capabilities().MaxMetadataBytes
	if most < 100_000 {
		t.Fatalf("MaxMetadataBytes is %d", most)
	}
	h := adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "fits", Payload: []byte("x")}}
	h.State = []envelope.Pair{{Key: envelope.KeyErrorMessage, Value: strings.Repeat("ü", (most-len(envelope.KeyErrorMessage))/2)}}
	b.Handoff(h)
	b.Ack(b.Next(sub))

	h.State[0].Value = strings.Repeat("ü", 1<<19) // 1 MiB
	if err := b.Broker.Handoff(t.Context(), h); !errors.Is(err, adapters.ErrTooLarge) {
		t.Errorf("1 MiB of error text: %v", err)
	}
	long := adapters.Record{Headers: []adapters.Header{{Key: strings.Repeat("k", 256), Value: []byte("v")}}}
	if err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: long}); !errors.Is(err, adapters.ErrRefused) {
		t.Errorf("a header name of 256 bytes: %v", err)
	}
	wrong := adapters.Record{Headers: []adapters.Header{{Key: "n", Value: []byte("seven"), Type: "int64"}}}
	if err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: wrong}); !errors.Is(err, adapters.ErrRefused) {
		t.Errorf("a number that is none: %v", err)
	}
	h.State = nil
	b.Handoff(h) // the connection still works
	b.Ack(b.Next(sub))
}

func TestLargePayload(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	body := bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 255}, 1<<20) // 8 MiB
	b.publish(c.Topic, "", amqp.Publishing{Body: body})
	d := b.Next(sub)
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: d.Record})
	b.Ack(d)
	d = b.Next(sub)
	if !bytes.Equal(d.Payload, body) {
		t.Errorf("%d bytes came back", len(d.Payload))
	}
	b.Ack(d)
}
