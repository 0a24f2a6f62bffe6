package adaptertest

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Harness tells [Run] how to reach a broker. Only Start is required.
type Harness struct {
	// Start is called once at the beginning of each subtest, inside its bubble
	// if there is one. Use the TB for cleaning up.
	Start func(testing.TB) Target

	// Bubble runs each subtest in a testing/synctest bubble. It is for brokers
	// inside the process, without sockets.
	Bubble bool
	// Polls says that the adapter asks its broker again and again, so that days
	// in a bubble are much to compute: hours stand for them.
	Polls bool
	// Unordered says that the broker promises no order, not even to one consumer
	// with a concurrency of 1.
	Unordered bool
	// Moves says that the adapter itself moves what was parked, by a write and a
	// deletion: a process that is killed between the two leaves a copy that the
	// suite cannot see coming.
	Moves bool
	// Parallel runs subtests beside each other, as far as -parallel allows.
	// Subtests then never use Target.Restart.
	Parallel bool

	// Within is how long something that must happen may take. Zero means 30 s;
	// 1000 h in a bubble, where only what never comes takes that long.
	Within time.Duration
	// Quiet is how long to watch that something does not happen. Zero means
	// 500 ms; 10 h in a bubble.
	Quiet time.Duration
	// Delay is the delay of retries where a test needs a short one. Zero means
	// 200 ms; 10 s in a bubble.
	Delay time.Duration
	// Late is the lateness of the 99th percentile that is accepted. Zero means
	// 100 ms.
	Late time.Duration

	// AckWithin is how long after an Ack the death of the process may still bring
	// the message back, on brokers whose acknowledgements are positions that are
	// written now and then. Such copies count as explained. Zero means never.
	AckWithin time.Duration

	// MaxBody is the largest payload that the broker surely accepts on a topic,
	// in bytes. Zero means 1 MiB, or what Capabilities.MaxMessageBytes leaves.
	MaxBody int
	// Topic makes a topic name that the broker allows of one that is unique and
	// made of at most 40 letters, digits, and hyphens. Nil keeps it.
	Topic func(string) string
}

// Target is a broker, as one subtest sees it.
type Target struct {
	// URL and Opener as for spillway.Open. Each Open is a connection of its own,
	// like that of another process, to the same broker.
	URL    string
	Opener adapters.Opener

	// Publish writes a record to a topic as a producer without Spillway does,
	// with its key, with repeated headers, with a nil payload. The consumer's
	// streams exist already. Nil means that only what Watermill's publisher can
	// express is tested.
	Publish func(topic string, r adapters.Record) error
	// PublishUndecodable writes something that the adapter cannot read to a
	// topic, and returns the bytes that a handler of raw bytes would see. Nil
	// means that there is no such thing.
	PublishUndecodable func(topic string) ([]byte, error)
	// Kill ends the connection of a broker that Opener opened, as the death of
	// its process would: nothing is settled, and the broker notices. Nil means
	// that closing the broker's subscriptions comes near enough.
	Kill func(adapters.Broker)
	// Restart restarts the broker, and returns when it is back. Nil means that
	// it cannot be.
	Restart func() error
	// Streams counts everything that exists on the broker for messages of a
	// topic: queues, topics. Nil means that nobody can tell.
	Streams func(topic string) (int, error)
}

// Run runs all subtests that the broker's capabilities call for.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Start == nil {
		t.Fatal("adaptertest: Harness.Start is not set")
	}
	h = h.withDefaults()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			if h.Bubble {
				synctest.Test(t, func(t *testing.T) { c.run(newWorld(t, h)) })
				return
			}
			c.run(newWorld(t, h))
		})
	}
}

func (h Harness) withDefaults() Harness {
	choose := func(real, bubble time.Duration) time.Duration {
		if h.Bubble {
			return bubble
		}
		return real
	}
	h.Within = cmp.Or(h.Within, choose(30*time.Second, 1000*time.Hour))
	h.Quiet = cmp.Or(h.Quiet, choose(500*time.Millisecond, 10*time.Hour))
	h.Delay = cmp.Or(h.Delay, choose(200*time.Millisecond, 10*time.Second))
	h.Late = cmp.Or(h.Late, 100*time.Millisecond)
	h.MaxBody = cmp.Or(h.MaxBody, 1<<20)
	if h.Topic == nil {
		h.Topic = func(name string) string { return name }
	}
	return h
}
