package memory_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// Watermill's own suite, through the facade: with one worker in the guaranteed
// order, with sixteen without.
func TestPubSub(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		concurrency int
		features    tests.Features
	}{
		"ordered": {1, tests.Features{
			ConsumerGroups: true, Persistent: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true,
		}},
		"concurrent": {16, tests.Features{ConsumerGroups: true, Persistent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.PubSub{
				URL: "memory://", Opener: memory.New(memory.Config{}).Opener(), Concurrency: c.concurrency, Features: c.features,
			}.Run(t)
		})
	}
}

// A topic that keeps what its groups are done with gives all of it to a group
// that comes later.
func TestNewGroupsReceiveOldMessages(t *testing.T) {
	t.Parallel()
	features := tests.Features{ConsumerGroups: true, Persistent: true, NewSubscriberReceivesOldMessages: true}
	pubSub := adaptertest.PubSub{
		URL: "memory://", Opener: memory.New(memory.Config{Retain: true}).Opener(), Concurrency: 1, Features: features,
	}
	tests.TestNewSubscriberReceivesOldMessages(t, tests.TestContext{TestID: tests.NewTestID(), Features: features},
		func(t *testing.T) (message.Publisher, message.Subscriber) {
			t.Helper()
			return pubSub.New(t, string(tests.NewTestID()))
		})
}
