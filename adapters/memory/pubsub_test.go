package memory_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// Watermill's own suite, through the facade: with one worker in the guaranteed
// order, with sixteen without.
func TestPubSub(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		concurrency int
		features    tests.Features
		cfg         memory.Config
	}{
		"ordered": {1, tests.Features{
			ConsumerGroups: true, Persistent: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true,
		}, memory.Config{}},
		"concurrent": {16, tests.Features{ConsumerGroups: true, Persistent: true}, memory.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pubSub := newPubSubs(t, memory.New(c.cfg), c.concurrency)
			tests.TestPubSub(t, c.features, func(t *testing.T) (message.Publisher, message.Subscriber) {
				return pubSub(t, "group")
			}, pubSub)
		})
	}
}

// A topic that keeps what its groups are done with gives all of it to a group
// that comes later.
func TestNewGroupsReceiveOldMessages(t *testing.T) {
	t.Parallel()
	pubSub := newPubSubs(t, memory.New(memory.Config{Retain: true}), 1)
	features := tests.Features{ConsumerGroups: true, Persistent: true, NewSubscriberReceivesOldMessages: true}
	tests.TestNewSubscriberReceivesOldMessages(t, tests.TestContext{TestID: tests.NewTestID(), Features: features},
		func(t *testing.T) (message.Publisher, message.Subscriber) {
			return pubSub(t, string(tests.NewTestID()))
		})
}

// newPubSubs makes what the suite asks for: each is a process of its own.
func newPubSubs(t *testing.T, broker *memory.Broker, concurrency int) tests.ConsumerGroupPubSubConstructor {
	return func(test *testing.T, group string) (message.Publisher, message.Subscriber) {
		test.Helper()
		sw, err := spillway.Open(test.Context(), "memory://", spillway.Config{
			Group: group, Concurrency: concurrency, ConsumerVersion: "v1", Logger: slog.New(slog.DiscardHandler),
			// A test of the suite leaves a message unsettled when it closes.
			CloseGrace: 500 * time.Millisecond,
		}, broker.Opener())
		if err != nil {
			test.Fatal(err)
		}
		sw.Middleware() // the suite has no Router to place it in
		// The suite publishes to the end of a test, and its subscribers outlive it.
		t.Cleanup(func() {
			if err := sw.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return sw.Publisher(), sw.Subscriber()
	}
}
