package foreign_test

import (
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// FuzzDecode gives records of every format other values, and two formats at a
// time.
func FuzzDecode(f *testing.F) {
	var records []adapters.Record
	fixtures(f, func(_ string, r adapters.Record, _ foreign.From) {
		f.Add(uint8(len(records)), uint8(0), uint8(0), []byte("x"), r.Payload)
		records = append(records, r)
	})
	f.Fuzz(func(t *testing.T, one, two, which uint8, value, payload []byte) {
		a, b := records[int(one)%len(records)], records[int(two)%len(records)]
		a.Headers = append(append([]adapters.Header(nil), b.Headers...), a.Headers...)
		a.Payload = payload
		if n := len(a.Headers); n > 0 {
			a.Headers[int(which)%n].Value = value
		}
		d, format := foreign.Decode(a, foreign.From{Stream: string(value)})
		kept(t, a, d, format)
	})
}

// fuzz fuzzes one decoder, which reads the given headers.
func fuzz(f *testing.F, want foreign.Format, keys [6]string) {
	f.Helper()
	fixtures(f, func(_ string, r adapters.Record, _ foreign.From) {
		var v [len(keys)][]byte
		for i, key := range keys {
			for _, h := range r.Headers {
				if h.Key == key {
					v[i] = h.Value
				}
			}
		}
		f.Add(v[0], v[1], v[2], v[3], v[4], v[5])
	})
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g []byte) {
		r := adapters.Record{ID: "id", Payload: []byte("body")}
		for i, v := range [][]byte{a, b, c, d, e, g} {
			r.Headers = append(r.Headers, adapters.Header{Key: keys[i], Value: v})
		}
		dl, format := foreign.Decode(r, foreign.From{})
		if format != want {
			t.Errorf("taken for %s", format)
		}
		kept(t, r, dl, format)
	})
}

func FuzzSpringKafka(f *testing.F) {
	fuzz(f, foreign.FormatSpringKafka, [...]string{
		"kafka_dlt-original-partition", "kafka_dlt-original-offset", "kafka_dlt-original-timestamp", "retry_topic-attempts",
		"kafka_dlt-exception-fqcn", "kafka_dlt-exception-stacktrace",
	})
}

func FuzzSpringAMQP(f *testing.F) {
	fuzz(f, foreign.FormatSpringAMQP, [...]string{
		"x-exception-stacktrace", "x-exception-message", "x-original-exchange", "x-original-routingKey", "__TypeId__", "traceparent",
	})
}

func FuzzKafkaConnect(f *testing.F) {
	fuzz(f, foreign.FormatKafkaConnect, [...]string{
		"__connect.errors.partition", "__connect.errors.offset", "__connect.errors.stage", "__connect.errors.exception.class.name",
		"__connect.errors.exception.message", "__connect.errors.exception.stacktrace",
	})
}

func FuzzKafkaStreams(f *testing.F) {
	fuzz(f, foreign.FormatKafkaStreams, [...]string{
		"__streams.errors.partition", "__streams.errors.offset", "__streams.errors.topic", "__streams.errors.exception",
		"__streams.errors.message", "__streams.errors.stacktrace",
	})
}

func FuzzShareGroup(f *testing.F) {
	fuzz(f, foreign.FormatShareGroup, [...]string{
		"__dlq.errors.partition", "__dlq.errors.offset", "__dlq.errors.topic", "__dlq.errors.group",
		"__dlq.errors.delivery.count", "__dlq.errors.message",
	})
}

func FuzzMassTransit(f *testing.F) {
	fuzz(f, foreign.FormatMassTransit, [...]string{
		"MT-Fault-InputAddress", "MT-Fault-Timestamp", "MT-Fault-RetryCount", "MT-Redelivery-Count", "MT-Fault-ExceptionType", "MT-MessageType",
	})
}

func FuzzNServiceBus(f *testing.F) {
	fuzz(f, foreign.FormatNServiceBus, [...]string{
		"NServiceBus.TimeOfFailure", "NServiceBus.TimeSent", "NServiceBus.FailedQ", "NServiceBus.EnclosedMessageTypes",
		"NServiceBus.ExceptionInfo.ExceptionType", "NServiceBus.ExceptionInfo.Message",
	})
}

func FuzzWatermill(f *testing.F) {
	fuzz(f, foreign.FormatWatermill, [...]string{
		"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned", "name", "x-trace-id",
	})
}

func FuzzSQS(f *testing.F) {
	f.Add("arn:aws:sqs:eu-west-1:000000000000:orders", "6", "orders", "billing", "2")
	f.Add("arn:aws:sqs:eu-west-1:000000000000:orders-billing-retry", "-1", "orders", "billing", "x")
	f.Add("::", "99999999999999999999", "", "", "")
	f.Fuzz(func(t *testing.T, arn, count, topic, group, attempt string) {
		r := adapters.Record{ID: "id", Payload: []byte("body"), Headers: []adapters.Header{
			{Key: "sqs:DeadLetterQueueSourceArn", Value: []byte(arn), Type: "system"},
			{Key: "sqs:ApproximateReceiveCount", Value: []byte(count), Type: "system"},
			text(envelope.KeySourceTopic, topic), text(envelope.KeyConsumerGroup, group), text(envelope.KeyAttempt, attempt),
		}}
		d, format := foreign.Decode(r, foreign.From{})
		kept(t, r, d, format)
	})
}

func FuzzBody(f *testing.F) {
	fixtures(f, func(_ string, r adapters.Record, _ foreign.From) { f.Add(r.Payload) })
	f.Fuzz(func(t *testing.T, body []byte) {
		r := adapters.Record{ID: "id", Payload: body}
		d, format := foreign.Decode(r, foreign.From{})
		if format != foreign.FormatJSON && format != foreign.FormatUnknown {
			t.Errorf("taken for %s", format)
		}
		kept(t, r, d, format)
	})
}
