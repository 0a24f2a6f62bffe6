package foreign

import "github.com/spillway-mq/spillway/envelope"

// springKafka reads what Spring for Apache Kafka adds to a record that it sends
// to a dead letter topic: kafka_dlt-*, or kafka_* where it retries over topics.
// Its integers are big-endian. Positions are appended with each time that a
// record is dead-lettered, so the first is the true one; exceptions, and the
// group that threw, are of the last.
func springKafka(in *input) told {
	prefix := "kafka_"
	if in.has("kafka_dlt-*") {
		prefix = "kafka_dlt-"
	}
	t := told{
		source:      envelope.Position{Topic: string(in.first(prefix + "original-topic"))},
		group:       in.text(prefix + "original-consumer-group"),
		messageType: in.text("__TypeId__"),
		// The recoverer leaves the time to the producer.
		failedAt: in.Position.Timestamp,
	}
	t.source.Partition = partition(binaryNumber(in.first(prefix+"original-partition"), 4))
	t.source.Offset = offset(binaryNumber(in.first(prefix+"original-offset"), 8))
	t.source.Timestamp = millis(binaryNumber(in.first(prefix+"original-timestamp"), 8))

	// The header counts the attempt that would come next.
	if n, ok := binaryNumber(in.last("retry_topic-attempts"), 1, 4); ok {
		t.attempts = int(min(n, envelope.MaxCount)) - 1
	} else if n, ok := binaryNumber(in.last("kafka_deliveryAttempt"), 4); ok {
		t.attempts = int(min(n, envelope.MaxCount))
	}

	outer := throwable{in.text(prefix + "exception-fqcn"), in.text(prefix + "exception-message")}
	trace := in.text(prefix + "exception-stacktrace")
	if outer.class == "" {
		if key := in.text(prefix + "key-exception-fqcn"); key != "" {
			outer = throwable{key, in.text(prefix + "key-exception-message")}
			trace = in.text(prefix + "key-exception-stacktrace")
		}
	}
	chain := withTrace(outer, trace)
	if cause := in.text(prefix + "exception-cause-fqcn"); cause != "" && len(chain) == 1 {
		// A wrapper's own message is all that is known of its cause's.
		chain = append(chain, throwable{cause, outer.message})
	}
	t.threw(chain)
	return t
}
