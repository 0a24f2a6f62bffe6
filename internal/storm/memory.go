package storm

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// memoryTarget is the embedded broker. Its processes are views in the driver's
// own process, and its faults are those of its fault script.
type memoryTarget struct{ broker *memory.Broker }

func newMemoryTarget() *memoryTarget { return &memoryTarget{} }

func (t *memoryTarget) Start(context.Context) error {
	t.broker = memory.New(memory.Config{Partitions: 4})
	return nil
}

func (t *memoryTarget) Stop(ctx context.Context) error { return t.broker.Close(ctx) }
func (t *memoryTarget) Version() string                { return "of this module" }
func (t *memoryTarget) Clients() []string              { return nil }
func (t *memoryTarget) URL() string                    { return "memory://" }
func (t *memoryTarget) Via(string) string              { return t.URL() }
func (t *memoryTarget) Addr() string                   { return "" }
func (t *memoryTarget) ProxyAddr() string              { return "" }
func (t *memoryTarget) InProcess() bool                { return true }
func (t *memoryTarget) Opener() adapters.Opener        { return t.broker.Opener() }
func (t *memoryTarget) Kill(group string)              { t.broker.Crash(topicIn, group) }

func (t *memoryTarget) NativePublisher(string) (NativePublisher, error) {
	return memoryPublisher{t.broker}, nil
}

type memoryPublisher struct{ broker *memory.Broker }

func (p memoryPublisher) Publish(_ context.Context, topic string, r adapters.Record) error {
	return p.broker.Publish(topic, r)
}

func (memoryPublisher) Close() error { return nil }

func (t *memoryTarget) Headers(r *rand.Rand) []adapters.Header {
	return []adapters.Header{
		{Key: "count", Type: "int64", Value: []byte(strconv.Itoa(r.Int()))},
		{Key: "twice", Value: []byte("first")},
		{Key: "twice", Value: []byte("second")},
		{Key: "binary", Value: []byte{0, 0xff, byte(r.Int())}},
	}
}

func (t *memoryTarget) Streams(_ context.Context, c adapters.Consumer) ([]Place, error) {
	// All groups read one topic; whom a record waits for cannot be told.
	return []Place{{Stream: adapters.StreamMain, Name: c.Topic}}, nil
}

func (t *memoryTarget) Held(context.Context) (map[string]int, error) {
	held := map[string]int{}
	for _, stream := range t.broker.Streams() {
		if n := t.broker.Depth(stream); n > 0 {
			held[stream] = n
		}
	}
	return held, nil
}

func (t *memoryTarget) Trials() []Trial {
	// All but two tell whoever is hit, so that no acknowledgement is in doubt.
	inject := func(name string, on memory.Op, do memory.Effect) Trial {
		scope := scopeNobody
		if name == "ack lost" || name == "delivered twice" {
			scope = ""
		}
		return Trial{Name: name, Weight: 2, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			f := memory.Fault{On: on, Times: 1 + r.IntN(4), Do: do}
			if on != memory.Publish {
				f.Group = []string{groupActing, groupWatching}[r.IntN(2)]
			}
			t.broker.Inject(f)
			pause(ctx, between(r, 50*time.Millisecond, 400*time.Millisecond))
			t.broker.ClearFaults()
			return scope, nil
		}}
	}
	return []Trial{
		inject("publish fails", memory.Publish, memory.Fail(nil)),
		inject("publish unconfirmed", memory.Publish, memory.FailAfter(nil)),
		inject("hand-off fails", memory.Handoff, memory.Fail(nil)),
		inject("hand-off unconfirmed", memory.Handoff, memory.FailAfter(nil)),
		inject("ack fails", memory.Ack, memory.Fail(nil)),
		inject("ack unconfirmed", memory.Ack, memory.FailAfter(nil)),
		inject("ack lost", memory.Ack, memory.Lose()),
		inject("delivered twice", memory.Deliver, memory.Twice()),
		inject("dies at hand-off", memory.Handoff, memory.Crash()),
		inject("dies at ack", memory.Ack, memory.Crash()),
		inject("dies at delivery", memory.Deliver, memory.Crash()),
		inject("disconnected at ack", memory.Ack, memory.Disconnect()),
		inject("slow hand-off", memory.Handoff, memory.Delay(time.Second)),
		{Name: "all of a group disconnected", Weight: 2, Do: func(_ context.Context, r *rand.Rand) (string, error) {
			t.broker.Disconnect(topicIn, []string{groupActing, groupWatching}[r.IntN(2)])
			return scopeNobody, nil
		}},
	}
}
