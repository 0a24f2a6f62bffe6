package sqs_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/spillway-mq/spillway"
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
	features.ForceShort = true
	features.GenerateTopicFunc = func(tc tests.TestContext) string {
		topic := "topic-" + string(tc.TestID)
		s.clean(t, topic)
		return topic
	}
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		sw, err := spillway.Open(t.Context(), s.url, spillway.Config{
			Group: "watermill", Concurrency: concurrency, ConsumerVersion: "v1",
			Logger: slog.New(slog.DiscardHandler), CloseGrace: time.Second,
		}, sqs.OpenerWith(s.cfg))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sw.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		sw.Middleware() // the suite has no Router to place it in
		return sw.Publisher(), sw.Subscriber()
	}, nil)
}
