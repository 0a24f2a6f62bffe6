package sqsfake_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// site is an SQS to test: the fake, a server of others, or AWS.
type site struct {
	*sqs.Client
	t      *testing.T
	ctx    context.Context
	fake   *sqsfake.Server // nil elsewhere
	aws    bool
	prefix string // of the names of queues
}

// bubble runs a test on a fake with time of its own.
func bubble(t *testing.T, test func(*testing.T, *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := sqsfake.New(sqsfake.Config{})
		defer fake.Close()
		test(t, &site{Client: newClient(fake), t: t, ctx: t.Context(), fake: fake})
	})
}

func newClient(fake *sqsfake.Server) *sqs.Client {
	return sqs.New(sqs.Options{
		Region:           "us-east-1",
		Credentials:      credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:       fake.Client(),
		RetryMaxAttempts: 1,
	})
}

// remote returns the site that SPILLWAY_TEST_SQS names: "aws" for what the
// environment and the files of the AWS SDK say, or a URL such as
// sqs://127.0.0.1:9324?region=elasticmq.
func remote(t *testing.T) *site {
	t.Helper()
	const variable = "SPILLWAY_TEST_SQS"
	where := os.Getenv(variable)
	if where != "aws" {
		where = brokertest.URL(t, variable)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	httpClient := &http.Client{Transport: transport}
	s := &site{t: t, ctx: t.Context(), prefix: "spillway-test-" + strings.ToLower(rand.Text()[:10]) + "-"}
	if where == "aws" {
		s.aws = true
		cfg, err := config.LoadDefaultConfig(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		cfg.HTTPClient = httpClient
		s.Client = sqs.NewFromConfig(cfg)
		return s
	}
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = sqs.New(sqs.Options{
		Region:           u.Query().Get("region"),
		BaseEndpoint:     aws.String("http://" + u.Host),
		Credentials:      credentials.NewStaticCredentialsProvider("id", "secret", ""),
		RetryMaxAttempts: 1,
		HTTPClient:       httpClient,
	})
	return s
}

// at is s for a subtest.
func (s *site) at(t *testing.T) *site {
	c := *s
	c.t, c.ctx = t, t.Context()
	return &c
}

func (s *site) name(name string) string {
	return s.prefix + strings.ToLower(rand.Text()[:6]) + "-" + name
}

// create makes a queue with attributes in pairs, and deletes it in the end.
func (s *site) create(name string, pairs ...string) (string, error) {
	attributes := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		attributes[pairs[i]] = pairs[i+1]
	}
	out, err := s.CreateQueue(s.ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		return "", err
	}
	if s.fake == nil {
		s.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := s.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
			if gone := new(types.QueueDoesNotExist); err != nil && !errors.As(err, &gone) {
				s.t.Errorf("delete %s: %v", name, err)
			}
		})
	}
	return *out.QueueUrl, nil
}

// queue is create for what must succeed.
func (s *site) queue(pairs ...string) string {
	s.t.Helper()
	u, err := s.create(s.name("q"), pairs...)
	if err != nil {
		s.t.Fatalf("create a queue with %v: %v", pairs, err)
	}
	return u
}

// fifo is queue for FIFO queues.
func (s *site) fifo(pairs ...string) string {
	s.t.Helper()
	u, err := s.create(s.name("q.fifo"), append(pairs, "FifoQueue", "true")...)
	if err != nil {
		s.t.Fatalf("create a FIFO queue with %v: %v", pairs, err)
	}
	return u
}

func (s *site) attribute(queue, name string) string {
	s.t.Helper()
	out, err := s.GetQueueAttributes(s.ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out.Attributes[name]
}

func (s *site) arn(queue string) string { s.t.Helper(); return s.attribute(queue, "QueueArn") }

func redrive(arn string, count any) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%v}`, arn, count)
}

// withDLQ returns a queue with a dead letter queue, and that one.
func (s *site) withDLQ(count int, pairs ...string) (string, string) {
	s.t.Helper()
	dlq := s.queue()
	return s.queue(append(pairs, "RedrivePolicy", redrive(s.arn(dlq), count))...), dlq
}

func (s *site) set(queue string, pairs ...string) error {
	attributes := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		attributes[pairs[i]] = pairs[i+1]
	}
	_, err := s.SetQueueAttributes(s.ctx, &sqs.SetQueueAttributesInput{QueueUrl: &queue, Attributes: attributes})
	return err
}

// text makes attributes of type String from pairs.
func text(pairs ...string) map[string]types.MessageAttributeValue {
	attributes := map[string]types.MessageAttributeValue{}
	for i := 0; i < len(pairs); i += 2 {
		attributes[pairs[i]] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &pairs[i+1]}
	}
	return attributes
}

// send sends a message to a queue. What is not set in it gets a value that works.
func (s *site) send(queue string, in sqs.SendMessageInput) error {
	_, err := s.sent(queue, in)
	return err
}

func (s *site) sent(queue string, in sqs.SendMessageInput) (*sqs.SendMessageOutput, error) {
	in.QueueUrl = &queue
	if in.MessageBody == nil {
		in.MessageBody = aws.String("body")
	}
	return s.SendMessage(s.ctx, &in)
}

// receive receives a message, for which it waits up to wait seconds, or nil.
func (s *site) receive(queue string, wait int32) *types.Message {
	s.t.Helper()
	all := s.receiveAll(sqs.ReceiveMessageInput{QueueUrl: &queue, WaitTimeSeconds: wait})
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

func (s *site) receiveAll(in sqs.ReceiveMessageInput) []types.Message {
	s.t.Helper()
	in.MessageAttributeNames = []string{"All"}
	in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"All"}
	out, err := s.ReceiveMessage(s.ctx, &in)
	if err != nil {
		s.t.Fatal(err)
	}
	return out.Messages
}

// must is receive for a message that must come.
func (s *site) must(queue string) *types.Message {
	s.t.Helper()
	m := s.receive(queue, 5)
	if m == nil {
		s.t.Fatal("no message to receive")
	}
	return m
}

// one sends a message and receives it.
func (s *site) one(queue string, in sqs.SendMessageInput) *types.Message {
	s.t.Helper()
	if err := s.send(queue, in); err != nil {
		s.t.Fatal(err)
	}
	return s.must(queue)
}

func (s *site) delete(queue string, handle *string) error {
	_, err := s.DeleteMessage(s.ctx, &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: handle})
	return err
}

// hide changes the visibility of a received message.
func (s *site) hide(queue string, handle *string, seconds int32) error {
	_, err := s.ChangeMessageVisibility(s.ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &queue, ReceiptHandle: handle, VisibilityTimeout: seconds,
	})
	return err
}

// code returns what an SDK reports as the code of an error: without an error "",
// and the text of one that is not the service's.
func code(err error) string {
	if err == nil {
		return ""
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return err.Error()
}

// expect makes an error of a result that is not the one wanted.
func expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func ptr[T any](v T) *T { return &v }
