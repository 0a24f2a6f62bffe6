package spillway_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/middleware"
)

// adv is one process of the adversary: a Spillway, a Router, and what its
// hooks were told.
type adv struct {
	t      *testing.T
	sw     *spillway.Spillway
	router *message.Router
	ran    chan error

	mu       sync.Mutex
	starts   int
	outcomes []middleware.OutcomeInfo
}

func advOpen(t *testing.T, b *memory.Broker, cfg spillway.Config) *adv {
	t.Helper()
	a := &adv{t: t, ran: make(chan error, 1)}
	if cfg.Group == "" {
		cfg.Group = "g"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.ConsumerVersion == "" {
		cfg.ConsumerVersion = "v1"
	}
	cfg.Hooks = middleware.Tee(middleware.Hooks{
		OnStart: func(context.Context, middleware.StartInfo) { a.mu.Lock(); a.starts++; a.mu.Unlock() },
		OnOutcome: func(_ context.Context, o middleware.OutcomeInfo) {
			a.mu.Lock()
			a.outcomes = append(a.outcomes, o)
			a.mu.Unlock()
		},
	}, cfg.Hooks)
	sw, err := spillway.Open(context.Background(), "memory://", cfg, b.Opener())
	if err != nil {
		t.Fatal(err)
	}
	a.sw = sw
	a.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	sw.Install(a.router)
	return a
}

func (a *adv) handle(topic string, h message.NoPublishHandlerFunc) *adv {
	a.router.AddConsumerHandler("h-"+topic, topic, a.sw.Subscriber(), h)
	return a
}

func (a *adv) run() *adv {
	go func() { a.ran <- a.router.Run(context.Background()) }()
	<-a.router.Running()
	return a
}

func (a *adv) close() {
	a.t.Helper()
	if err := a.router.Close(); err != nil {
		a.t.Error(err)
	}
	<-a.ran
	if err := a.sw.Close(context.Background()); err != nil {
		a.t.Error(err)
	}
}

func (a *adv) told() []middleware.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []middleware.Outcome
	for _, o := range a.outcomes {
		list = append(list, o.Outcome)
	}
	return list
}

func advPublish(t *testing.T, b *memory.Broker, topic, id string, headers ...adapters.Header) {
	t.Helper()
	if err := b.Publish(topic, adapters.Record{ID: id, Payload: []byte(id), Headers: headers}); err != nil {
		t.Fatal(err)
	}
}

// advHeader is the last value of a header of a record.
func advHeader(r adapters.Record, key string) string {
	v := ""
	for _, h := range r.Headers {
		if h.Key == key {
			v = string(h.Value)
		}
	}
	return v
}
