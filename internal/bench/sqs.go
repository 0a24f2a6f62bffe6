package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	wsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// onSQS measures on a server with the API of SQS.
type onSQS struct {
	url      string
	messages int
	rounds   int
	letters  int // dead letters that are collected

	web    *http.Client
	client *sqsapi.Client
}

func (q *onSQS) sections() []section {
	return []section{{"sqs", q.measure}, {"collect-sqs", q.collect}}
}

// connect makes the clients. The host is that of the server.
func (q *onSQS) connect() (host string, end func(), err error) {
	u, err := url.Parse(q.url)
	if err != nil || u.Host == "" {
		return "", nil, errors.New("SPILLWAY_TEST_SQS is not the URL of a server")
	}
	// As many connections as there are slots, for both sides.
	transport := &http.Transport{MaxIdleConnsPerHost: 4 * concurrency}
	q.web = &http.Client{Transport: transport}
	q.client = sqsapi.NewFromConfig(q.config(), endpoint(u.Host))
	return u.Host, transport.CloseIdleConnections, nil
}

func (q *onSQS) measure(ctx context.Context, t *table) {
	host, end, err := q.connect()
	if err != nil {
		t.fail("SQS", err)
		return
	}
	defer end()
	if err := q.throughput(ctx, t, host); err != nil {
		t.fail("SQS: throughput", err)
	}
	if err := q.hops(ctx, t); err != nil {
		t.fail("SQS: calls of a retry", err)
	}
}

func (q *onSQS) config() aws.Config {
	return aws.Config{
		Region: "elasticmq", HTTPClient: q.web,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}
}

func endpoint(host string) func(*sqsapi.Options) {
	return func(o *sqsapi.Options) { o.BaseEndpoint = aws.String("http://" + host) }
}

func (q *onSQS) throughput(ctx context.Context, t *table, host string) error {
	run := func(s stack) func() (float64, error) {
		return func() (float64, error) { return trial{messages: q.messages}.run(ctx, s) }
	}
	bare := func(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
		return q.bare(ctx, t, host, handle, ended)
	}
	warm := trial{messages: q.messages}
	for _, s := range []stack{q.spillway, bare} {
		if _, err := warm.run(ctx, s); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
	}
	all, err := inTurns(q.rounds, run(q.spillway), run(bare))
	if err != nil {
		return err
	}
	t.check("SQS: success path, of the bare watermill-aws router's", all.ratio(0, 1) >= 1, "at least 1",
		"%.2f (%.0f of %.0f msg/s)", all.ratio(0, 1), all.median(0), all.median(1))
	return nil
}

// spillway is a stack: subscriber, Router and chain.
func (q *onSQS) spillway(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	return q.start(ctx, t.batch(), benchConfig(middleware.Hooks{OnOutcome: onEnd(ended)}), q.web, handle)
}

// doer carries requests.
type doer interface {
	Do(*http.Request) (*http.Response, error)
}

func (q *onSQS) start(ctx context.Context, batch []*message.Message, cfg spillway.Config, web doer, handle message.NoPublishHandlerFunc) (func() error, error) {
	topic := newTopic()
	stop := stops{func() error { return q.drop(topic) }}
	sw, err := spillway.Open(ctx, q.url, cfg, sqs.OpenerWith(sqs.Config{HTTPClient: web}))
	if err != nil {
		return nil, err
	}
	stop = append(stop, func() error { return sw.Close(context.WithoutCancel(ctx)) })
	router := newRouter()
	sw.Install(router)
	sub := sw.Subscriber().(interface {
		message.Subscriber
		message.SubscribeInitializer
	})
	if err := errors.Join(sub.SubscribeInitialize(topic), q.publish(ctx, topic, batch)); err != nil {
		return nil, errors.Join(err, stop.all())
	}
	router.AddConsumerHandler("charge", topic, sub, handle)
	end, err := runRouter(ctx, router)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	return append(stop, end).all, nil
}

// bare is a stack of watermill-aws and a Router, without middlewares.
func (q *onSQS) bare(ctx context.Context, t trial, host string, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
	topic := newTopic()
	stop := stops{func() error { return q.drop(topic) }}
	sub, err := wsqs.NewSubscriber(wsqs.SubscriberConfig{
		AWSConfig: q.config(), OptFns: []func(*sqsapi.Options){endpoint(host)}, ConsumeWorkers: concurrency,
		QueueUrlResolver: wsqs.NewGetQueueUrlByNameUrlResolver(wsqs.GetQueueUrlByNameUrlResolverConfig{
			GenerateGetQueueUrlInput: func(_ context.Context, topic string) (*sqsapi.GetQueueUrlInput, error) {
				return &sqsapi.GetQueueUrlInput{QueueName: aws.String(queueName(topic))}, nil
			},
		}),
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	stop = append(stop, sub.Close)
	_, err = q.client.CreateQueue(ctx, &sqsapi.CreateQueueInput{QueueName: aws.String(queueName(topic))})
	if err := errors.Join(err, q.publish(ctx, topic, t.batch())); err != nil {
		return nil, errors.Join(err, stop.all())
	}
	router := newRouter()
	router.AddMiddleware(countEnds(ended))
	router.AddConsumerHandler("charge", topic, sub, handle)
	end, err := runRouter(ctx, router)
	if err != nil {
		return nil, errors.Join(err, stop.all())
	}
	return append(stop, end).all, nil
}

// queueName is the queue of a topic of ours.
func queueName(topic string) string { return strings.ReplaceAll(topic, ".", "_") }

func (q *onSQS) queueURL(ctx context.Context, name string) (*string, error) {
	out, err := q.client.GetQueueUrl(ctx, &sqsapi.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		return nil, err
	}
	return out.QueueUrl, nil
}

// publish writes messages as watermill-aws does, ten in a request.
func (q *onSQS) publish(ctx context.Context, topic string, batch []*message.Message) error {
	queue, err := q.queueURL(ctx, queueName(topic))
	if err != nil {
		return err
	}
	for len(batch) > 0 {
		n := min(10, len(batch))
		entries := make([]types.SendMessageBatchRequestEntry, n)
		for i, msg := range batch[:n] {
			wire, err := wsqs.DefaultMarshalerUnmarshaler{}.Marshal(msg)
			if err != nil {
				return err
			}
			entries[i] = types.SendMessageBatchRequestEntry{
				Id: aws.String(strconv.Itoa(i)), MessageBody: wire.Body, MessageAttributes: wire.MessageAttributes,
			}
		}
		out, err := q.client.SendMessageBatch(ctx, &sqsapi.SendMessageBatchInput{QueueUrl: queue, Entries: entries})
		if err != nil {
			return err
		}
		if len(out.Failed) > 0 {
			return fmt.Errorf("%d messages to %q were refused", len(out.Failed), topic)
		}
		batch = batch[n:]
	}
	return nil
}

// drop deletes the queues of a topic, those that there are.
func (q *onSQS) drop(topic string) error {
	ctx := context.Background()
	c := adapters.Consumer{Topic: topic, Group: group}
	names := []string{queueName(topic)}
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		names = append(names, queueName(adapters.Names{}.WithDefaults().Of(s, c)))
	}
	var errs []error
	for _, name := range names {
		queue, err := q.queueURL(ctx, name)
		if _, absent := errors.AsType[*types.QueueDoesNotExist](err); absent {
			continue
		}
		if err == nil {
			_, err = q.client.DeleteQueue(ctx, &sqsapi.DeleteQueueInput{QueueUrl: queue})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hops counts the requests of messages that fail so many times and then
// succeed, and takes away those of messages that succeed at once.
func (q *onSQS) hops(ctx context.Context, t *table) error {
	const messages, retries = 100, 2
	var counts [2]int
	for i, failures := range []int{0, retries} {
		n, err := q.requests(ctx, messages, failures)
		if err != nil {
			return err
		}
		counts[i] = n
	}
	perHop := float64(counts[1]-counts[0]) / (messages * retries)
	t.check("SQS: requests that a retry costs", perHop <= 3, "at most 3", "%.2f (%d of %d retries)",
		perHop, counts[1]-counts[0], messages*retries)
	t.note("SQS: requests of a message that succeeds at once", "%.2f", float64(counts[0])/messages)
	return nil
}

// requests returns how many it took until all messages were processed, without
// polls that brought nothing and without what asks for no message.
func (q *onSQS) requests(ctx context.Context, messages, failures int) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("counting took more than %s", trialTime))
	defer cancel()
	c := &counter{next: q.web}
	var ended atomic.Int64
	done := make(chan struct{})
	cfg := benchConfig(middleware.Hooks{OnOutcome: onEnd(func() {
		if ended.Add(1) == int64(messages) {
			close(done)
		}
	})})
	cfg.Policy = policy.Policy{Attempts: policy.Attempts{Transient: failures + 2}, Backoff: samePolicy.Backoff}
	stop, err := q.start(ctx, trial{messages: messages}.batch(), cfg, c, func(msg *message.Message) error {
		if d, ok := spillway.DeliveryFrom(msg.Context()); !ok || d.State.Attempt <= failures {
			return errOutage
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = errors.Join(await(ctx, done), stop()) // stop waits for deletes
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, err
}

// counter counts requests about messages, but for polls that brought none.
type counter struct {
	next doer

	mu sync.Mutex
	n  int
}

func (c *counter) Do(r *http.Request) (*http.Response, error) {
	action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	res, err := c.next.Do(r)
	if err != nil {
		return res, err
	}
	counts := true
	switch action {
	case "CreateQueue", "GetQueueUrl", "GetQueueAttributes", "SetQueueAttributes":
		counts = false
	case "ReceiveMessage":
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
		counts = bytes.Contains(body, []byte(`"ReceiptHandle"`))
	}
	if counts {
		c.mu.Lock()
		c.n++
		c.mu.Unlock()
	}
	return res, nil
}

// collect measures how fast dead letters get into an inventory, and how many
// requests that takes.
func (q *onSQS) collect(ctx context.Context, t *table) {
	_, end, err := q.connect()
	if err != nil {
		t.fail("SQS: collect", err)
		return
	}
	defer end()
	reading := &counter{next: q.web}
	all := 0
	collecting{name: "SQS", messages: q.letters, rounds: 3, open: func(ctx context.Context, stream string, messages int) (adapters.Broker, func() error, error) {
		all += messages
		return q.dead(ctx, stream, messages, reading)
	}}.measure(ctx, t)
	t.note("SQS: requests that collecting a dead letter takes", "%.2f (%d of %d)", float64(reading.n)/float64(max(all, 1)), reading.n, all)
}

// dead is collecting's open for SQS. What the broker asks for goes through web.
func (q *onSQS) dead(ctx context.Context, stream string, messages int, web doer) (adapters.Broker, func() error, error) {
	u, err := url.Parse(q.url)
	if err != nil {
		return nil, nil, err
	}
	topic, _, _ := strings.Cut(stream, "."+group+".")
	c := adapters.Consumer{Topic: topic, Group: group, Concurrency: 1}
	end := stops{func() error { return q.drop(topic) }}
	open := func(web doer) (adapters.Broker, error) {
		b, err := sqs.OpenerWith(sqs.Config{HTTPClient: web}).Open(ctx, adapters.OpenParams{URL: u})
		if err == nil {
			end = append(end, func() error { return b.Close(context.WithoutCancel(ctx)) })
		}
		return b, err
	}
	fail := func(err error) (adapters.Broker, func() error, error) { return nil, nil, errors.Join(err, end.all()) }
	filling, err := open(q.web)
	if err == nil {
		err = filling.Ensure(ctx, c)
	}
	if err != nil {
		return fail(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, concurrency)
	for w := range errs {
		wg.Go(func() {
			for i := w; i < messages && errs[w] == nil; i += concurrency {
				r, s := dead(stream, i)
				s.Broker = "sqs"
				pairs, _ := s.Pairs(0)
				errs[w] = filling.Handoff(ctx, adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: r, State: pairs})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fail(err)
	}
	broker, err := open(web)
	if err != nil {
		return fail(err)
	}
	return broker, end.all, nil
}
