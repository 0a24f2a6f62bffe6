package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// raw reads all that lies in a topic, as another client does.
func (b *bench) raw(topic string, n int) []*sarama.ConsumerMessage {
	b.Helper()
	consumer, err := sarama.NewConsumer(strings.Split(strings.TrimPrefix(b.rawURL, "kafka://"), ","), testSarama())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	partitions, err := consumer.Partitions(topic)
	if err != nil {
		b.Fatal(err)
	}
	in := make(chan *sarama.ConsumerMessage)
	for _, p := range partitions {
		pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = pc.Close() }()
		go func() {
			for m := range pc.Messages() {
				select {
				case in <- m:
				case <-b.Context().Done():
				}
			}
		}()
	}
	var all []*sarama.ConsumerMessage
	for len(all) < n {
		select {
		case m := <-in:
			all = append(all, m)
		case <-time.After(patience):
			b.Fatalf("%d messages in %s, want %d", len(all), topic, n)
		}
	}
	return all
}

// Issue 4.6; invariant 3, R1: what arrives in our topics is what was published:
// key, null, repeated and binary headers in their order.
func TestHandoffsKeepTheRecord(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		headers := []sarama.RecordHeader{
			{Key: []byte("via"), Value: []byte("a")},
			{Key: []byte("_watermill_message_uuid"), Value: []byte("id")},
			{Key: []byte("spring-int"), Value: []byte{0, 0, 0, 7}},
			{Key: []byte("via"), Value: []byte("b")},
			{Key: []byte("none"), Value: nil},
			{Key: []byte("spillway-attempt"), Value: []byte("99")},
			{Key: []byte("via"), Value: []byte("a")},
		}
		for name, m := range map[string]*sarama.ProducerMessage{
			"null":   {Key: sarama.ByteEncoder{0xff, 0}, Value: nil},
			"empty":  {Key: sarama.ByteEncoder{}, Value: sarama.ByteEncoder{}},
			"no key": {Value: sarama.StringEncoder("body")},
		} {
			m.Topic, m.Headers = c.Topic, headers
			b.send(m)
			s := b.SubscribeOn(b.Broker, c)
			d := b.Next(s)
			state := []envelope.Pair{{Key: "spillway-attempt", Value: "2"}}
			for _, stream := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking} {
				b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: d.Record, State: state, Due: time.Now().Add(time.Hour)})
			}
			b.Ack(d)
			b.Close(s)
			original := d.Native.(*sarama.ConsumerMessage)
			for _, stream := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking} {
				records := b.Drain(of(stream, c))
				if len(records) != 1 {
					b.Fatalf("%s: %d records in %s", name, len(records), stream)
				}
				got := records[0].Native.(*sarama.ConsumerMessage)
				if diff := cmp.Diff([2][]byte{original.Key, original.Value}, [2][]byte{got.Key, got.Value}); diff != "" {
					b.Errorf("%s in %s: key and value (-want +got):\n%s", name, stream, diff)
				}
				var want, have []string
				for _, h := range original.Headers {
					if !envelope.IsOwn(string(h.Key)) {
						want = append(want, fmt.Sprintf("%s=%q %v", h.Key, h.Value, h.Value == nil))
					}
				}
				own := 0
				for _, h := range got.Headers {
					if envelope.IsOwn(string(h.Key)) {
						own++
						continue
					}
					have = append(have, fmt.Sprintf("%s=%q %v", h.Key, h.Value, h.Value == nil))
				}
				if diff := cmp.Diff(want, have); diff != "" {
					b.Errorf("%s in %s: headers (-want +got):\n%s", name, stream, diff)
				}
				if own > 2 { // attempt, and until when it is held
					b.Errorf("%s in %s: %d headers of ours, want one value per key", name, stream, own)
				}
			}
		}
	})
}

// Issue 4.6: the key decides about the partition, never the partition that a
// message came from: the target may have fewer.
func TestHandoffToATopicWithFewerPartitions(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{Partitions: 8}, func(b *bench) {
		c := b.consumer(1)
		few := b.openWith(kafka.Config{Sarama: testSarama(), Partitions: 2, GroupPerTopic: true})
		partition, offset := int32(7), int64(3)
		for i := range 20 {
			h := adapters.Handoff{Consumer: c, Stream: adapters.StreamSuspect, Record: adapters.Record{
				ID: fmt.Sprint(i), Key: fmt.Appendf(nil, "key-%d", i%4), Payload: []byte("x"),
				Position: envelope.Position{Topic: c.Topic, Partition: &partition, Offset: &offset},
			}}
			if err := few.Handoff(b.Context(), h); err != nil {
				b.Fatal(err)
			}
		}
		at := map[string]int32{}
		for _, m := range b.raw(of(adapters.StreamSuspect, c), 20) {
			if p, ok := at[string(m.Key)]; ok && p != m.Partition {
				b.Errorf("key %s is in partitions %d and %d", m.Key, p, m.Partition)
			}
			at[string(m.Key)] = m.Partition
		}
	})
}

// K4: what no topic takes is refused as too large, alone: its neighbours in the
// batch arrive.
func TestTooLargeIsRefusedAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		errs := make(chan error)
		sizes := []int{10, 100 << 10, 900 << 10, 2 << 20, 120 << 10, 10}
		for i, size := range sizes {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				err := b.Broker.Handoff(ctx, adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{
					ID: fmt.Sprint(i), Payload: bytes.Repeat([]byte("x"), size),
				}})
				if (size > 1<<20) != errors.Is(err, adapters.ErrTooLarge) || size < 1<<20 && err != nil {
					err = fmt.Errorf("a hand-off of %d bytes: %w", size, err)
				} else {
					err = nil
				}
				errs <- err
			}()
		}
		for range sizes {
			if err := <-errs; err != nil {
				b.Error(err)
			}
		}
		if n := len(b.Drain(of(adapters.StreamDeadLetter, c))); n != len(sizes)-1 {
			b.Errorf("%d dead letters, want %d", n, len(sizes)-1)
		}
	})
}

// Issue 4.6: how our topics are made.
func TestOwnTopicsAreMadeLikeTheirSource(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		topic := "test-made-" + fmt.Sprint(time.Now().UnixNano())
		limit := "2000000"
		if err := b.admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions: 5, ReplicationFactor: 1, ConfigEntries: map[string]*string{"max.message.bytes": &limit},
		}, false); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { b.dropTopics(topic) })
		c := adapters.Consumer{Topic: topic, Group: "billing", Concurrency: 1}
		broker := b.openWith(kafka.Config{Sarama: testSarama(), GroupPerTopic: true})
		if err := broker.Ensure(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		for stream, retention := range map[string]string{
			of(adapters.StreamDeadLetter, c):    "1209600000",
			of(adapters.StreamParking, c):       "1209600000",
			of(adapters.StreamRetry, c) + ".2s": "1209600000",
		} {
			results, err := b.admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: stream}}, sarama.DescribeConfigsOptions{})
			if err != nil {
				b.Fatal(err)
			}
			have := map[string]string{}
			for _, r := range results {
				for _, e := range r.Configs {
					have[e.Name] = e.Value
				}
			}
			if have["retention.ms"] != retention || have["cleanup.policy"] != "delete" || have["max.message.bytes"] != fmt.Sprint(2_000_000+128<<10) {
				b.Errorf("%s: retention %s, policy %s, largest message %s", stream, have["retention.ms"], have["cleanup.policy"], have["max.message.bytes"])
			}
			b.Eventually("partitions of "+stream, func() bool {
				_ = b.client.RefreshMetadata()
				p, err := b.client.Partitions(stream)
				return err == nil && len(p) == 5
			})
		}
	})
}

// Invariant 1: a topic of ours that loses messages is refused at start, with the
// setting.
func TestEnsureNamesTheWrongSetting(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		topic := "test-wrong-" + fmt.Sprint(time.Now().UnixNano())
		c := adapters.Consumer{Topic: topic, Group: "billing", Concurrency: 1}
		b.Cleanup(func() { b.dropTopics(topic) })
		compact := "compact"
		if err := b.admin.CreateTopic(of(adapters.StreamDeadLetter, c), &sarama.TopicDetail{
			NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{"cleanup.policy": &compact},
		}, false); err != nil {
			b.Fatal(err)
		}
		var wrong *kafka.TopicError
		if err := b.Broker.Ensure(b.Context(), c); !errors.As(err, &wrong) || wrong.Setting != "cleanup.policy" || wrong.Have != "compact" {
			b.Errorf("ensure: %v, want an error about cleanup.policy", err)
		}
		// With VerifyOnly nothing is created.
		verify := b.openWith(kafka.Config{Sarama: testSarama(), VerifyOnly: true})
		c.Topic = topic + "-none"
		if err := verify.Ensure(b.Context(), c); !errors.As(err, &wrong) || wrong.Topic != c.Topic {
			b.Errorf("ensure: %v, want an error about the missing topic", err)
		}
	})
}

// Names that Kafka does not allow, or that differ in '.' and '_' only, become
// topics of their own.
func TestNamesThatKafkaCannotHave(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		base := "test-names-" + fmt.Sprint(time.Now().UnixNano())
		b.Cleanup(func() { b.dropTopics(base) })
		groups := []string{"a.b", "a_b", "a b", "a/b", strings.Repeat("long", 70), strings.Repeat("long", 70) + "er"}
		for _, g := range groups {
			c := adapters.Consumer{Topic: base, Group: g, Concurrency: 1}
			if err := b.Broker.Ensure(b.Context(), c); err != nil {
				b.Fatal(err)
			}
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: g, Payload: []byte("x")}})
		}
		other := b.open()
		for _, g := range groups {
			var got []string
			err := other.Drain(b.Context(), of(adapters.StreamDeadLetter, adapters.Consumer{Topic: base, Group: g}), func(_ context.Context, r adapters.Record) error {
				got = append(got, r.ID)
				return nil
			})
			if diff := cmp.Diff([]string{g}, got); diff != "" || err != nil {
				b.Errorf("dead letters of %.10q (-want +got, %v):\n%s", g, err, diff)
			}
		}
	})
}

// K26, K13: what waits is found by whoever comes later, in every tier that an
// older configuration has used.
func TestTiersAreDrainedByALaterProcess(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(4)
		start := time.Now()
		want := map[string]time.Time{}
		for i, delay := range []time.Duration{100 * time.Millisecond, 2500 * time.Millisecond, 4100 * time.Millisecond} {
			id := fmt.Sprint("r-", i)
			want[id] = start.Add(delay)
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte("x")}, Due: want[id]})
		}
		s := b.SubscribeOn(b.open(), c)
		for range 3 {
			d := b.Next(s)
			if early := time.Until(want[d.ID]); early > 0 || d.Stream != adapters.StreamRetry {
				b.Errorf("%s came from %s, %s before its time", d.ID, d.Stream, early)
			}
			delete(want, d.ID)
			b.Ack(d)
		}
		if len(want) > 0 {
			b.Errorf("not delivered: %v", want)
		}
	})
}

// K4: a message that is larger than a segment of its topic is too large as well,
// whatever max.message.bytes says.
func TestLargerThanASegmentIsTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t, brokertest.URL(t, urlVariable), kafka.Config{})
	c := b.consumer(1)
	largest, segment := "3000000", "1048576"
	set := func(value *string) sarama.IncrementalAlterConfigsEntry {
		return sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
	}
	if err := b.admin.IncrementalAlterConfig(sarama.TopicResource, of(adapters.StreamDeadLetter, c), map[string]sarama.IncrementalAlterConfigsEntry{
		"max.message.bytes": set(&largest), "segment.bytes": set(&segment),
	}, false); err != nil {
		t.Fatal(err)
	}
	err := b.Broker.Handoff(testContext(t), adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{
		ID: "large", Payload: bytes.Repeat([]byte("x"), 2<<20),
	}})
	if !errors.Is(err, adapters.ErrTooLarge) {
		t.Errorf("hand-off: %v, want ErrTooLarge", err)
	}
}
