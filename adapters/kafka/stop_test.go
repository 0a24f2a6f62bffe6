package kafka_test

import (
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// Invariant 7: what is on its way to a subscriber that takes nothing any more goes
// back, uncounted, and the order is that of the topic.
func TestStopTakesBackWhatNobodyHasReceived(t *testing.T) {
	t.Parallel()
	b := setup(t, fake(t), kafka.Config{})
	c := b.consumer(4)
	b.publish(c.Topic, 10)
	first, err := b.Broker.Subscribe(b.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b.Ack(b.Next(first)) // others are on their way
	if err := first.Stop(b.Context()); err != nil {
		t.Fatal(err)
	}
	if d, open := <-first.Deliveries(); open {
		t.Errorf("delivered %q after Stop", d.ID)
	}
	b.Close(first)

	second := b.SubscribeOn(b.Broker, adapters.Consumer{Topic: c.Topic, Group: c.Group, Concurrency: 1})
	for i := 1; i < 10; i++ {
		d := b.Next(second)
		if want := fmt.Sprintf("m-%05d", i); d.ID != want || d.Count != 1 {
			t.Errorf("delivered %q for the %dth time, want %q for the first", d.ID, d.Count, want)
		}
		b.Ack(d)
	}
}
