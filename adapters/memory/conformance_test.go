package memory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/memory"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]memory.Config{
		"unlimited": {},
		"limited":   {MaxMessageBytes: 256 << 10, MaxMetadataBytes: 8 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Harness{
				Bubble: true, Parallel: true,
				Start: func(testing.TB) adaptertest.Target { return target(memory.New(cfg)) },
			})
		})
	}
}

func target(broker *memory.Broker) adaptertest.Target {
	return adaptertest.Target{
		URL:    "memory://",
		Opener: broker.Opener(),
		Publish: func(topic string, r adapters.Record) error {
			return broker.Publish(topic, r)
		},
		PublishUndecodable: func(topic string) ([]byte, error) {
			raw := []byte("\x00not a message")
			broker.Inject(memory.Fault{On: memory.Deliver, Stream: topic, ID: "raw", Do: memory.Undecodable(errors.New("bad framing"))})
			return raw, broker.Publish(topic, adapters.Record{ID: "raw", Payload: raw})
		},
		Streams: func(topic string) (int, error) {
			n := 0
			for _, s := range broker.Streams() {
				if strings.HasPrefix(s, topic) {
					n++
				}
			}
			return n, nil
		},
	}
}

// Partitions are for those who need many; the promises are the same.
func TestConformanceWithPartitions(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, adaptertest.Harness{
		Bubble: true, Parallel: true,
		Start: func(testing.TB) adaptertest.Target { return target(memory.New(memory.Config{Partitions: 4})) },
	})
}
