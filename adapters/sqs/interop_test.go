package sqs_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

// What watermill-aws publishes arrives here, and what we publish arrives there:
// the UUID, the payload, and the metadata as attributes of their own.
func TestWatermillAWSInteroperates(t *testing.T) {
	t.Parallel()
	fake := newFakeOutside(t)
	b := &bench{Bench: adaptertest.Bench{T: t, Patience: patience}, fake: fake, client: client(fake.Client()), cfg: sqs.Config{HTTPClient: fake.Client(), PollWait: time.Second}}
	b.Broker = b.open()
	b.Ensure(orders)
	theirs := awsConfig(fake)
	pub, err := wsqs.NewPublisher(wsqs.PublisherConfig{AWSConfig: theirs, Marshaler: wsqs.DefaultMarshalerUnmarshaler{}}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	metadata := message.Metadata{"tenant": "acme", "content-type": "application/json", "a.b-c_d": "Jörg & Søn"}
	out := message.NewMessage("from-watermill", []byte(`{"id":1}`))
	out.Metadata = metadata
	if err := pub.Publish(orders.Topic, out); err != nil {
		t.Fatal(err)
	}
	s := b.Subscribe(orders)
	d := b.Next(s)
	got := message.Metadata{}
	for _, h := range d.Headers {
		got[h.Key] = string(h.Value)
	}
	if diff := cmp.Diff(metadata, got); diff != "" || d.ID != "from-watermill" || string(d.Payload) != `{"id":1}` {
		t.Errorf("%q %q, metadata (-want +got):\n%s", d.ID, d.Payload, diff)
	}
	b.Ack(d)

	sub, err := wsqs.NewSubscriber(wsqs.SubscriberConfig{AWSConfig: theirs, Unmarshaler: wsqs.DefaultMarshalerUnmarshaler{}}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	b.create("shipments", nil)
	ctx, cancel := context.WithCancel(t.Context())
	in, err := sub.Subscribe(ctx, "shipments")
	if err != nil {
		t.Fatal(err)
	}
	out = message.NewMessage("from-spillway", []byte("text"))
	out.Metadata = metadata
	if err := b.Broker.Publisher().Publish("shipments", out); err != nil {
		t.Fatal(err)
	}
	select {
	case msg := <-in:
		if diff := cmp.Diff(metadata, msg.Metadata); diff != "" || msg.UUID != "from-spillway" || string(msg.Payload) != "text" {
			t.Errorf("%q %q, metadata (-want +got):\n%s", msg.UUID, msg.Payload, diff)
		}
		msg.Ack()
	case <-time.After(patience):
		t.Error("watermill-aws receives nothing of ours")
	}
	cancel()
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

func awsConfig(fake *sqsfake.Server) aws.Config {
	return aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: fake.Client()}
}
