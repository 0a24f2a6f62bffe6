package memory_test

import (
	"context"
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(adaptertest.PubSubLeak))
}

// consumer is the one that most tests use.
var consumer = adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}

func with(concurrency int) adapters.Consumer {
	c := consumer
	c.Concurrency = concurrency
	return c
}

// setup returns a broker and a process on it, for which consumer is ensured.
func setup(t *testing.T, cfg memory.Config) (*memory.Broker, adapters.Broker) {
	t.Helper()
	broker := memory.New(cfg)
	t.Cleanup(func() {
		if err := broker.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	process := open(t, broker)
	ensure(t, process, consumer)
	return broker, process
}

func open(t *testing.T, broker *memory.Broker) adapters.Broker {
	t.Helper()
	process, err := broker.Opener().Open(t.Context(), adapters.OpenParams{})
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func ensure(t *testing.T, process adapters.Broker, c adapters.Consumer) {
	t.Helper()
	if err := process.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, process adapters.Broker, c adapters.Consumer) adapters.Subscription {
	t.Helper()
	sub, err := process.Subscribe(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func publish(t *testing.T, broker *memory.Broker, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := broker.Publish("orders", adapters.Record{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// receive returns the delivery that is there. The broker has put it there
// before the call returned that made it possible, so there is no waiting.
func receive(t *testing.T, sub adapters.Subscription) *adapters.Delivery {
	t.Helper()
	select {
	case d, open := <-sub.Deliveries():
		if !open {
			t.Fatal("the deliveries are closed")
		}
		return d
	default:
		t.Fatal("no delivery")
		return nil
	}
}

func receiveID(t *testing.T, sub adapters.Subscription, id string, count int) *adapters.Delivery {
	t.Helper()
	d := receive(t, sub)
	if d.ID != id || d.Count != count {
		t.Fatalf("received %q with count %d, want %q with %d", d.ID, d.Count, id, count)
	}
	return d
}

func receiveNothing(t *testing.T, sub adapters.Subscription) {
	t.Helper()
	select {
	case d, open := <-sub.Deliveries():
		if !open {
			t.Fatal("the deliveries are closed")
		}
		t.Fatalf("received %q, want nothing", d.ID)
	default:
	}
}

func receiveClosed(t *testing.T, sub adapters.Subscription) {
	t.Helper()
	select {
	case d, open := <-sub.Deliveries():
		if open {
			t.Fatalf("received %q, want the end", d.ID)
		}
	default:
		t.Fatal("the deliveries are still open")
	}
}

func ack(t *testing.T, d *adapters.Delivery) {
	t.Helper()
	if err := d.Settler.Ack(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func giveBack(t *testing.T, d *adapters.Delivery) {
	t.Helper()
	if err := d.Settler.Return(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func ids(records []adapters.Record) []string {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

func wantRecords(t *testing.T, broker *memory.Broker, stream string, want ...string) {
	t.Helper()
	if got := ids(broker.Records(stream)); !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", stream, got, want)
	}
	if got := broker.Depth(stream); got != len(want) {
		t.Errorf("the depth of %s is %d, want %d", stream, got, len(want))
	}
}
