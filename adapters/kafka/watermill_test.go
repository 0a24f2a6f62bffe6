package kafka_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway/adapters/adaptertest"
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
	features.GenerateTopicFunc = func(tc tests.TestContext) string { return "watermill-" + string(tc.TestID) }
	adaptertest.PubSub{URL: rawURL, Opener: kafka.OpenerWith(b.cfg), Concurrency: concurrency, Features: features}.Run(t)
}
