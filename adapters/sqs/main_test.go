package sqs_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

const patience = 30 * time.Second

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
