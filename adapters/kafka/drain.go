package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/retrytopic"
)

const (
	// drainCommit is how often a drain commits what it has taken.
	drainCommit = 500 * time.Millisecond
	// drainGuard keeps drains from what a running consumer delivers soon: it may
	// not yet know that the message was taken.
	drainGuard = 5 * time.Second
	// drainIdle ends the reading of a partition whose last offsets are no
	// messages, but the marks of transactions.
	drainIdle = 3 * time.Second
	// drainLull is how long a batch waits to be filled.
	drainLull = 200 * time.Millisecond
	// renewEvery is how often one process commits anew where drains are: the broker
	// forgets positions of groups without members some time after their last commit.
	renewEvery = time.Hour
)

// drainGroup is the group in whose name what was drained of a stream is
// committed.
func drainGroup(stream string) string { return stream + ".drain" }

// Drain reads a stream under a group of its own, and commits what fn has taken.
// The retry stream's name stands for all tiers. While a consumer of our own
// streams runs, what is due within seconds is left to it.
func (b *broker) Drain(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	if err := b.scan(ctx, stream, true, 1, one(fn)); err != nil {
		return fmt.Errorf("kafka: drain %q: %w", stream, err)
	}
	return nil
}

// DrainBatch implements adapters.BatchDrainer: what Drain does, with a commit for
// each batch. A batch is of one partition.
func (b *broker) DrainBatch(ctx context.Context, stream string, most int, fn func(context.Context, []adapters.Record) error) error {
	if err := b.scan(ctx, stream, true, max(most, 1), fn); err != nil {
		return fmt.Errorf("kafka: drain %q: %w", stream, err)
	}
	return nil
}

// one makes fn one for batches of one.
func one(fn func(context.Context, adapters.Record) error) func(context.Context, []adapters.Record) error {
	return func(ctx context.Context, batch []adapters.Record) error { return fn(ctx, batch[0]) }
}

// Peek reads what Drain would, and takes nothing: no group, and no commit.
func (b *broker) Peek(ctx context.Context, stream string, fn func(context.Context, adapters.Record) error) error {
	if err := b.scan(ctx, stream, false, 1, one(fn)); err != nil {
		return fmt.Errorf("kafka: peek at %q: %w", stream, err)
	}
	return nil
}

// Count implements adapters.Counter. It asks for positions and reads nothing, so
// what transactions leave beside messages counts, and so does what a drain leaves
// to a consumer because it is due within seconds. What waits in a consumer's
// memory counts, as it does for Drain.
func (b *broker) Count(ctx context.Context, stream string) (int64, error) {
	n, err := b.count(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("kafka: count %q: %w", stream, err)
	}
	return n, nil
}

func (b *broker) count(ctx context.Context, stream string) (n int64, err error) {
	streams, consumed := b.topicsOf(stream)
	found, err := b.found(ctx, stream, streams, consumed)
	if err != nil {
		return 0, err
	}
	for _, k := range found {
		drained, read, err := b.takenOf(ctx, stream, k, consumed)
		if err != nil {
			return 0, err
		}
		begins, ends, err := b.bounds(ctx, k)
		if err != nil {
			return 0, err
		}
		for tp, pos := range drained {
			taken, _ := offsetsAt(pos, k.id, ends[tp])
			finished, _ := offsetsAt(read[tp], k.id, ends[tp])
			_, left := unfinished(begins[tp], ends[tp], taken, finished)
			n += left
		}
	}
	return n, nil
}

// found are the topics of a stream that exist.
func (b *broker) found(ctx context.Context, stream string, streams []string, consumed bool) (map[string]known, error) {
	found, err := b.topics.findAll(ctx, streams)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && !consumed { // what is consumed is created when there is something for it
		return nil, &TopicError{Topic: candidates(stream)[0], Hint: "it is created when its consumer starts"}
	}
	return found, nil
}

// takenOf are the positions of drains in a topic of a stream, and those of its
// consumer, if it has one.
func (b *broker) takenOf(ctx context.Context, stream string, k known, consumed bool) (drained, read map[topicPartition]position, err error) {
	all := map[string][]int32{k.topic: upTo(k.partitions)}
	if drained, err = b.positions(ctx, drainGroup(stream), all); err != nil || !consumed {
		return drained, nil, err
	}
	read, err = b.positions(ctx, stream, all)
	return drained, read, err
}

// bounds are the first offsets of a topic's partitions, and those behind the last
// ones.
func (b *broker) bounds(ctx context.Context, k known) (begins, ends map[topicPartition]int64, err error) {
	at := func(where int64) (map[topicPartition]int64, error) {
		ask := map[int32]int64{}
		for n := range k.partitions {
			ask[n] = where
		}
		got, err := bounded(ctx, func() (map[string]map[int32]*sarama.OffsetResult, error) {
			return b.admin.ListOffsets(map[string]map[int32]int64{k.topic: ask}, nil)
		})
		if err != nil {
			return nil, fmt.Errorf("offsets of topic %q: %w", k.topic, err)
		}
		all := map[topicPartition]int64{}
		for n, r := range got[k.topic] {
			if r.Err != nil && !errors.Is(r.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("offsets of partition %d of topic %q: %w", n, k.topic, r.Err)
			}
			all[topicPartition{k.topic, n}] = r.Offset
		}
		return all, nil
	}
	// Of a topic that is new, or whose leader has just moved, not every broker knows.
	for try := range leaderTries {
		if begins, err = at(sarama.OffsetOldest); err == nil {
			ends, err = at(sarama.OffsetNewest)
		}
		if err == nil || try == leaderTries-1 || !isMoving(err) {
			break
		}
		sleep(ctx, minPause)
		_, _ = bounded(ctx, func() (struct{}, error) { return struct{}{}, b.client.RefreshMetadata(k.topic) })
	}
	return begins, ends, err
}

const leaderTries = 20

// isMoving reports that a partition has another leader soon.
func isMoving(err error) bool {
	return errors.Is(err, sarama.ErrNotLeaderForPartition) || errors.Is(err, sarama.ErrLeaderNotAvailable) ||
		errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrReplicaNotAvailable)
}

// unfinished counts the offsets of a partition that nobody has finished, and says
// where they begin.
func unfinished(begin, end int64, by ...*retrytopic.Offsets) (from, n int64) {
	from = begin
	for _, o := range by {
		from = max(from, o.Mark())
	}
	n = max(0, end-from)
	for offset := from; offset < min(end, from+retrytopic.MaxSpan); offset++ {
		if slices.ContainsFunc(by, func(o *retrytopic.Offsets) bool { return o.Finished(offset) }) {
			n--
		}
	}
	return from, n
}

// matches reports whether a stream has the form of a template.
func matches(template, stream string) bool {
	head, tail := template[:strings.IndexByte(template, '{')], template[strings.LastIndexByte(template, '}')+1:]
	return len(stream) > len(head)+len(tail) && strings.HasPrefix(stream, head) && strings.HasSuffix(stream, tail)
}

// topicsOf are the streams that make up a stream, and whether consumers of ours
// read it.
func (b *broker) topicsOf(stream string) (streams []string, consumed bool) {
	if matches(b.names.DeadLetter, stream) {
		return []string{stream}, false
	}
	if matches(b.names.Retry, stream) {
		for _, tier := range b.tiers {
			streams = append(streams, stream+"."+retrytopic.Name(tier))
		}
		return streams, true
	}
	return []string{stream}, matches(b.names.Parking, stream) || matches(b.names.Suspect, stream)
}

// scanner reads one stream.
type scanner struct {
	b        *broker
	stream   string
	take     bool // and commit
	active   bool // a consumer runs
	consumer sarama.Consumer
	most     int // of a batch
	fn       func(context.Context, []adapters.Record) error
}

func (b *broker) scan(ctx context.Context, stream string, take bool, most int, fn func(context.Context, []adapters.Record) error) (err error) {
	streams, consumed := b.topicsOf(stream)
	found, err := b.found(ctx, stream, streams, consumed)
	if err != nil || len(found) == 0 {
		return err
	}
	s := &scanner{b: b, stream: stream, take: take, most: most, fn: fn}
	if consumed {
		if s.active, err = b.isActive(ctx, stream); err != nil {
			return err
		}
	}
	if s.consumer, err = b.newConsumer(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.consumer.Close()) }()
	for _, name := range streams {
		k, ok := found[name]
		if !ok {
			continue
		}
		drained, read, err := b.takenOf(ctx, stream, k, consumed)
		if err != nil {
			return err
		}
		if take {
			if err := b.renew(ctx, drainGroup(stream), k.topic, drained); err != nil {
				return err
			}
		}
		for tp, pos := range drained {
			if err := s.partition(ctx, tp, k.id, pos, read[tp]); err != nil {
				return err
			}
		}
	}
	return nil
}

// renew commits anew where drains of a topic are, so that positions last as long as
// there are drains, also of a stream to which nothing comes.
func (b *broker) renew(ctx context.Context, group, topic string, drained map[topicPartition]position) error {
	b.mu.Lock()
	due := time.Since(b.renewed[topic]) >= renewEvery
	b.mu.Unlock()
	if !due {
		return nil
	}
	what := map[topicPartition]position{}
	for tp, pos := range drained {
		if pos.offset >= 0 {
			what[tp] = pos
		}
	}
	if err := b.commit(ctx, group, "", sarama.GroupGenerationUndefined, what); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renewed[topic] = time.Now()
	return nil
}

// newConsumer reads without a group, with a client of its own: one that asks
// anew so often that it can stop reading a partition at once.
func (b *broker) newConsumer(ctx context.Context) (sarama.Consumer, error) {
	sc := *b.sarama
	sc.Consumer.MaxWaitTime = 20 * time.Millisecond
	return boundedOr(ctx, func() (sarama.Consumer, error) { return sarama.NewConsumer(b.addrs, &sc) },
		func(c sarama.Consumer) { _ = c.Close() })
}

// isActive reports whether a group has members.
func (b *broker) isActive(ctx context.Context, group string) (bool, error) {
	groups, err := bounded(ctx, func() ([]*sarama.GroupDescription, error) { return b.admin.DescribeConsumerGroups([]string{group}) })
	if err != nil {
		return false, fmt.Errorf("members of group %q: %w", group, err)
	}
	return len(groups) > 0 && len(groups[0].Members) > 0, nil
}

// offsetsAt are the finished offsets of a committed position in a topic with this
// id and end. None are, and ok is false, if the position is that of another topic of
// this name, or lies where this one has nothing.
func offsetsAt(pos position, id uint64, end int64) (finished *retrytopic.Offsets, ok bool) {
	progress, err := retrytopic.DecodeProgress(pos.offset, pos.metadata)
	switch {
	case pos.offset > end, err == nil && another(progress.Topic, id):
		return retrytopic.NewOffsets(0), false
	case err != nil:
		return retrytopic.NewOffsets(max(pos.offset, 0)), true
	}
	return progress.Offsets, true
}

func (s *scanner) partition(ctx context.Context, tp topicPartition, id uint64, drained, read position) (err error) {
	offset := func(at int64) (int64, error) {
		return bounded(ctx, func() (int64, error) { return s.b.client.GetOffset(tp.topic, tp.partition, at) })
	}
	end, err := offset(sarama.OffsetNewest)
	if err != nil {
		return err
	}
	start, err := offset(sarama.OffsetOldest)
	if err != nil {
		return err
	}
	taken, ok := offsetsAt(drained, id, end)
	if !ok {
		s.b.logger.Warn("kafka: the position of drains is not of this topic, which was deleted and created anew, or cut: it is read from its beginning",
			"topic", tp.topic, "partition", tp.partition, "position", drained.offset, "end", end)
	}
	consumed, _ := offsetsAt(read, id, end)
	if start = max(start, taken.Mark(), consumed.Mark()); start >= end {
		return nil
	}
	pc, err := s.consumer.ConsumePartition(tp.topic, tp.partition, start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pc.Close()) }()
	committed := time.Now()
	dirty := false
	batch := batch{s: s, taken: taken}
	commit := func() error {
		if !s.take || !dirty {
			return nil
		}
		dirty, committed = false, time.Now()
		// Also when ctx has ended: fn has these.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coordination)
		defer cancel()
		pos := position{taken.Mark(), retrytopic.Progress{Offsets: taken, Owner: s.b.owner(), Topic: id}.EncodeWithin(int(s.b.metadataMax.Load()))}
		return s.b.commit(ctx, drainGroup(s.stream), "", sarama.GroupGenerationUndefined, map[topicPartition]position{tp: pos})
	}
	defer func() { err = errors.Join(err, commit()) }()
	// flush gives to fn what was collected for it.
	flush := func() error {
		if len(batch.records) == 0 {
			return nil
		}
		if err := batch.flush(ctx); err != nil {
			return err
		}
		dirty = true
		if s.most > 1 {
			return commit()
		}
		return nil
	}
	idle := time.NewTimer(drainIdle)
	defer idle.Stop()
	for {
		wait := drainIdle
		if len(batch.records) > 0 {
			wait = drainLull
		}
		idle.Reset(wait)
		select {
		case m, open := <-pc.Messages():
			if !open {
				return errors.New("the client has stopped reading")
			}
			if m.Offset >= end {
				return flush()
			}
			if !taken.Fits(m.Offset) {
				// What is collected is in the way, perhaps.
				if err := flush(); err != nil || !taken.Fits(m.Offset) {
					return err
				}
			}
			if s.message(m, taken, consumed, &batch) {
				dirty = true
			}
			if len(batch.records) == s.most || m.Offset == end-1 {
				if err := flush(); err != nil {
					return err
				}
			}
			if m.Offset == end-1 {
				return nil
			}
			if time.Since(committed) > drainCommit {
				if err := commit(); err != nil {
					return err
				}
			}
		case e := <-pc.Errors():
			if e != nil {
				return e
			}
		case <-idle.C:
			if len(batch.records) == 0 {
				return nil
			}
			if err := flush(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// message adds a message to the batch, unless it is not for fn. It reports
// whether it marked the message as read without fn.
func (s *scanner) message(m *sarama.ConsumerMessage, taken, consumed *retrytopic.Offsets, batch *batch) bool {
	if !taken.Read(m.Offset) {
		return false
	}
	if consumed.Finished(m.Offset) {
		taken.Finish(m.Offset)
		return true
	}
	if s.active && time.Until(heldUntil(m, maxHeld)) < drainGuard {
		return false // the consumer's
	}
	r, _ := recordOf(m, s.stream, s.b.cfg.Marshaler) // what cannot be unmarshaled comes as it is
	batch.records, batch.offsets = append(batch.records, r), append(batch.offsets, m.Offset)
	return false
}

// batch is what fn is given next.
type batch struct {
	s       *scanner
	taken   *retrytopic.Offsets
	records []adapters.Record
	offsets []int64
}

// flush gives the batch to fn, which may keep it.
func (b *batch) flush(ctx context.Context) error {
	if err := b.s.fn(ctx, b.records); err != nil {
		return err
	}
	for _, offset := range b.offsets {
		b.taken.Finish(offset)
	}
	b.records, b.offsets = nil, b.offsets[:0]
	return nil
}

var (
	_ adapters.BatchDrainer = (*broker)(nil)
	_ adapters.Counter      = (*broker)(nil)
	_ adapters.Peeker       = (*broker)(nil)
)
