package sqs_test

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// server is the SQS that SPILLWAY_TEST_SQS names: "aws", with the region and the
// credentials of the environment, or a URL.
type server struct {
	url    string
	client *awssqs.Client
	aws    bool
	cfg    sqs.Config
}

func newServer(t *testing.T) server {
	t.Helper()
	const variable = "SPILLWAY_TEST_SQS"
	transport := &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	s := server{url: "sqs://", aws: os.Getenv(variable) == "aws"}
	s.cfg = sqs.Config{
		HTTPClient: &http.Client{Transport: transport},
		// Short, so that what was in flight when a process died is soon back, and
		// that what is delayed can soon be drained.
		Visibility: 2 * time.Second, PollWait: 2 * time.Second, MaxDelay: 3 * time.Second,
	}
	base := aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}
	if s.aws {
		var err error
		if base, err = config.LoadDefaultConfig(t.Context()); err != nil {
			t.Fatal(err)
		}
	} else {
		s.url = brokertest.URL(t, variable)
		u, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		base.BaseEndpoint = aws.String("http://" + u.Host)
	}
	base.HTTPClient = s.cfg.HTTPClient
	s.client = awssqs.NewFromConfig(base)
	return s
}

// clean deletes all queues whose names begin like that, after the test.
func (s server) clean(t testing.TB, prefix string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		prefix := strings.ReplaceAll(prefix, ".", "_")
		out, err := s.client.ListQueues(ctx, &awssqs.ListQueuesInput{QueueNamePrefix: &prefix})
		if err != nil {
			t.Errorf("clean up: %v", err)
			return
		}
		for _, q := range out.QueueUrls {
			if _, err := s.client.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: &q}); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
}

func TestConformanceOnAServer(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	adaptertest.Run(t, adaptertest.Harness{
		Parallel: true, Moves: true, Unordered: true, MaxBody: 600 << 10,
		// Other tests run beside these, on the same server and processors.
		Late: 2 * time.Second, Delay: time.Second, Within: time.Minute,
		Start: func(testing.TB) adaptertest.Target {
			var p processes
			return target(s.client, s.url, &p, s.cfg)
		},
		Topic: func(name string) string {
			s.clean(t, name)
			return name
		},
	})
}

var _ adapters.Broker
