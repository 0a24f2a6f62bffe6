package kafka_test

import (
	"context"
	"crypto/tls"
	"log"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// A service that reaches its cluster by TLS, shares each partition among many
// handlers, and lets a new group begin with what comes.
func ExampleOpenerWith() {
	client := sarama.NewConfig()
	client.ClientID = "billing"
	client.Net.TLS.Enable = true
	client.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS13}

	ctx := context.Background()
	sw, err := spillway.Open(ctx, "kafka://one:9093,two:9093", spillway.Config{Group: "billing", Concurrency: 64},
		kafka.OpenerWith(kafka.Config{Sarama: client, Order: kafka.OrderKey, Start: kafka.StartNewest}))
	if err != nil {
		log.Fatal(err)
	}
	defer sw.Close(ctx)
	// Install the chain in a Router, and subscribe with sw.Subscriber().
}
