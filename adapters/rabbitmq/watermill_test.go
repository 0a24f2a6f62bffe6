package rabbitmq_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway"
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
	features.ForceShort = true
	features.GenerateTopicFunc = func(tc tests.TestContext) string {
		topic := "topic-" + string(tc.TestID)
		mu.Lock()
		defer mu.Unlock()
		topics[topic] = true
		return topic
	}
	withGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		mu.Lock()
		groups[group] = true
		mu.Unlock()
		sw := openFacade(t, b, spillway.Config{Group: group, Concurrency: concurrency, CloseGrace: time.Second})
		sw.Middleware() // the suite has no Router to place it in
		return sw.Publisher(), sw.Subscriber()
	}
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return withGroup(t, "watermill")
	}, withGroup)
}

func openFacade(t *testing.T, b *bench, cfg spillway.Config) *spillway.Spillway {
	t.Helper()
	cfg.ConsumerVersion = "v1"
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	sw, err := spillway.Open(t.Context(), b.rawURL, cfg, rabbitmq.OpenerWith(b.cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sw.Close(testContext(t)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sw
}
