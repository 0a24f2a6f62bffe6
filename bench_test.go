package spillway_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/internal/cputime"
)

// BenchmarkSuccessPath is a message that its handler processes at once, from the
// broker in memory through subscriber, Router and chain to its acknowledgement.
func BenchmarkSuccessPath(b *testing.B) {
	sw, err := spillway.Open(b.Context(), "memory://", spillway.Config{
		Group: group, Concurrency: 64, ConsumerVersion: "v1", Logger: slog.New(slog.DiscardHandler),
	}, memory.New(memory.Config{}).Opener())
	if err != nil {
		b.Fatal(err)
	}
	router := message.NewDefaultRouter(watermill.NopLogger{})
	sw.Install(router)
	open, done := make(chan struct{}), make(chan struct{})
	var handled atomic.Int64
	router.AddConsumerHandler("charge", topic, sw.Subscriber(), func(*message.Message) error {
		<-open
		if handled.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	batch := make([]*message.Message, b.N)
	for i := range batch {
		batch[i] = message.NewMessage(strconv.Itoa(i), make([]byte, 512))
	}
	if err := sw.Publisher().Publish(topic, batch...); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(b.Context())) }()
	<-router.Running()

	b.ReportAllocs()
	b.ResetTimer()
	spent := cputime.Spent()
	close(open)
	<-done
	b.StopTimer()
	b.ReportMetric(float64(cputime.Spent()-spent)/float64(b.N), "cpu-ns/op")

	if err := router.Close(); err != nil {
		b.Error(err)
	}
	if err := <-ended; err != nil {
		b.Error(err)
	}
	if err := sw.Close(context.WithoutCancel(b.Context())); err != nil {
		b.Error(err)
	}
}
