package kafka_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

func TestWatermillConcurrencyOne(t *testing.T) {
	t.Parallel()
	runWatermill(t, fake(t), 1, tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true,
	})
}

func TestWatermillConcurrencySixteen(t *testing.T) {
	t.Parallel()
	runWatermill(t, fake(t), 16, tests.Features{ConsumerGroups: true, Persistent: true})
}

func TestWatermillOnARealBroker(t *testing.T) {
	t.Parallel()
	runWatermill(t, brokertest.URL(t, urlVariable), 16, tests.Features{ConsumerGroups: true, Persistent: true})
}

// runWatermill runs Watermill's own tests of publishers and subscribers.
func runWatermill(t *testing.T, rawURL string, concurrency int, features tests.Features) {
	b := setup(t, rawURL, kafka.Config{})
	t.Cleanup(func() { b.dropTopics("watermill-") })
	features.ForceShort = true
	features.GenerateTopicFunc = func(tc tests.TestContext) string { return "watermill-" + string(tc.TestID) }
	withGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
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
	sw, err := spillway.Open(t.Context(), b.rawURL, cfg, kafka.OpenerWith(b.cfg))
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
