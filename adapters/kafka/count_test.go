package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// Count says what Drain would find: what was drained before, out of order too, and
// what a consumer has finished, are left out.
func TestCountIsWhatDrainFinds(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Partitions: 3}, func(b *bench) {
		c := b.consumer(1)
		count := func(s adapters.Stream) int64 {
			b.Helper()
			n, err := b.Broker.(adapters.Counter).Count(b.Context(), of(s, c))
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
		want := func(what string, s adapters.Stream, want int64) {
			b.Helper()
			if got := count(s); got != want {
				b.Errorf("%s: %d in %s, want %d", what, got, s, want)
			}
		}
		for _, s := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect} {
			want("at first", s, 0)
		}
		for i := range 20 {
			r := adapters.Record{ID: fmt.Sprint(i), Key: []byte(fmt.Sprint(i)), Payload: []byte("x")}
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: r})
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: r, Due: time.Now().Add(time.Duration(i+1) * time.Minute)})
		}
		want("handed off", adapters.StreamDeadLetter, 20)
		want("over several tiers", adapters.StreamRetry, 20)

		enough := errors.New("enough")
		taken := 0
		err := b.Broker.Drain(testContext(b), of(adapters.StreamDeadLetter, c), func(context.Context, adapters.Record) error {
			if taken == 7 {
				return enough
			}
			taken++
			return nil
		})
		if !errors.Is(err, enough) {
			b.Fatal(err)
		}
		want("some drained", adapters.StreamDeadLetter, 13)
		if left := len(b.Drain(of(adapters.StreamDeadLetter, c))); left != 13 {
			b.Errorf("drained %d, and 13 were counted", left)
		}
		want("all drained", adapters.StreamDeadLetter, 0)

		// A consumer finishes one out of order, behind those that wait.
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "now", Payload: []byte("x")}, Due: time.Now()})
		s := b.SubscribeOn(b.Broker, c)
		b.Ack(b.Next(s))
		b.Close(s)
		want("one finished", adapters.StreamRetry, 20)

		_, err = b.Broker.(adapters.Counter).Count(b.Context(), "none-"+watermill.NewShortUUID()+".billing.dlq")
		var wrong *kafka.TopicError
		if !errors.As(err, &wrong) {
			b.Errorf("a stream that there is not: %v", err)
		}
	})
}
