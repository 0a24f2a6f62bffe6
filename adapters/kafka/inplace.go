package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	if err := at.p.hold(ctx); err != nil {
		return err
	}
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

const (
	// placesTime bounds the reading of all states at the beginning of a session, and
	// placesAtOnce of how many partitions they are read side by side.
	placesTime   = 30 * time.Second
	placesAtOnce = 32
)

// loadPlaces reads the states of what is not finished in partitions.
func (r *reader) loadPlaces(ctx context.Context, parts []*partition) (err error) {
	if r.stream != adapters.StreamMain || r.s.c.Retry != adapters.RetryInPlace || len(parts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, placesTime)
	defer cancel()
	found, ok, err := r.b.topics.find(ctx, r.b.placesName(r.s.c))
	if err != nil || !ok {
		return err
	}
	consumer, err := r.b.newConsumer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	shared := map[int32][]*partition{} // by the partition that their states are in
	for _, p := range parts {
		n := p.partition % found.partitions
		shared[n] = append(shared[n], p)
	}
	return each(placesAtOnce, slices.Collect(maps.Keys(shared)), func(n int32) error {
		return r.b.readPlaces(ctx, consumer, topicPartition{found.topic, n}, shared[n])
	})
}

// each calls fn for all of a list, some at once.
func each[T any](atOnce int, list []T, fn func(T) error) error {
	errs := make([]error, len(list))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, v := range list {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = fn(v)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// readPlaces reads the states of what is not finished in partitions.
func (b *broker) readPlaces(ctx context.Context, consumer sarama.Consumer, at topicPartition, of []*partition) error {
	states := map[string]map[int64]*kept{}
	parts := map[string]*partition{}
	for _, p := range of {
		key := strconv.Itoa(int(p.partition))
		parts[key], states[key] = p, map[int64]*kept{}
	}
	err := b.readAll(ctx, consumer, at, func(m *sarama.ConsumerMessage) {
		key, text, _ := strings.Cut(string(m.Key), "/")
		p := parts[key]
		offset, err := strconv.ParseInt(text, 10, 64)
		if p == nil || err != nil || p.offsets.Finished(offset) {
			return
		}
		var k kept
		if m.Value == nil || json.Unmarshal(m.Value, &k) != nil {
			delete(states[key], offset)
			return
		}
		states[key][offset] = &k
	})
	if err != nil {
		return fmt.Errorf("what waits in place, in partition %d of topic %q: %w", at.partition, at.topic, err)
	}
	for key, p := range parts {
		p.mu.Lock()
		p.kept = states[key]
		p.mu.Unlock()
	}
	return nil
}

// readAll reads what lies in a partition now.
func (b *broker) readAll(ctx context.Context, consumer sarama.Consumer, tp topicPartition, fn func(*sarama.ConsumerMessage)) (err error) {
	end, err := bounded(ctx, func() (int64, error) { return b.client.GetOffset(tp.topic, tp.partition, sarama.OffsetNewest) })
	if err != nil {
		return err
	}
	start, err := bounded(ctx, func() (int64, error) { return b.client.GetOffset(tp.topic, tp.partition, sarama.OffsetOldest) })
	if err != nil || start >= end {
		return err
	}
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
