package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/goleak"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

const patience = 30 * time.Second

// TestMain waits for long polls that were left to themselves, and for nothing
// else.
func TestMain(m *testing.M) {
	code := m.Run()
	var err error
	for range 20 { // each of which takes up to 2 s
		if err = goleak.Find(goleak.IgnoreAnyFunction(adaptertest.PubSubLeak)); err == nil {
			os.Exit(code)
		}
	}
	fmt.Fprintln(os.Stderr, "goroutines still run:", err)
	os.Exit(max(code, 1))
}

// processes knows the connection of each broker that was opened.
type processes struct {
	mu    sync.Mutex
	lines map[adapters.Broker]*line
}

// line is what a process's requests go through, until it is dead.
type line struct {
	inner interface {
		Do(*http.Request) (*http.Response, error)
	}
	dead context.Context
	kill context.CancelFunc
}

var errDead = errors.New("the process is dead")

func (l *line) Do(r *http.Request) (*http.Response, error) {
	if l.dead.Err() != nil {
		return nil, errDead
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(l.dead, cancel)
	defer stop()
	resp, err := l.inner.Do(r.WithContext(ctx))
	if l.dead.Err() != nil {
		return nil, errDead
	}
	return resp, err
}

func (p *processes) opener(cfg sqs.Config) adapters.Opener {
	o := sqs.OpenerWith(cfg)
	inner := cfg.HTTPClient
	if inner == nil {
		inner = http.DefaultClient
	}
	o.Open = func(ctx context.Context, params adapters.OpenParams) (adapters.Broker, error) {
		l := &line{inner: inner}
		l.dead, l.kill = context.WithCancel(context.Background())
		cfg := cfg
		cfg.HTTPClient = l
		b, err := sqs.OpenerWith(cfg).Open(ctx, params)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.lines == nil {
			p.lines = map[adapters.Broker]*line{}
		}
		p.lines[b] = l
		return b, nil
	}
	return o
}

func (p *processes) kill(b adapters.Broker) {
	p.mu.Lock()
	l := p.lines[b]
	p.mu.Unlock()
	l.kill()
}

// fakeURL is for brokers whose HTTPClient is a fake.
const fakeURL = "sqs://fake?region=us-east-1"

func client(h *http.Client) *awssqs.Client {
	return awssqs.New(awssqs.Options{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""), HTTPClient: h,
	})
}

// newFake makes a fake in a bubble. What was in flight when a test ended, and
// what a process that was killed still tries, ends before the bubble does.
func newFake(t testing.TB) *sqsfake.Server {
	fake := sqsfake.New(sqsfake.Config{})
	t.Cleanup(func() {
		<-time.After(time.Minute)
		fake.Close()
		<-time.After(time.Minute)
	})
	return fake
}

// newFakeOutside makes a fake that runs in real time.
func newFakeOutside(t testing.TB) *sqsfake.Server {
	fake := sqsfake.New(sqsfake.Config{})
	t.Cleanup(fake.Close)
	return fake
}

// orders is the consumer of most tests.
var orders = adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}

// bench is a broker on a fake, in a bubble, with a plain client beside it.
type bench struct {
	adaptertest.Bench
	fake   *sqsfake.Server
	client *awssqs.Client
	cfg    sqs.Config
	topic  string // of the programs that it runs
}

func setup(t *testing.T, cfgs ...sqs.Config) *bench {
	t.Helper()
	b := &bench{Bench: adaptertest.Bench{T: t, Patience: 24 * time.Hour}, fake: newFake(t), topic: orders.Topic}
	b.client = client(b.fake.Client())
	for _, cfg := range cfgs {
		b.cfg = cfg
	}
	b.cfg.HTTPClient = b.fake.Client()
	b.Broker = b.open()
	return b
}

// open opens another process on the fake.
func (b *bench) open() adapters.Broker {
	b.Helper()
	broker, err := b.tryOpen()
	if err != nil {
		b.Fatal(err)
	}
	return broker
}

func (b *bench) tryOpen() (adapters.Broker, error) {
	u, err := url.Parse(fakeURL)
	if err != nil {
		b.Fatal(err)
	}
	broker, err := sqs.OpenerWith(b.cfg).Open(b.Context(), adapters.OpenParams{URL: u, Logger: slog.New(slog.NewTextHandler(b.Output(), nil))})
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() {
		if err := broker.Close(context.Background()); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	return broker, nil
}

func (b *bench) url(queue string) string {
	b.Helper()
	out, err := b.client.GetQueueUrl(b.Context(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		b.Fatal(err)
	}
	return *out.QueueUrl
}

// create makes a queue as somebody else does.
func (b *bench) create(queue string, attributes map[string]string) string {
	b.Helper()
	out, err := b.client.CreateQueue(b.Context(), &awssqs.CreateQueueInput{QueueName: &queue, Attributes: attributes})
	if err != nil {
		b.Fatal(err)
	}
	return *out.QueueUrl
}

func (b *bench) attributes(queue string) map[string]string {
	b.Helper()
	url := b.url(queue)
	out, err := b.client.GetQueueAttributes(b.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		b.Fatal(err)
	}
	return out.Attributes
}

// publish sends a message as a producer without Spillway does.
func (b *bench) publish(queue, body string, attributes map[string]types.MessageAttributeValue) {
	b.Helper()
	url := b.url(queue)
	in := &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: &body, MessageAttributes: attributes}
	if strings.HasSuffix(queue, ".fifo") {
		in.MessageGroupId, in.MessageDeduplicationId = aws.String("group-7"), &body
	}
	if _, err := b.client.SendMessage(b.Context(), in); err != nil {
		b.Fatal(err)
	}
}
