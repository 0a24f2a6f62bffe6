package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

func (b *bench) check(c adapters.Consumer) []string {
	b.Helper()
	findings, err := b.Broker.(adapters.Checker).Check(b.Context(), []adapters.Consumer{c})
	if err != nil {
		b.Fatal(err)
	}
	var all []string
	for _, f := range findings {
		if f.Rule == "kafka-offsets-retention" {
			continue // of the cluster: see TestCheckHowLongPositionsLast
		}
		all = append(all, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Rule, strings.TrimPrefix(f.Stream, c.Topic), f.Message))
	}
	slices.Sort(all)
	return all
}

// Issue 4.8: what `spillway check kafka` finds, also while the consumer is dead.
func TestCheck(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		missing := adapters.Consumer{Topic: "test-check-none", Group: "billing", Concurrency: 1}
		want := []string{
			"error kafka-topic-missing .billing.dlq: the topic does not exist",
			"error kafka-topic-missing .billing.parking: the topic does not exist",
			"error kafka-topic-missing .billing.retry.2s: the topic does not exist",
			"error kafka-topic-missing : the topic does not exist",
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, b.check(missing)); diff != "" {
			b.Errorf("of a consumer that was never started (-want +got):\n%s", diff)
		}
		c := b.consumer(1)
		if got := b.check(c); len(got) > 0 {
			b.Errorf("of a consumer that was just started: %q", got)
		}

		// An old message that is not finished, some above it that are, and nobody
		// who reads.
		b.send(&sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder("old"), Timestamp: time.Now().Add(-time.Hour)})
		b.publish(c.Topic, 3)
		s := b.SubscribeOn(b.Broker, c)
		b.Next(s)
		b.Close(s)
		for i, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect, adapters.StreamDeadLetter} {
			for range i + 1 {
				b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: adapters.Record{Payload: []byte("x")}, Due: time.Now().Add(time.Second)})
			}
		}
		short := "3600000"
		if err := b.admin.IncrementalAlterConfig(sarama.TopicResource, of(adapters.StreamDeadLetter, c), map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &short},
		}, false); err != nil {
			b.Fatal(err)
		}
		got := b.check(c)
		for i, line := range got { // ages differ
			if before, after, ok := strings.Cut(line, " is 1h0m"); ok {
				_, after, _ = strings.Cut(after, " old")
				got[i] = before + " is an hour old" + after
			}
		}
		group := c.Topic + ".billing"
		want = []string{
			"error kafka-nobody-reads .billing.parking: 2 messages wait, and group \"" + group + ".parking\" has no members",
			"error kafka-nobody-reads .billing.retry.2s: 1 message waits, and group \"" + group + ".retry\" has no members",
			"error kafka-nobody-reads .billing.suspect: 3 messages wait, and group \"" + group + ".suspect\" has no members",
			"error kafka-nobody-reads : 4 messages wait, and group \"" + group + "\" has no members",
			"info kafka-dead-letters .billing.dlq: 4 dead letters are not collected",
			"info kafka-lag : 4 messages are not finished by group \"" + group + "\"",
			"info kafka-parked .billing.parking: 2 messages are parked",
			"info kafka-waiting .billing.retry.2s: 1 message waits for its retry",
			"warning kafka-partition-blocked : the oldest unfinished message of partition 0, at offset 0, is an hour old, and 4 wait",
			"warning kafka-retention .billing.dlq: dead letters are kept for 1h0m0s, and the configuration says 336h0m0s",
			"warning kafka-suspects .billing.suspect: 3 messages are suspected of ending a consumer",
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			b.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// What was drained waits for nobody.
func TestCheckCountsNothingThatWasDrained(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		for i, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect, adapters.StreamDeadLetter} {
			for range i + 1 {
				b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: adapters.Record{Payload: []byte("x")}, Due: time.Now().Add(time.Hour)})
			}
			if err := b.Broker.Drain(b.Context(), of(stream, c), func(context.Context, adapters.Record) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		if got := b.check(c); len(got) > 0 {
			b.Errorf("found: %q", got)
		}
	})
}
