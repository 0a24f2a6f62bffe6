package rabbitmq_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestWatermillConcurrencyOne(t *testing.T) {
	t.Parallel()
	runWatermill(t, 1, tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true,
	})
}

func TestWatermillConcurrencySixteen(t *testing.T) {
	t.Parallel()
	runWatermill(t, 16, tests.Features{ConsumerGroups: true, Persistent: true})
}

// runWatermill runs Watermill's own tests of publishers and subscribers.
func runWatermill(t *testing.T, concurrency int, features tests.Features) {
	b := setup(t, rabbitmq.Config{})
	var mu sync.Mutex
	topics, groups := map[string]bool{}, map[string]bool{}
	t.Cleanup(func() {
		for topic := range topics {
			for group := range groups {
				b.dropStreams(topic, group)
			}
		}
	})
	features.GenerateTopicFunc = func(tc tests.TestContext) string {
		topic := "topic-" + string(tc.TestID)
		mu.Lock()
		defer mu.Unlock()
		topics[topic] = true
		return topic
	}
	adaptertest.PubSub{
		URL: b.rawURL, Opener: rabbitmq.OpenerWith(b.cfg), Concurrency: concurrency, Features: features,
		OnGroup: func(group string) {
			mu.Lock()
			defer mu.Unlock()
			groups[group] = true
		},
	}.Run(t)
}

func openFacade(t *testing.T, b *bench, cfg spillway.Config) *spillway.Spillway {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return adaptertest.Open(t, b.rawURL, cfg, rabbitmq.OpenerWith(b.cfg))
}
