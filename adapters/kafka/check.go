package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
)

// The rules of Check. Their names are frozen; docs/kafka.md explains them.
const (
	ruleMissing     = "kafka-topic-missing"
	ruleSetting     = "kafka-topic-setting"
	ruleRetention   = "kafka-retention"
	ruleSize        = "kafka-message-size"
	rulePartitions  = "kafka-partitions"
	ruleReplication = "kafka-replication"
	ruleNobodyReads = "kafka-nobody-reads"
	ruleLag         = "kafka-lag"
	ruleBlocked     = "kafka-partition-blocked"
	ruleWaiting     = "kafka-waiting"
	ruleParked      = "kafka-parked"
	ruleSuspects    = "kafka-suspects"
	ruleDeadLetters = "kafka-dead-letters"
	ruleLapsing     = "kafka-retention-lapses"
	rulePositions   = "kafka-offsets-retention"
)

// blockedAfter is how old the oldest unfinished message of a partition may be
// before it is said to be blocked.
const blockedAfter = 10 * time.Minute

// Check looks at the topics of consumers and at how far their groups are. The
// oldest age of each partition is that of the message at the committed position,
// so that a blocked partition is seen also when its consumer is dead.
func (b *broker) Check(ctx context.Context, consumers []adapters.Consumer) ([]adapters.Finding, error) {
	consumer, err := b.newConsumer(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	defer func() { _ = consumer.Close() }()
	in := &inspection{b: b, reader: consumer}
	if minutes, ok := b.clusterSetting("offsets.retention.minutes"); ok {
		in.positions = time.Duration(minutes) * time.Minute
	}
	for _, c := range consumers {
		if err := in.consumer(ctx, c); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	return in.findings, nil
}

// inspection is one run of Check.
type inspection struct {
	b         *broker
	reader    sarama.Consumer
	positions time.Duration // that the brokers keep them; zero if not known
	findings  []adapters.Finding
}

func (in *inspection) add(s adapters.Severity, rule string, c adapters.Consumer, topic, fix, format string, args ...any) {
	in.findings = append(in.findings, adapters.Finding{
		Rule: rule, Severity: s, Consumer: c, Stream: topic, Message: fmt.Sprintf(format, args...), Fix: fix,
	})
}

func (in *inspection) consumer(ctx context.Context, c adapters.Consumer) error {
	b := in.b
	of := func(s adapters.Stream) string { return b.names.Of(s, c) }
	main, dlq, parking, suspect := c.Topic, of(adapters.StreamDeadLetter), of(adapters.StreamParking), of(adapters.StreamSuspect)
	streams := []string{main, dlq, parking, suspect}
	for _, tier := range b.tiers {
		streams = append(streams, b.tierName(c, tier))
	}
	found, err := b.topics.findAll(ctx, streams)
	if err != nil {
		return err
	}
	for _, name := range []string{main, dlq, parking, b.tierName(c, b.tiers[0])} {
		if _, ok := found[name]; !ok {
			in.add(adapters.SeverityError, ruleMissing, c, candidates(name)[0], "start the consumer once, which creates it, or create it by hand", "the topic does not exist")
		}
	}
	source, ok := found[main]
	if !ok {
		return nil
	}
	if err := in.settings(ctx, c, source, streams, found); err != nil {
		return err
	}
	if err := in.group(ctx, c, adapters.StreamMain, b.mainGroup(c), []known{source}); err != nil {
		return err
	}
	var tiers []known
	for _, tier := range b.tiers {
		if k, ok := found[b.tierName(c, tier)]; ok {
			tiers = append(tiers, k)
		}
	}
	for _, s := range []struct {
		stream adapters.Stream
		group  string
		topics []known
	}{
		{adapters.StreamRetry, of(adapters.StreamRetry), tiers},
		{adapters.StreamParking, parking, existing(found, parking)},
		{adapters.StreamSuspect, suspect, existing(found, suspect)},
		{adapters.StreamDeadLetter, drainGroup(dlq), existing(found, dlq)},
	} {
		if len(s.topics) == 0 {
			continue
		}
		if err := in.group(ctx, c, s.stream, s.group, s.topics); err != nil {
			return err
		}
	}
	return nil
}

func existing(found map[string]known, stream string) []known {
	if k, ok := found[stream]; ok {
		return []known{k}
	}
	return nil
}

// settings compares our topics with what they should be.
func (in *inspection) settings(ctx context.Context, c adapters.Consumer, source known, streams []string, found map[string]known) error {
	b := in.b
	var names []string
	for _, k := range found {
		names = append(names, k.topic)
	}
	all, err := b.topics.settings(ctx, names)
	if err != nil {
		return err
	}
	metadata, err := bounded(ctx, func() ([]*sarama.TopicMetadata, error) { return b.admin.DescribeTopics(names) })
	if err != nil {
		return err
	}
	replicas := map[string]int{}
	for _, m := range metadata {
		for _, p := range m.Partitions {
			replicas[m.Name] = max(replicas[m.Name], len(p.Replicas))
		}
	}
	longest, longestKept := "", time.Duration(0)
	for _, stream := range streams[1:] {
		k, ok := found[stream]
		if !ok {
			continue
		}
		have := all[k.topic]
		if kept := retentionOf(have); kept > longestKept {
			longest, longestKept = k.topic, kept
		}
		if err := wrongSetting(k.topic, have, all[source.topic]); err != nil {
			var wrong *TopicError
			if errors.As(err, &wrong) {
				rule := ruleSetting
				if wrong.Setting == "max.message.bytes" {
					rule = ruleSize
				}
				in.add(adapters.SeverityError, rule, c, k.topic, wrong.Hint, "%s is %s, and must be %s", wrong.Setting, wrong.Have, wrong.Want)
			}
		} else if own, src := number(have, "max.message.bytes"), number(all[source.topic], "max.message.bytes"); own > 0 && own < src+headRoom/4 {
			in.add(adapters.SeverityWarning, ruleSize, c, k.topic, "raise it by 128 KiB above the source's",
				"max.message.bytes is %d, and that of %s %d: evidence does not fit beside the largest messages", own, source.topic, src)
		}
		want, kind := b.cfg.RetryRetention, "waiting messages"
		if stream == b.names.Of(adapters.StreamDeadLetter, c) {
			want, kind = b.cfg.DeadLetterRetention, "dead letters"
		}
		if ms := number(have, "retention.ms"); ms > 0 && int64(ms) < want.Milliseconds() {
			in.add(adapters.SeverityWarning, ruleRetention, c, k.topic, "raise retention.ms, or lower the retention in the configuration",
				"%s are kept for %s, and the configuration says %s", kind, time.Duration(ms)*time.Millisecond, want)
		}
		if size := number(have, "retention.bytes"); size > 0 {
			in.add(adapters.SeverityError, ruleRetention, c, k.topic, "set retention.bytes to -1",
				"retention.bytes is %d: the oldest messages are deleted by size, whether or not anybody has read them", size)
		}
		if k.partitions < source.partitions {
			in.add(adapters.SeverityWarning, rulePartitions, c, k.topic, "add partitions",
				"it has %d partitions, and %s has %d: fewer members can share its work", k.partitions, source.topic, source.partitions)
		}
		if r, s := replicas[k.topic], replicas[source.topic]; r < s {
			in.add(adapters.SeverityWarning, ruleReplication, c, k.topic, "reassign its replicas", "it has %d replicas, and %s has %d", r, source.topic, s)
		}
	}
	if in.positions > 0 && longestKept > in.positions {
		kept, minutes := longestKept.String(), strconv.Itoa(int(longestKept/time.Minute))
		if longestKept == forEver {
			kept, minutes = "ever", "more"
		}
		in.add(adapters.SeverityWarning, rulePositions, c, longest,
			"set offsets.retention.minutes of the brokers to "+minutes+", or collect, and run the consumer, more often than positions expire",
			"messages are kept for %s, and positions of groups without members for %s: after that, what was finished is delivered, or collected, again",
			kept, in.positions)
	}
	return nil
}

const forEver = time.Duration(math.MaxInt64)

// retentionOf is how long a topic keeps messages; zero if that is not known.
func retentionOf(have map[string]string) time.Duration {
	ms := number(have, "retention.ms")
	if ms < 0 || ms > int(forEver/time.Millisecond) {
		return forEver
	}
	return time.Duration(ms) * time.Millisecond
}

func number(have map[string]string, key string) int {
	n, err := strconv.Atoi(have[key])
	if err != nil {
		return 0
	}
	return n
}

// group looks at how far a group is in its topics.
func (in *inspection) group(ctx context.Context, c adapters.Consumer, s adapters.Stream, group string, topics []known) error {
	b := in.b
	ask := map[string][]int32{}
	for _, k := range topics {
		ask[k.topic] = upTo(k.partitions)
	}
	positions, err := b.positions(ctx, group, ask)
	if err != nil {
		return err
	}
	// What an operator has taken out waits no more.
	var drained map[topicPartition]position
	if s != adapters.StreamMain && s != adapters.StreamDeadLetter {
		if drained, err = b.positions(ctx, drainGroup(group), ask); err != nil {
			return err
		}
	}
	active, err := b.isActive(ctx, group)
	if err != nil {
		return err
	}
	total := 0
	for _, k := range topics {
		left := 0
		for _, n := range ask[k.topic] {
			tp := topicPartition{k.topic, n}
			unfinished, oldest, err := in.partition(ctx, tp, k.id, positions[tp], drained[tp])
			if err != nil {
				return err
			}
			if unfinished == 0 {
				continue
			}
			left += unfinished
			age := time.Since(oldest).Truncate(time.Second)
			if s == adapters.StreamMain && !oldest.IsZero() && age >= blockedAfter {
				in.add(adapters.SeverityWarning, ruleBlocked, c, k.topic, "look at the consumer, at its log, and at the message at that offset",
					"the oldest unfinished message of partition %d, at offset %d, is %s old, and %d wait", n, max(positions[tp].offset, 0), age, unfinished)
			}
			if err := in.lapse(ctx, c, k, n, oldest); err != nil {
				return err
			}
		}
		total += left
		if s == adapters.StreamRetry && left > 0 {
			in.add(adapters.SeverityInfo, ruleWaiting, c, k.topic, "", "%s", counted(left, "message waits for its retry", "messages wait for their retry"))
		}
	}
	switch {
	case total == 0:
	case s == adapters.StreamMain:
		in.add(adapters.SeverityInfo, ruleLag, c, topics[0].topic, "", "%s not finished by group %q", counted(total, "message is", "messages are"), group)
	case s == adapters.StreamParking:
		in.add(adapters.SeverityInfo, ruleParked, c, topics[0].topic, "", "%s parked", counted(total, "message is", "messages are"))
	case s == adapters.StreamSuspect:
		in.add(adapters.SeverityWarning, ruleSuspects, c, topics[0].topic, "look for processes that end without a word",
			"%s suspected of ending a consumer", counted(total, "message is", "messages are"))
	case s == adapters.StreamDeadLetter:
		in.add(adapters.SeverityInfo, ruleDeadLetters, c, topics[0].topic, "collect them: spillway collect", "%s not collected", counted(total, "dead letter is", "dead letters are"))
	}
	if !active && total > 0 && s != adapters.StreamDeadLetter {
		in.add(adapters.SeverityError, ruleNobodyReads, c, topics[0].topic, "start the consumer",
			"%s, and group %q has no members", counted(total, "message waits", "messages wait"), group)
	}
	return nil
}

func counted[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// partition counts what a group has not finished, and nobody has drained, and
// says from when the oldest of it is.
func (in *inspection) partition(ctx context.Context, tp topicPartition, id uint64, pos, drained position) (n int, oldest time.Time, err error) {
	offset := func(at int64) (int64, error) {
		return bounded(ctx, func() (int64, error) { return in.b.client.GetOffset(tp.topic, tp.partition, at) })
	}
	begin, err := offset(sarama.OffsetOldest)
	if err != nil {
		return 0, oldest, err
	}
	end, err := offset(sarama.OffsetNewest)
	if err != nil {
		return 0, oldest, err
	}
	finished, _ := offsetsAt(pos, id, end)
	taken, _ := offsetsAt(drained, id, end)
	from, left := unfinished(begin, end, finished, taken)
	if from >= end {
		return 0, oldest, nil
	}
	oldest, ok, err := in.timestamp(ctx, tp, from)
	if err != nil || !ok {
		return 0, oldest, err // nothing but marks of transactions
	}
	return int(left), oldest, nil
}

// timestamp reads the message at an offset, or the first after it; ok is false if
// there is none.
func (in *inspection) timestamp(ctx context.Context, tp topicPartition, offset int64) (at time.Time, ok bool, err error) {
	pc, err := in.reader.ConsumePartition(tp.topic, tp.partition, offset)
	if err != nil {
		return at, false, err
	}
	defer func() { err = errors.Join(err, pc.Close()) }()
	idle := time.NewTimer(drainIdle)
	defer idle.Stop()
	select {
	case m := <-pc.Messages():
		if m != nil {
			return m.Timestamp, true, nil
		}
	case e := <-pc.Errors():
		if e != nil {
			return at, false, e
		}
	case <-idle.C:
	case <-ctx.Done():
		return at, false, ctx.Err()
	}
	return at, false, nil
}

// lapse warns of what the broker deletes soon.
func (in *inspection) lapse(ctx context.Context, c adapters.Consumer, k known, n int32, oldest time.Time) error {
	all, err := in.b.topics.settings(ctx, []string{k.topic})
	if err != nil {
		return err
	}
	ms := number(all[k.topic], "retention.ms")
	if ms <= 0 || oldest.IsZero() {
		return nil
	}
	retention := time.Duration(ms) * time.Millisecond
	if age := time.Since(oldest); age > retention*3/4 {
		in.add(adapters.SeverityError, ruleLapsing, c, k.topic, "collect or consume it, or raise retention.ms",
			"the oldest unfinished message of partition %d is %s old, and messages are kept for %s: it is lost soon",
			n, age.Truncate(time.Second), retention)
	}
	return nil
}

var _ adapters.Checker = (*broker)(nil)
