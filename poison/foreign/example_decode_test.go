package foreign_test

import (
	"fmt"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// A record of a dead letter topic that Kafka Connect fills.
func ExampleDecode() {
	header := func(key, value string) adapters.Header {
		return adapters.Header{Key: key, Value: []byte(value)}
	}
	record := adapters.Record{
		Payload:  []byte(`{"order":4711}`),
		Position: envelope.Position{Topic: "orders-sink-dlq", Partition: new(int32(0)), Offset: new(int64(7))},
		Headers: []adapters.Header{
			header("__connect.errors.topic", "orders"),
			header("__connect.errors.partition", "3"),
			header("__connect.errors.offset", "77"),
			header("__connect.errors.connector.name", "orders-sink"),
			header("__connect.errors.exception.class.name", "java.net.SocketTimeoutException"),
			header("__connect.errors.exception.message", "Read timed out"),
		},
	}
	d, format := foreign.Decode(record, foreign.From{Broker: "kafka"})
	fmt.Println("format:  ", format)
	fmt.Println("failure: ", d.Failure.Class, d.Failure.Nature, d.Failure.Code)
	fmt.Println("text:    ", d.Failure.Message)
	fmt.Println("source:  ", d.Source.Topic, *d.Source.Partition, *d.Source.Offset)
	fmt.Println("consumer:", d.Consumer.Group)
	fmt.Println("payload: ", string(d.FailedMessage.Payload))
	// Output:
	// format:   kafka-connect
	// failure:  dependency_timeout transient java.net.SocketTimeoutException
	// text:     Read timed out
	// source:   orders 3 77
	// consumer: orders-sink
	// payload:  {"order":4711}
}
