package sqs_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

// Watermill's own tests of publishers and subscribers. SQS has no consumer
// groups; the server that is tested keeps the order of a queue, which AWS does
// not promise.
func TestWatermillConcurrencyOne(t *testing.T) {
	t.Parallel()
	runWatermill(t, newServer(t), 1, tests.Features{Persistent: true})
}

func TestWatermillConcurrencySixteen(t *testing.T) {
	t.Parallel()
	runWatermill(t, newServer(t), 16, tests.Features{Persistent: true})
}

func TestWatermillOnTheFake(t *testing.T) {
	t.Parallel()
	for name, concurrency := range map[string]int{"one": 1, "sixteen": 16} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := newFakeOutside(t)
			s := server{url: fakeURL, client: client(fake.Client()), cfg: sqs.Config{
				HTTPClient: fake.Client(), Visibility: 2 * time.Second, PollWait: time.Second,
			}}
			runWatermill(t, s, concurrency, tests.Features{Persistent: true, GuaranteedOrder: concurrency == 1, GuaranteedOrderWithSingleSubscriber: concurrency == 1})
		})
	}
}

func runWatermill(t *testing.T, s server, concurrency int, features tests.Features) {
	features.GenerateTopicFunc = func(tc tests.TestContext) string {
		topic := "topic-" + string(tc.TestID)
		s.clean(t, topic)
		return topic
	}
	adaptertest.PubSub{URL: s.url, Opener: sqs.OpenerWith(s.cfg), Concurrency: concurrency, Features: features}.Run(t)
}
