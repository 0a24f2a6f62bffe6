package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// O34: what an operator takes out of the parking lot does not come to the
// consumer that runs beside it, and what is about to be delivered is left to it.
func TestDrainBesideARunningConsumer(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Partitions: 2}, func(b *bench) {
		c := b.consumer(4)
		s := b.SubscribeOn(b.Broker, c)
		park := func(id string, delay time.Duration) {
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: id, Payload: []byte(id)}, Due: time.Now().Add(delay)})
		}
		for i := range 3 {
			park(fmt.Sprint("taken-", i), 8*time.Second)
		}
		park("soon", 2*time.Second)
		park("later", 9*time.Second)
		keep := errors.New("not this one")
		var taken []string
		b.Eventually("three are taken", func() bool {
			err := b.open().Drain(b.Context(), of(adapters.StreamParking, c), func(_ context.Context, r adapters.Record) error {
				switch r.ID {
				case "later":
					return keep
				case "soon":
					b.Error("a message that is due in seconds was drained")
				}
				taken = append(taken, r.ID)
				return nil
			})
			if err != nil && !errors.Is(err, keep) {
				b.Fatal(err)
			}
			return len(taken) == 3 || errors.Is(err, keep)
		})
		slices.Sort(taken)
		var got []string
		for len(got) < 2+3-len(taken) {
			d := b.Next(s)
			got = append(got, d.ID)
			b.Ack(d)
		}
		b.Quiet(s, time.Second)
		for _, id := range got {
			if slices.Contains(taken, id) {
				b.Errorf("%s was taken by an operator, and delivered", id)
			}
		}
	})
}

// A retry stream is drained by its one name, whatever tiers it has; peeking
// takes nothing.
func TestDrainReadsAllTiers(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		var want []string
		for i, delay := range []time.Duration{time.Second, time.Minute, 10 * time.Hour} {
			id := fmt.Sprint("r-", i)
			want = append(want, id)
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte("x")}, Due: time.Now().Add(delay)})
		}
		type peeker interface {
			Peek(context.Context, string, func(context.Context, adapters.Record) error) error
		}
		for range 2 {
			var seen []string
			err := b.Broker.(peeker).Peek(b.Context(), of(adapters.StreamRetry, c), func(_ context.Context, r adapters.Record) error {
				seen = append(seen, r.ID)
				return nil
			})
			if diff := cmp.Diff(want, seen); diff != "" || err != nil {
				b.Errorf("peek (-want +got, %v):\n%s", err, diff)
			}
		}
		if diff := cmp.Diff(want, idsOf(b.Drain(of(adapters.StreamRetry, c)))); diff != "" {
			b.Errorf("drain (-want +got):\n%s", diff)
		}
		if again := b.Drain(of(adapters.StreamRetry, c)); len(again) > 0 {
			b.Errorf("drained twice: %q", idsOf(again))
		}
		b.Quiet(b.SubscribeOn(b.open(), c), 2*time.Second)
	})
}

// A collector that stops goes on where it was.
func TestDrainResumes(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Partitions: 3}, func(b *bench) {
		c := b.consumer(1)
		const n = 300
		for i := range n {
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: fmt.Sprint(i), Payload: []byte("x")}})
		}
		seen := map[string]int{}
		stop := errors.New("stop")
		for round := 0; len(seen) < n; round++ {
			if round > 20 {
				b.Fatalf("%d of %d after %d rounds", len(seen), n, round)
			}
			left := 40
			err := b.open().Drain(b.Context(), of(adapters.StreamDeadLetter, c), func(_ context.Context, r adapters.Record) error {
				if left--; left < 0 {
					return stop
				}
				seen[r.ID]++
				return nil
			})
			if err != nil && !errors.Is(err, stop) {
				b.Fatal(err)
			}
		}
		for id, times := range seen {
			if times > 1 {
				b.Errorf("%s was drained %d times", id, times)
			}
		}
	})
}

// A reader whose window was full of what an operator took goes on reading at
// once, and not when the first of it would have been due.
func TestDrainMakesRoomForARunningConsumer(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Window: 1}, func(b *bench) {
		c := b.consumer(1)
		park := func(id string, delay time.Duration) {
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: id, Payload: []byte(id)}, Due: time.Now().Add(delay)})
		}
		park("now", 0)
		park("in an hour", time.Hour)
		s := b.SubscribeOn(b.Broker, c)
		b.Ack(b.Next(s)) // then there is room for the other one
		b.Quiet(s, time.Second)
		if got := b.Drain(of(adapters.StreamParking, c)); len(got) != 1 {
			b.Fatalf("drained %q, want the one that waits", idsOf(got))
		}
		park("next", 0)
		d := b.Next(s)
		if d.ID != "next" {
			b.Errorf("delivered %q", d.ID)
		}
		b.Ack(d)
	})
}

// However rarely a consumer commits, it knows what operators have taken before
// it would deliver it.
func TestDrainBesideAConsumerThatCommitsRarely(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{CommitInterval: time.Minute}, func(b *bench) {
		c := b.consumer(1)
		s := b.SubscribeOn(b.Broker, c)
		park := func(id string, delay time.Duration) {
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: id, Payload: []byte(id)}, Due: time.Now().Add(delay)})
		}
		park("now", 0)
		park("taken", 9*time.Second)
		b.Ack(b.Next(s)) // it reads
		if got := b.Drain(of(adapters.StreamParking, c)); len(got) != 1 {
			b.Fatalf("drained %q, want the one that waits", idsOf(got))
		}
		b.Quiet(s, 10*time.Second)
	})
}
