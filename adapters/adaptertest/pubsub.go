package adaptertest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
)

// PubSub runs Watermill's own tests of publishers and subscribers on those of
// the facade.
type PubSub struct {
	// URL and Opener as for [spillway.Open]: each publisher and each subscriber
	// is a process of its own.
	URL    string
	Opener adapters.Opener
	// Concurrency is that of each subscriber; at least 1.
	Concurrency int
	// Features is what the broker promises. Without ConsumerGroups all
	// subscribers are of one group. Its GenerateTopicFunc may see to what is left
	// of a topic; nil takes Watermill's names.
	Features tests.Features
	// OnGroup is called with each group that there will be; may be nil.
	OnGroup func(group string)
}

// PubSubLeak is a goroutine that Watermill's suite may leave behind: where a
// message came again after a test had all that it wanted. It is for
// goleak.IgnoreAnyFunction.
const PubSubLeak = "github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func2"

// Run runs the whole suite, in its short form.
func (p PubSub) Run(t *testing.T) {
	t.Helper()
	p.Features.ForceShort = true
	withGroup := p.New
	if !p.Features.ConsumerGroups {
		withGroup = nil
	}
	tests.TestPubSub(t, p.Features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return p.New(t, "watermill")
	}, withGroup)
}

// New is what the suite, or a single test of it, asks for.
func (p PubSub) New(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	if p.OnGroup != nil {
		p.OnGroup(group)
	}
	sw := Open(t, p.URL, spillway.Config{
		Group: group, Concurrency: p.Concurrency, Logger: slog.New(slog.DiscardHandler),
		// A test of the suite leaves a message unsettled when it closes.
		CloseGrace: 500 * time.Millisecond,
	}, p.Opener)
	sw.Middleware() // the suite has no Router to place it in
	return sw.Publisher(), sw.Subscriber()
}

// Open opens Spillway, of consumer version v1 unless cfg says otherwise, and
// closes it at the end of the test. Without a Logger it writes to the test.
func Open(t testing.TB, url string, cfg spillway.Config, opener adapters.Opener) *spillway.Spillway {
	t.Helper()
	if cfg.ConsumerVersion == "" {
		cfg.ConsumerVersion = "v1"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	sw, err := spillway.Open(t.Context(), url, cfg, opener)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sw.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sw
}
