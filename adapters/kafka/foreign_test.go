package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters/kafka"
)

// Transactions of producers leave marks that are no messages: they hold up no
// position, and the check does not take them for messages that wait. With the
// isolation that is asked for, what was aborted is not delivered.
func TestTransactionsOfProducers(t *testing.T) {
	t.Parallel()
	sc := testSarama()
	sc.Consumer.IsolationLevel = sarama.ReadCommitted
	onBoth(t, kafka.Config{Sarama: sc}, func(b *bench) {
		c := b.consumer(4)
		txn := testSarama()
		txn.Producer.Idempotent, txn.Producer.RequiredAcks, txn.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
		txn.Producer.Return.Successes = true
		txn.Producer.Transaction.ID = c.Topic
		producer, err := sarama.NewSyncProducer(b.addrs(), txn)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = producer.Close() }()
		write := func(body int, end func() error) {
			if err := producer.BeginTxn(); err != nil {
				b.Fatal(err)
			}
			if _, _, err := producer.SendMessage(keyed(c.Topic, 0, body)); err != nil {
				b.Fatal(err)
			}
			if err := end(); err != nil {
				b.Fatal(err)
			}
		}
		write(0, producer.AbortTxn)
		write(1, producer.CommitTxn)
		write(2, producer.AbortTxn)
		write(3, producer.CommitTxn)
		s := b.SubscribeOn(b.Broker, c)
		for _, want := range []int{1, 3} {
			d := b.Next(s)
			if string(d.Payload) != bodyOf(want) {
				b.Errorf("got %q, want %q", d.Payload, bodyOf(want))
			}
			b.Ack(d)
		}
		b.Quiet(s, 300*time.Millisecond)
		b.Close(s)
		if got := b.check(c); len(got) > 0 {
			b.Errorf("when all is finished the check says %q", got)
		}
	})
}

// Partitions that a topic is given while it is read are read, from their beginning.
func TestPartitionsAreAddedWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(2)
		s := b.SubscribeOn(b.Broker, c)
		b.publish(c.Topic, 1)
		b.Ack(b.Next(s))
		if err := b.admin.CreatePartitions(c.Topic, 4, nil, false); err != nil {
			b.Fatal(err)
		}
		b.Eventually("they can be written to", func() bool {
			_ = b.client.RefreshMetadata(c.Topic)
			all, err := b.client.WritablePartitions(c.Topic)
			return err == nil && len(all) == 4
		})
		const n = 12
		in := map[int32]bool{}
		for i := range n {
			partition, _, err := b.producer.SendMessage(keyed(c.Topic, i, 0))
			if err != nil {
				b.Fatal(err)
			}
			in[partition] = true
		}
		if len(in) < 2 {
			b.Fatalf("all were written to %v", in)
		}
		got := map[string]int{}
		for range n {
			d := b.Next(s)
			got[d.ID]++
			b.Ack(d)
		}
		if len(got) != n {
			b.Errorf("got %v, want each of %d once", got, n)
		}
		b.Quiet(s, 300*time.Millisecond)
	})
}

// A source may be compacted: what is left is delivered, and offsets that are gone
// hold up nothing.
func TestCompactedSource(t *testing.T) {
	t.Parallel()
	cluster, rawURL := fakeCluster(t, nil)
	b := setup(t, rawURL, kafka.Config{})
	topic := "test-compacted"
	compact, segment, dirty := "compact", "200", "0.01"
	if err := b.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{
		"cleanup.policy": &compact, "segment.bytes": &segment, "min.cleanable.dirty.ratio": &dirty,
	}}, false); err != nil {
		t.Fatal(err)
	}
	c := b.consumer(4)
	c.Topic = topic
	if err := b.Broker.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		b.send(keyed(topic, i%2, i))
	}
	cluster.Compact()
	s := b.SubscribeOn(b.Broker, c)
	var got []string
	for len(got) < 20 && !slices.Contains(got, bodyOf(19)) {
		d := b.Next(s)
		got = append(got, string(d.Payload))
		b.Ack(d)
	}
	b.Quiet(s, 300*time.Millisecond)
	b.Close(s)
	if len(got) == 20 || !slices.Contains(got, bodyOf(18)) {
		t.Errorf("delivered %q, want what compaction has left, with the last of each key", got)
	}
	if found := b.check(c); len(found) > 0 {
		t.Errorf("when all is finished the check says %q", found)
	}
}
