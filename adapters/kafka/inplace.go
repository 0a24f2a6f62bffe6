package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// Retry in place: a message that is to be tried again stays where it is in its
// topic, and with it those behind it in its lane. Nothing but its state is
// written, to a compacted topic of its own, <topic>.<group>.retry.inplace, with
// the message's partition and offset as key. Whoever gets the partition reads the
// states of what is not finished; a state that is not needed any more is deleted.

// places knows which handed-out message a hand-off is about. Safe for concurrent
// use.
type places struct {
	mu  sync.Mutex
	out map[*sarama.ConsumerMessage]place
}

type place struct {
	p *partition
	e *entry
}

func (x *places) add(p *partition, e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.out[e.msg] = place{p, e}
}

func (x *places) remove(e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.out, e.msg)
}

func (x *places) of(native any) (place, bool) {
	m, _ := native.(*sarama.ConsumerMessage)
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.out[m]
	return at, ok
}

// kept is the state of a message that waits in its place.
type kept struct {
	At    int64           `json:"at"` // the message's timestamp: a topic may be deleted, and its offsets begin anew
	Due   time.Time       `json:"due"`
	State []envelope.Pair `json:"state"`
}

func (b *broker) placesName(c adapters.Consumer) string {
	return b.names.Of(adapters.StreamRetry, c) + ".inplace"
}

// placesSpec is how the topic of states is created. What is deleted may be
// forgotten soon, so that readers have little to read.
func (b *broker) placesSpec(c adapters.Consumer) func(context.Context) (spec, error) {
	return func(ctx context.Context) (spec, error) {
		s, err := b.ownSpec(c, adapters.StreamRetry)(ctx)
		s.config = map[string]string{
			"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.ms": "3600000", "delete.retention.ms": "3600000",
		}
		return s, err
	}
}

func placeKey(partition int32, offset int64) string {
	return strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(offset, 10)
}

// writePlace writes the state of a message, or, without one, deletes it.
func (b *broker) writePlace(ctx context.Context, c adapters.Consumer, m *sarama.ConsumerMessage, k *kept) (pending, error) {
	found, err := b.topics.ensureKnown(ctx, b.placesName(c), b.placesSpec(c))
	if err != nil {
		return pending{}, err
	}
	out := &sarama.ProducerMessage{
		Topic: found.topic, Partition: m.Partition % found.partitions, Key: sarama.StringEncoder(placeKey(m.Partition, m.Offset)),
	}
	if k != nil {
		text, err := json.Marshal(k)
		if err != nil {
			return pending{}, fmt.Errorf("%w: state: %w", adapters.ErrRefused, err)
		}
		out.Value = sarama.ByteEncoder(text)
	}
	return b.producer.placed.begin(ctx, out), nil
}

// keepInPlace carries out a hand-off to retry for a message that is handed out.
func (b *broker) keepInPlace(ctx context.Context, h adapters.Handoff, at place) error {
	k := &kept{At: at.e.msg.Timestamp.UnixMilli(), Due: h.Due, State: h.State}
	w, err := b.writePlace(ctx, h.Consumer, at.e.msg, k)
	if err == nil {
		err = b.producer.wait(ctx, w)
	}
	if isGone(err) {
		b.topics.forget(b.placesName(h.Consumer))
	}
	if err != nil {
		return err
	}
	at.p.mu.Lock()
	defer at.p.mu.Unlock()
	at.e.again = k
	return nil
}

// dropPlace deletes a state, and does not wait for it: one that stays is ignored.
func (b *broker) dropPlace(c adapters.Consumer, m *sarama.ConsumerMessage) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = b.writePlace(ctx, c, m, nil)
}

// readPlaces reads the states of what is not finished in a partition.
func (b *broker) readPlaces(ctx context.Context, p *partition) (map[int64]*kept, error) {
	found, ok, err := b.topics.find(ctx, b.placesName(p.r.s.c))
	if err != nil || !ok {
		return nil, err
	}
	states := map[int64]*kept{}
	prefix := placeKey(p.partition, 0)
	prefix = prefix[:len(prefix)-1]
	err = b.readAll(ctx, topicPartition{found.topic, p.partition % found.partitions}, func(m *sarama.ConsumerMessage) {
		text, ok := strings.CutPrefix(string(m.Key), prefix)
		offset, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || p.offsets.Finished(offset) {
			return
		}
		var k kept
		if m.Value == nil || json.Unmarshal(m.Value, &k) != nil {
			delete(states, offset)
			return
		}
		states[offset] = &k
	})
	return states, err
}

// readAll reads what lies in a partition now.
func (b *broker) readAll(ctx context.Context, tp topicPartition, fn func(*sarama.ConsumerMessage)) (err error) {
	end, err := bounded(ctx, func() (int64, error) { return b.client.GetOffset(tp.topic, tp.partition, sarama.OffsetNewest) })
	if err != nil {
		return err
	}
	start, err := bounded(ctx, func() (int64, error) { return b.client.GetOffset(tp.topic, tp.partition, sarama.OffsetOldest) })
	if err != nil || start >= end {
		return err
	}
	consumer, err := b.newConsumer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	pc, err := consumer.ConsumePartition(tp.topic, tp.partition, start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pc.Close()) }()
	idle := time.NewTimer(drainIdle)
	defer idle.Stop()
	for {
		select {
		case m, open := <-pc.Messages():
			if !open {
				return errors.New("the client has stopped reading")
			}
			fn(m)
			if m.Offset >= end-1 {
				return nil
			}
			idle.Reset(drainIdle)
		case e := <-pc.Errors():
			if e != nil {
				return e
			}
		case <-idle.C: // compaction has removed the last ones
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
