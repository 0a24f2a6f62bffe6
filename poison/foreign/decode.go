package foreign

import (
	"cmp"
	"slices"
	"strings"
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
// was. It does not fail: a record that no format recognises has class unknown.
// Payload, key and headers of the record are kept as they are, except for
// Spillway's own headers, and for a body that is a dead letter in JSON, whose
// message takes the record's place.
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
	return in.deadLetter(told{failedAt: r.Position.Timestamp}), FormatUnknown
}

// formats in the order in which they are tried: what we wrote for the consumer
// whose stream was drained; then what programs wrote, who know why; then what
// brokers wrote, who know only that; then what we wrote for somebody else, and
// at last the bodies, which say least about who wrote them.
var formats = []struct {
	name   Format
	decode func(*input) (envelope.DeadLetter, bool)
}{
	{FormatSpillway, (*input).ownBelieved},
	{FormatRabbitMQ, (*input).rabbitMQ},
}

// input is a record that is being decoded.
type input struct {
	adapters.Record
	From
}

// ownBelieved decodes what Spillway wrote, unless the broker moved the record
// out of a stream to which others write too.
func (in *input) ownBelieved() (envelope.DeadLetter, bool) {
	d, ok := RabbitMQ(in.Record, in.Names)
	return d, ok && d.Failure.Reason != string(policy.ReasonRejectedByBroker)
}

func (in *input) rabbitMQ() (envelope.DeadLetter, bool) { return RabbitMQ(in.Record, in.Names) }

// value returns the last value of a header, whose case does not matter.
func (in *input) value(key string) []byte {
	for _, h := range slices.Backward(in.Headers) {
		if strings.EqualFold(h.Key, key) {
			return h.Value
		}
	}
	return nil
}

// told is what a format tells of a failure. What is zero it does not tell.
type told struct {
	source   envelope.Position
	group    string
	handler  string
	reason   string
	class    failure.Class
	code     failure.Code
	message  string // neither redacted nor cut
	attempts int
	first    time.Time
	failedAt time.Time
}

// deadLetter makes a dead letter of what is told.
func (in *input) deadLetter(t told) envelope.DeadLetter {
	s := envelope.State{
		Broker: in.Broker, Source: t.source, ConsumerGroup: t.group, Handler: t.handler,
		Class: cmp.Or(t.class, failure.ClassUnknown), Nature: failure.NatureUnknown, Code: t.code,
		Reason: t.reason, FirstAttemptAt: t.first, DeadLetteredAt: t.failedAt,
	}
	s.Message, s.Truncated = envelope.ErrorText(in.Redactor.Text(t.message))
	envelope.Keys{}.Describe(&s, in.Headers)
	s.DeadLetterID = in.id(s)
	d := envelope.FromState(s, in.ID, in.Key, in.Headers, in.Payload)
	d.Failure.Attempts = t.attempts // which may be none
	return d
}

// id is that of the record which was drained, where that has a position: what
// others say of the first one is not enough to take two records for one.
func (in *input) id(s envelope.State) string {
	of := envelope.State{Broker: in.Broker, ConsumerGroup: s.ConsumerGroup, Source: in.Position}
	if in.Position.Partition == nil || in.Position.Offset == nil {
		of.Source = envelope.Position{Topic: cmp.Or(s.Source.Topic, in.Stream)}
	}
	return envelope.DeadLetterID(of, in.Record.ID, in.Payload)
}
