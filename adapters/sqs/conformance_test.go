package sqs_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

func TestConformanceOnTheFake(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqs.Config{
		"single":  {},
		"batches": {BatchSize: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Harness{
				Unordered: true, // as SQS says of standard queues
				Bubble:    true, Polls: true, Moves: true, Quiet: 20 * time.Minute, Parallel: true, MaxBody: 600 << 10,
				Start: func(tb testing.TB) adaptertest.Target {
					fake := newFake(tb)
					cfg := cfg
					cfg.HTTPClient = fake.Client()
					var p processes
					return target(client(fake.Client()), fakeURL, &p, cfg)
				},
			})
		})
	}
}

// target is the broker as processes see it that can be killed, with a producer
// that does not know Spillway.
func target(c *awssqs.Client, url string, p *processes, cfg sqs.Config) adaptertest.Target {
	send := func(topic, body string, attributes map[string]types.MessageAttributeValue) error {
		q, err := c.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &topic})
		if err != nil {
			return err
		}
		_, err = c.SendMessage(context.Background(), &awssqs.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: &body, MessageAttributes: attributes})
		return err
	}
	return adaptertest.Target{
		URL: url, Opener: p.opener(cfg), Kill: p.kill,
		PublishUndecodable: func(topic string) ([]byte, error) {
			raw := "this is no base64!"
			return []byte(raw), send(topic, raw, map[string]types.MessageAttributeValue{
				"_watermill_message_uuid": str("raw"), "spillway-encoding": str("base64"),
			})
		},
		Streams: func(topic string) (int, error) {
			out, err := c.ListQueues(context.Background(), &awssqs.ListQueuesInput{QueueNamePrefix: &topic})
			if err != nil {
				return 0, err
			}
			return len(out.QueueUrls), nil
		},
	}
}

func str(v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(v)}
}

var _ adapters.Broker
