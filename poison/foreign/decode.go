package foreign

import (
	"cmp"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// Format names who wrote the evidence of a dead letter. Its values appear in
// metrics and reports, and are frozen.
type Format string

// The formats that [Decode] tells apart.
const (
	FormatSpillway     Format = "spillway"      // our own metadata
	FormatWatermill    Format = "watermill"     // Watermill's PoisonQueue
	FormatSpringKafka  Format = "spring-kafka"  // kafka_dlt-* and kafka_*
	FormatSpringAMQP   Format = "spring-amqp"   // x-exception-*
	FormatKafkaConnect Format = "kafka-connect" // __connect.errors.*
	FormatKafkaStreams Format = "kafka-streams" // __streams.errors.*
	FormatShareGroup   Format = "share-group"   // __dlq.errors.*
	FormatMassTransit  Format = "masstransit"   // MT-Fault-*
	FormatNServiceBus  Format = "nservicebus"   // NServiceBus.ExceptionInfo.*
	FormatRabbitMQ     Format = "rabbitmq"      // x-death, of the broker itself
	FormatSQS          Format = "sqs"           // a queue's redrive policy
	FormatJSON         Format = "json"          // a dead letter in JSON as the body
	FormatUnknown      Format = "unknown"       // nothing that is known
)

// From says where a record was drained from. All fields may be zero.
type From struct {
	// Broker is the kind, as in adapters.Capabilities.
	Broker string
	// Stream that was drained; empty means the topic of the record's position.
	Stream string
	// Names are the templates of the consumers' streams.
	Names adapters.Names
	// Redactor for the error texts of others; nil means the shipped rules. Those
	// of our own were redacted when they were written.
	Redactor *poison.Redactor
}

// Decode reads the dead letter that a drained record is, in the first format of
// the table in the package's comment that recognises it, and says which that
// was. It does not fail: a record that no format recognises has class unknown,
// its failure is as old as the record's own timestamp, its source is where it
// lay, and its error text is what a header or field with a name like error says,
// or else a sentence that is the same for all of the stream.
//
// Payload, key and headers of the record are in the result as they are, except
// for Spillway's own headers, and for a body that is a dead letter in JSON,
// whose message takes the record's place.
func Decode(r adapters.Record, from From) (envelope.DeadLetter, Format) {
	if from.Stream == "" {
		from.Stream = r.Position.Topic
	}
	if from.Redactor == nil {
		from.Redactor = new(poison.Redactor)
	}
	in := &input{Record: r, From: from}
	for _, f := range formats {
		if d, ok := f.decode(in); ok {
			return d, f.name
		}
	}
	return in.unknown(), FormatUnknown
}

// formats in the order in which they are tried: what we wrote for a dead letter
// stream of ours; then what programs wrote, which know why a message failed;
// then what we wrote for whatever else was drained; then what brokers wrote,
// which know only that it failed; and at last the bodies, which anybody can
// have written.
var formats = []struct {
	name   Format
	decode func(*input) (envelope.DeadLetter, bool)
}{
	{FormatSpillway, (*input).oursInPlace},
	{FormatSpringKafka, marked(springKafka, "kafka_dlt-*", "kafka_exception-*", "kafka_key-exception-*", "kafka_original-*")},
	{FormatKafkaConnect, marked(kafkaConnect, "__connect.errors.*")},
	{FormatKafkaStreams, marked(kafkaStreams, "__streams.errors.*")},
	{FormatMassTransit, marked(massTransit, "MT-Fault-*", "MT-Reason")},
	{FormatNServiceBus, marked(nServiceBus, "NServiceBus.ExceptionInfo.*", "NServiceBus.FailedQ")},
	{FormatSpringAMQP, marked(springAMQP, "x-exception-message", "x-exception-stacktrace")},
	{FormatWatermill, marked(watermill, "reason_poisoned")},
	{FormatSpillway, (*input).ours},
	{FormatShareGroup, marked(shareGroup, "__dlq.errors.*")},
	{FormatRabbitMQ, (*input).rabbitMQ},
	{FormatSQS, (*input).sqs},
	{FormatJSON, (*input).body},
}

// marked decodes records that have one of the headers. A mark may end in *.
func marked(read func(*input) told, marks ...string) func(*input) (envelope.DeadLetter, bool) {
	return func(in *input) (envelope.DeadLetter, bool) {
		if !in.has(marks...) {
			return envelope.DeadLetter{}, false
		}
		return in.deadLetter(read(in)), true
	}
}

// told is what a format tells of a failure. What is zero it does not tell.
type told struct {
	source      envelope.Position // where the message was first, with names of any length
	group       string
	handler     string
	messageType string
	reason      policy.Reason
	kind        kind
	code        string
	message     string // neither redacted nor cut
	attempts    int
	failedAt    time.Time
}

// deadLetter makes a dead letter of what is told.
func (in *input) deadLetter(t told) envelope.DeadLetter {
	s := envelope.State{
		Broker: in.Broker, Source: t.source, ConsumerGroup: name(t.group), Handler: name(t.handler),
		Class: cmp.Or(t.kind.class, failure.ClassUnknown), Nature: cmp.Or(t.kind.nature, failure.NatureUnknown),
		Code: failure.Code(name(t.code)), Reason: string(t.reason), MessageType: name(t.messageType),
		DeadLetteredAt: t.failedAt,
	}
	s.Source.Topic = name(t.source.Topic)
	s.Message, s.Truncated = envelope.ErrorText(in.Redactor.Text(t.message))
	envelope.Keys{}.Describe(&s, in.Headers)
	s.DeadLetterID = idOf(in.Record, in.Stream, s)
	d := envelope.FromState(s, in.ID, in.Key, in.Headers, in.Payload)
	d.Failure.Attempts = min(max(t.attempts, 0), envelope.MaxCount) // which may be none
	return d
}
