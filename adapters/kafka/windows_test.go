package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// Issue 4.3: how many retries wait in memory, and whether the window for them is
// full, can be asked of an application that only gave hooks.
func TestWindowsTellHowManyRetriesWait(t *testing.T) {
	t.Parallel()
	const window, n = 4, 9
	b := setup(t, fake(t), kafka.Config{Window: window})
	var windows func() []adapters.Window
	sw, err := spillway.Open(t.Context(), b.rawURL, spillway.Config{
		Group: "billing", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Hooks: middleware.Hooks{OnOpen: func(_ context.Context, i *middleware.OpenInfo) { windows = i.Windows }},
	}, kafka.OpenerWith(b.cfg))
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	sw.Install(router)
	topic := "test-" + watermill.NewShortUUID()
	router.AddConsumerHandler("charge", topic, sw.Subscriber(), func(*message.Message) error {
		return failure.RetryAfter(errors.New("come later"), time.Minute)
	})
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.Background()) }()
	<-router.Running()
	b.publish(topic, n)
	// The fullest window of a stream: with jitter, two tiers share the retries.
	held := func(s adapters.Stream) adapters.Window {
		all := slices.DeleteFunc(windows(), func(w adapters.Window) bool { return w.Stream != s })
		if len(all) == 0 {
			return adapters.Window{}
		}
		return slices.MaxFunc(all, func(a, b adapters.Window) int { return cmp.Compare(a.Messages, b.Messages) })
	}
	b.Eventually("the window of a tier is full", func() bool { return held(adapters.StreamRetry).Fill == 1 })
	if w := held(adapters.StreamRetry); w.Messages != window || w.Bytes == 0 || w.Consumer.Topic != topic {
		t.Errorf("the full window is %+v, want %d messages", w, window)
	}
	b.Eventually("nothing is held of the topic itself", func() bool {
		w := held(adapters.StreamMain)
		return w.Name != "" && w.Messages == 0 && w.Fill == 0
	})
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := sw.Close(testContext(t)); err != nil {
		t.Error(err)
	}
	if left := windows(); len(left) != 0 {
		t.Errorf("after the end: %v", left)
	}
}
