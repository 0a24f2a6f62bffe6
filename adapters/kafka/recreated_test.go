package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// commitAs commits a position as other clients do: without our metadata.
func (b *bench) commitAs(group, topic string, offset int64) {
	b.Helper()
	coordinator, err := b.client.Coordinator(group)
	if err != nil {
		b.Fatal(err)
	}
	req := sarama.NewOffsetCommitRequest(b.client.Config(), group)
	req.AddBlock(topic, 0, offset, 0, "theirs")
	resp, err := coordinator.CommitOffset(req)
	if err != nil {
		b.Fatal(err)
	}
	if kerr := resp.Errors[topic][0]; kerr != sarama.ErrNoError {
		b.Fatal(kerr)
	}
}

// A position beyond the end of a topic is that of another one, which was deleted,
// or of a log that was cut: whatever metadata it has, it hides no message from a
// consumer, from drains, or from the check.
func TestPositionsBeyondTheEndHideNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(1)
		parking := of(adapters.StreamParking, c)
		b.commitAs(parking+".drain", parking, 1000) // of operators
		b.commitAs(c.Topic+"."+c.Group, c.Topic, 1000)
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: "parked", Payload: []byte("x")}})
		b.publish(c.Topic, 1)
		var waiting int
		for _, line := range b.check(c) {
			if line == `info kafka-parked .billing.parking: 1 message is parked` || line == `info kafka-lag : 1 message is not finished by group "`+c.Topic+`.billing"` {
				waiting++
			}
		}
		if waiting != 2 {
			b.Errorf("the check sees %d messages of 2: %q", waiting, b.check(c))
		}
		s := b.SubscribeOn(b.Broker, c)
		got := map[string]bool{}
		for range 2 {
			d := b.Next(s)
			got[d.ID] = true
			b.Ack(d)
		}
		if !got["parked"] || !got["m-00000"] {
			b.Errorf("delivered %v, want both", got)
		}
		b.Close(s)

		// The consumer's position is beyond the end now.
		b.commitAs(parking, parking, 1000)
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: "later", Payload: []byte("x")}, Due: time.Now().Add(time.Hour)})
		if drained := idsOf(b.Drain(parking)); len(drained) == 0 || drained[len(drained)-1] != "later" {
			b.Errorf("drained %q, want what was parked last too", drained)
		}
	})
}

// Retention, or somebody, may delete what nobody has finished. Reading goes on at
// what is left, also while it runs, and what was finished above is not handled again.
func TestDeletedRecordsAreLeftOut(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(20)
		b.publish(c.Topic, 10)
		s := b.SubscribeOn(b.Broker, c)
		for range 10 {
			if d := b.Next(s); d.ID >= "m-00005" && d.ID != "m-00008" {
				b.Ack(d)
			}
		}
		b.Close(s)
		if err := b.admin.DeleteRecords(c.Topic, map[int32]int64{0: 4}); err != nil {
			b.Fatal(err)
		}
		s = b.SubscribeOn(b.open(), c)
		var got []string
		for range 2 {
			d := b.Next(s)
			got = append(got, d.ID)
			b.Ack(d)
		}
		if want := []string{"m-00004", "m-00008"}; !slices.Equal(got, want) {
			b.Errorf("delivered %q, want %q", got, want)
		}
		// What is written and deleted at once may be read or not, and stops nothing.
		b.publish(c.Topic, 5)
		if err := b.admin.DeleteRecords(c.Topic, map[int32]int64{0: 15}); err != nil {
			b.Fatal(err)
		}
		b.send(keyed(c.Topic, 0, 7))
		for {
			d := b.Next(s)
			b.Ack(d)
			if string(d.Payload) == bodyOf(7) {
				return
			}
		}
	})
}
