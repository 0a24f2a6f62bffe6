package storm

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

// sqsTarget is an ElasticMQ of the storm's own, which scripts/brokers runs.
type sqsTarget struct {
	instance
	url *url.URL
}

// sqsOptions let messages of killed processes come again before the storm is
// over, and let Drain see soon what is delayed.
const sqsOptions = "&visibility=6s&pollWait=5s&maxDelay=8s"

var sqsClients = []string{"github.com/ThreeDotsLabs/watermill-aws", "github.com/aws/aws-sdk-go-v2/service/sqs"}

func (t *sqsTarget) Start(ctx context.Context) error {
	variables, err := t.start(ctx)
	if err != nil {
		return err
	}
	t.url, err = url.Parse(variables["SPILLWAY_TEST_SQS"])
	if err == nil && t.url.Host == "" {
		err = errors.New("scripts/brokers names no SPILLWAY_TEST_SQS")
	}
	return err
}

func (t *sqsTarget) URL() string       { return t.url.String() + sqsOptions }
func (t *sqsTarget) Addr() string      { return t.url.Host }
func (t *sqsTarget) ProxyAddr() string { return "" }
func (t *sqsTarget) InProcess() bool   { return false }
func (t *sqsTarget) Kill(string)       {}

func (t *sqsTarget) Via(addr string) string {
	via := *t.url
	via.Host = addr
	return via.String() + sqsOptions
}

// Opener has an SDK that sends a message once. By default it repeats a publish
// that got no answer, and the second copy that this may make is in no ledger.
// Hand-offs the adapter itself sends once.
func (t *sqsTarget) Opener() adapters.Opener {
	return sqs.OpenerWith(sqs.Config{HTTPClient: sendsOnce{&http.Client{Timeout: 15 * time.Second}}})
}

// sendsOnce lets the SDK's further attempts to send a message fail.
type sendsOnce struct{ *http.Client }

func (c sendsOnce) Do(r *http.Request) (*http.Response, error) {
	attempt := r.Header.Get("Amz-Sdk-Request") // attempt=2; max=3
	if r.Header.Get("X-Amz-Target") == "AmazonSQS.SendMessage" && attempt != "" && !strings.HasPrefix(attempt, "attempt=1") {
		return nil, errors.New("storm: sent once and not confirmed")
	}
	return c.Client.Do(r)
}

var sqsCredentials = credentials.NewStaticCredentialsProvider("id", "secret", "")

// Streams: a topic is the queue of its only group.
func (t *sqsTarget) Streams(_ context.Context, c adapters.Consumer) ([]Place, error) {
	return []Place{{Stream: adapters.StreamMain, Name: c.Topic, Group: c.Group}}, nil
}

// Held asks the server for its queues, whatever they are called.
func (t *sqsTarget) Held(ctx context.Context) (map[string]int, error) {
	held, err := t.counts(ctx)
	maps.DeleteFunc(held, func(_ string, n int) bool { return n == 0 })
	return held, err
}

// counts returns how many messages there are in each queue.
func (t *sqsTarget) counts(ctx context.Context) (map[string]int, error) {
	client := sqsClient(t.url.Host)
	queues, err := client.ListQueues(ctx, &sqsapi.ListQueuesInput{})
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, queue := range queues.QueueUrls {
		out, err := client.GetQueueAttributes(ctx, &sqsapi.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: sqsCounters})
		if err != nil {
			return nil, err
		}
		name := queue[strings.LastIndexByte(queue, '/')+1:]
		counts[name] = 0
		for _, text := range out.Attributes {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, err
			}
			counts[name] += n
		}
	}
	return counts, nil
}

// untilCounts asks for the counts until they are as wanted, for a while: if they
// never are, the checker has something to find.
func (t *sqsTarget) untilCounts(ctx context.Context, wanted func(map[string]int) bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for pause(ctx, 300*time.Millisecond) {
		if now, err := t.counts(ctx); err == nil && wanted(now) {
			return
		}
	}
}

// offline does something that ends the broker. ElasticMQ serves before it has
// its queues back, and forgets the messages of one that a client makes anew
// meanwhile. So clients stay away until it has again what it had.
func (t *sqsTarget) offline(do func(context.Context, *rand.Rand) (string, error)) func(context.Context, *rand.Rand) (string, error) {
	return func(ctx context.Context, r *rand.Rand) (string, error) {
		var before map[string]int
		t.untilCounts(ctx, func(now map[string]int) bool { // what was on its way has arrived
			same := maps.Equal(before, now)
			before = now
			return same
		})
		scope, err := do(ctx, r)
		if err == nil {
			t.untilCounts(ctx, func(now map[string]int) bool { return maps.Equal(before, now) })
		}
		return scope, err
	}
}

var sqsCounters = []types.QueueAttributeName{
	types.QueueAttributeNameApproximateNumberOfMessages,
	types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
}

func (t *sqsTarget) Trials() []Trial {
	return []Trial{
		{Name: "kill -9 of the broker", Weight: 3, Broker: true, Offline: true, Do: t.offline(t.killed)},
		{Name: "restart of the broker", Weight: 2, Broker: true, Offline: true, Do: t.offline(t.restarted)},
		{Name: "messages looked at in the console", Weight: 2, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			// They are hidden for a moment, and the receive counts.
			client := sqsClient(t.url.Host)
			queue := []string{topicIn, adapters.Names{}.WithDefaults().Of(adapters.StreamRetry, adapters.Consumer{Topic: topicIn, Group: groupActing})}[r.IntN(2)]
			out, err := client.GetQueueUrl(ctx, &sqsapi.GetQueueUrlInput{QueueName: aws.String(strings.ReplaceAll(queue, ".", "_"))})
			if err == nil {
				_, err = client.ReceiveMessage(ctx, &sqsapi.ReceiveMessageInput{QueueUrl: out.QueueUrl, MaxNumberOfMessages: 10, VisibilityTimeout: 1})
			}
			if answered := (interface{ ErrorCode() string })(nil); !errors.As(err, &answered) {
				err = nil // the server is slow, and whoever looked sees an error page
			}
			return scopeNobody, err
		}},
	}
}

// Headers have the types that SQS has, in the forms of the adapter.
func (t *sqsTarget) Headers(r *rand.Rand) []adapters.Header {
	return []adapters.Header{
		{Key: "number", Type: "Number", Value: []byte(strconv.Itoa(r.Int()))},
		{Key: "binary", Type: "Binary", Value: []byte{0, 0xff, byte(r.Int())}},
		{Key: "custom", Type: "String.uuid", Value: fmt.Appendf(nil, "%x", r.Uint64())},
	}
}

func sqsClient(host string) *sqsapi.Client {
	return sqsapi.New(sqsapi.Options{
		Region:           "elasticmq",
		BaseEndpoint:     aws.String("http://" + host),
		Credentials:      sqsCredentials,
		HTTPClient:       &http.Client{Timeout: 15 * time.Second},
		RetryMaxAttempts: 1, // see Opener
	})
}

// NativePublisher publishes as a service does that knows no Spillway, with the
// attributes of watermill-aws. Bodies that SQS does not have are written in the
// form that docs/sqs.md gives for other producers.
func (t *sqsTarget) NativePublisher(rawURL string) (NativePublisher, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	return &sqsPublisher{client: sqsClient(u.Host), queues: map[string]string{}}, nil
}

type sqsPublisher struct {
	client *sqsapi.Client

	mu     sync.Mutex
	queues map[string]string // URLs by topic
}

func (p *sqsPublisher) queue(ctx context.Context, topic string) (string, error) {
	p.mu.Lock()
	queue := p.queues[topic]
	p.mu.Unlock()
	if queue != "" {
		return queue, nil
	}
	out, err := p.client.GetQueueUrl(ctx, &sqsapi.GetQueueUrlInput{QueueName: aws.String(strings.ReplaceAll(topic, ".", "_"))})
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[topic] = *out.QueueUrl
	return *out.QueueUrl, nil
}

func (p *sqsPublisher) Publish(ctx context.Context, topic string, r adapters.Record) error {
	queue, err := p.queue(ctx, topic)
	if err != nil {
		return err
	}
	attributes := map[string]types.MessageAttributeValue{}
	set := func(name, dataType string, value []byte) {
		a := types.MessageAttributeValue{DataType: &dataType}
		if dataType == "Binary" {
			a.BinaryValue = value
		} else {
			a.StringValue = aws.String(string(value))
		}
		attributes[name] = a
	}
	set("_watermill_message_uuid", "String", []byte(r.ID))
	for _, h := range r.Headers {
		set(h.Key, cmp.Or(h.Type, "String"), h.Value)
	}
	body := string(r.Payload)
	switch {
	case body == "":
		body = "empty"
		set("spillway-encoding", "String", []byte("empty"))
	case !utf8.ValidString(body) || slices.ContainsFunc([]rune(body), func(c rune) bool { return c < ' ' }):
		body = base64.StdEncoding.EncodeToString(r.Payload)
		set("spillway-encoding", "String", []byte("base64"))
	}
	_, err = p.client.SendMessage(ctx, &sqsapi.SendMessageInput{QueueUrl: &queue, MessageBody: &body, MessageAttributes: attributes})
	return err
}

func (p *sqsPublisher) Close() error { return nil }
