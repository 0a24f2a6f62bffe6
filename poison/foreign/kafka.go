package foreign

import (
	"strings"

	"github.com/spillway-mq/spillway/policy"
)

// kafkaConnect reads the context headers of a sink connector's dead letter
// queue. The record has the timestamp of the one that failed; when it failed is
// not told.
func kafkaConnect(in *input) told {
	const prefix = "__connect.errors."
	t := told{
		source:  in.position(prefix),
		group:   in.text(prefix + "connector.name"),
		handler: in.text(prefix + "class.name"),
	}
	t.source.Timestamp = in.Position.Timestamp
	t.threw(withTrace(throwable{in.text(prefix + "exception.class.name"), in.text(prefix + "exception.message")}, in.text(prefix+"exception.stacktrace")))
	// Converters of a sink only read.
	if t.kind == (kind{}) && strings.HasSuffix(in.text(prefix+"stage"), "_CONVERTER") {
		t.kind = undecodable
	}
	return t
}

// kafkaStreams reads what the exception handlers of Kafka Streams write. The
// record has the timestamp of the one that failed; when it failed, and which
// application it was, is not told.
func kafkaStreams(in *input) told {
	const prefix = "__streams.errors."
	t := told{source: in.position(prefix)}
	t.source.Timestamp = in.Position.Timestamp
	outer := throwable{in.text(prefix + "exception"), in.text(prefix + "message")}
	// Its first versions wrote class and message in one.
	outer.class, _, _ = strings.Cut(outer.class, ": ")
	t.threw(withTrace(outer, in.text(prefix+"stacktrace")))
	return t
}

// shareGroup reads what Kafka's broker writes about a record that a share group
// gave up. It writes no headers of the message.
func shareGroup(in *input) told {
	const prefix = "__dlq.errors."
	t := told{
		source:   in.position(prefix),
		group:    in.text(prefix + "group"),
		reason:   policy.ReasonRejectedByBroker,
		code:     "share-group",
		message:  in.text(prefix + "message"),
		attempts: in.count(prefix + "delivery.count"),
		failedAt: in.Position.Timestamp,
	}
	switch said := strings.ToLower(t.message); {
	case strings.Contains(said, "rejected by client"):
		t.code += ":rejected"
	case strings.Contains(said, "delivery count exceeded"):
		t.code += ":delivery_limit"
	}
	return t
}
