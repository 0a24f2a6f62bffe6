package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
)

const (
	maxTopicName = 249
	// headRoom is what our topics take above the size limit of their source: room
	// for evidence.
	headRoom = 128 << 10
	// defaultMessageMax is Kafka's own default of message.max.bytes.
	defaultMessageMax = 1_048_588
	// topicAge is how long what is known of a topic is believed.
	topicAge = 3 * time.Second
)

// TopicError means that a topic on the broker is not what this configuration
// needs.
type TopicError struct {
	Topic   string
	Setting string // that is wrong; empty when the topic is missing
	Have    string
	Want    string
	Hint    string // the way out
}

func (e *TopicError) Error() string {
	if e.Setting == "" {
		return fmt.Sprintf("topic %q does not exist: %s", e.Topic, e.Hint)
	}
	return fmt.Sprintf("topic %q: %s is %s on the broker, and must be %s: %s", e.Topic, e.Setting, e.Have, e.Want, e.Hint)
}

// topics knows which topic on the broker a stream is, and creates those that
// are missing. Safe for concurrent use.
type topics struct {
	cfg   Config
	admin sarama.ClusterAdmin

	mu      sync.Mutex
	known   map[string]known
	changed chan struct{} // closed and replaced when this process creates one
}

type known struct {
	topic string
	shape
	at time.Time
}

// shape is what a reader must know of a topic. One that is deleted and created
// anew has another id, although its name and the positions in it stay.
type shape struct {
	partitions int32
	id         uint64 // zero where the broker is too old to say
}

// spec is how a topic is created.
type spec struct {
	partitions int32 // -1 means the cluster's default
	config     map[string]string
}

func newTopics(cfg Config, admin sarama.ClusterAdmin) *topics {
	return &topics{cfg: cfg, admin: admin, known: map[string]known{}, changed: make(chan struct{})}
}

// candidates are the topics that a stream may be, by preference: its name, and
// the name that is used when Kafka cannot have that one. It cannot where the
// name is too long, has other characters than Kafka allows, or differs from
// that of another topic in '.' and '_' only.
func candidates(stream string) []string {
	if legal(stream) {
		return []string{stream, substitute(stream)}
	}
	return []string{substitute(stream)}
}

func legal(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxTopicName && !strings.ContainsFunc(name, illegal)
}

func illegal(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

// substitute makes a legal name of any: no two have the same.
func substitute(stream string) string {
	sum := sha256.Sum256([]byte(stream))
	readable := strings.Map(func(r rune) rune {
		if illegal(r) {
			return '-'
		}
		return r
	}, stream)
	suffix := "-" + hex.EncodeToString(sum[:8])
	return readable[:min(len(readable), maxTopicName-len(suffix))] + suffix
}

// find returns the topic that a stream is; ok is false when there is none.
func (t *topics) find(ctx context.Context, stream string) (k known, ok bool, err error) {
	found, err := t.findAll(ctx, []string{stream})
	if err != nil {
		return known{}, false, err
	}
	k, ok = found[stream]
	return k, ok, nil
}

// findAll returns the topics of those streams that exist.
func (t *topics) findAll(ctx context.Context, streams []string) (map[string]known, error) {
	found := map[string]known{}
	var ask []string
	t.mu.Lock()
	for _, s := range streams {
		if k, ok := t.known[s]; ok && time.Since(k.at) < topicAge {
			found[s] = k
		} else {
			ask = append(ask, candidates(s)...)
		}
	}
	t.mu.Unlock()
	if len(ask) == 0 {
		return found, nil
	}
	metadata, err := bounded(ctx, func() ([]*sarama.TopicMetadata, error) { return t.admin.DescribeTopics(ask) })
	if err != nil {
		return nil, err
	}
	have := map[string]shape{}
	for _, m := range metadata {
		switch m.Err {
		case sarama.ErrNoError, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable:
			have[m.Name] = shape{int32(len(m.Partitions)), binary.LittleEndian.Uint64(m.Uuid[:8])}
		case sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic:
		default:
			return nil, fmt.Errorf("topic %q: %w", m.Name, m.Err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range streams {
		if _, ok := found[s]; ok {
			continue
		}
		delete(t.known, s)
		for _, topic := range candidates(s) {
			if have := have[topic]; have.partitions > 0 {
				t.known[s] = known{topic, have, time.Now()}
				found[s] = t.known[s]
				break
			}
		}
	}
	return found, nil
}

// forget has a stream looked up anew.
func (t *topics) forget(stream string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, stream)
}

// change is closed when this process creates a topic.
func (t *topics) change() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// ensure returns the topic of a stream, which it creates if there is none. It
// believes what it knows for as long as nobody forgets it.
func (t *topics) ensure(ctx context.Context, stream string, of func(context.Context) (spec, error)) (string, error) {
	k, err := t.ensureKnown(ctx, stream, of)
	return k.topic, err
}

func (t *topics) ensureKnown(ctx context.Context, stream string, of func(context.Context) (spec, error)) (known, error) {
	t.mu.Lock()
	k, ok := t.known[stream]
	t.mu.Unlock()
	if ok {
		return k, nil
	}
	k, ok, err := t.find(ctx, stream)
	if err != nil || ok {
		return k, err
	}
	if t.cfg.VerifyOnly {
		return known{}, &TopicError{Topic: candidates(stream)[0], Hint: "create it, or run once without Config.VerifyOnly"}
	}
	s, err := of(ctx)
	if err != nil {
		return known{}, err
	}
	if err := t.create(ctx, stream, s); err != nil {
		return known{}, err
	}
	k, ok, err = t.find(ctx, stream)
	if err == nil && !ok {
		err = &TopicError{Topic: stream, Hint: "it was there a moment ago"}
	}
	return k, err
}

func (t *topics) create(ctx context.Context, stream string, s spec) error {
	detail := &sarama.TopicDetail{NumPartitions: s.partitions, ReplicationFactor: -1, ConfigEntries: map[string]*string{}}
	if t.cfg.Replication > 0 {
		detail.ReplicationFactor = int16(t.cfg.Replication)
	}
	for key, value := range s.config {
		detail.ConfigEntries[key] = &value
	}
	names := candidates(stream)
	for i, topic := range names {
		_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, t.admin.CreateTopic(topic, detail, false) })
		switch {
		case err == nil, errors.Is(err, sarama.ErrTopicAlreadyExists):
		case errors.Is(err, sarama.ErrInvalidTopic) && i+1 < len(names):
			continue // it collides: see candidates
		case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrClusterAuthorizationFailed):
			return fmt.Errorf("create topic %q: the user lacks a permission, see the package documentation: %w", topic, err)
		default:
			return fmt.Errorf("create topic %q: %w", topic, err)
		}
		return t.await(ctx, stream)
	}
	return fmt.Errorf("create topic %q: %w", stream, sarama.ErrInvalidTopic)
}

// await waits until the brokers know a new topic.
func (t *topics) await(ctx context.Context, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, ok, err := t.find(ctx, stream); ok {
			t.mu.Lock()
			close(t.changed)
			t.changed = make(chan struct{})
			t.mu.Unlock()
			return nil
		} else if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("topic of %q was created, and is not to be seen: %w", stream, ctx.Err())
		}
	}
}

// settings returns the configuration of topics.
func (t *topics) settings(ctx context.Context, names []string) (map[string]map[string]string, error) {
	var resources []*sarama.ConfigResource
	for _, name := range names {
		resources = append(resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: name})
	}
	results, err := bounded(ctx, func() ([]*sarama.ConfigResourceResult, error) {
		return t.admin.DescribeConfigs(resources, sarama.DescribeConfigsOptions{})
	})
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]string{}
	for _, r := range results {
		if r.ErrorCode != sarama.ErrNoError {
			return nil, fmt.Errorf("settings of topic %q: %w", r.Name, r.ErrorCode)
		}
		own := map[string]string{}
		for _, e := range r.Configs {
			own[e.Name] = e.Value
		}
		all[r.Name] = own
	}
	return all, nil
}

// own is how one of our topics is created for a source.
func (b *broker) ownSpec(c adapters.Consumer, s adapters.Stream) func(context.Context) (spec, error) {
	return func(ctx context.Context) (spec, error) {
		source, ok, err := b.topics.find(ctx, c.Topic)
		if err != nil {
			return spec{}, err
		}
		made := spec{partitions: -1, config: map[string]string{"cleanup.policy": "delete"}}
		limit := b.messageMax
		if ok {
			made.partitions = source.partitions
			if all, err := b.topics.settings(ctx, []string{source.topic}); err == nil {
				if n, err := strconv.Atoi(all[source.topic]["max.message.bytes"]); err == nil {
					limit = n
				}
			}
		}
		if b.cfg.Partitions > 0 {
			made.partitions = int32(b.cfg.Partitions)
		}
		retention := b.cfg.RetryRetention
		if s == adapters.StreamDeadLetter {
			retention = b.cfg.DeadLetterRetention
		}
		made.config["retention.ms"] = strconv.FormatInt(retention.Milliseconds(), 10)
		made.config["max.message.bytes"] = strconv.Itoa(limit + headRoom)
		return made, nil
	}
}

// sourceSpec is how a topic of the application is created.
func (b *broker) sourceSpec() func(context.Context) (spec, error) {
	return func(context.Context) (spec, error) {
		s := spec{partitions: -1}
		if b.cfg.Partitions > 0 {
			s.partitions = int32(b.cfg.Partitions)
		}
		return s, nil
	}
}

// ensure creates or verifies what c needs from the beginning. Further tiers, and
// the suspects' topic, are created when they are first used.
func (b *broker) ensure(ctx context.Context, c adapters.Consumer) error {
	source, err := b.topics.ensure(ctx, c.Topic, b.sourceSpec())
	if err != nil {
		return err
	}
	own := map[adapters.Stream]string{
		adapters.StreamDeadLetter: b.names.Of(adapters.StreamDeadLetter, c),
		adapters.StreamParking:    b.names.Of(adapters.StreamParking, c),
		adapters.StreamRetry:      b.tierName(c, b.tiers[0]),
	}
	streams := map[string]adapters.Stream{}
	topics := []string{source}
	for s, name := range own {
		topic, err := b.topics.ensure(ctx, name, b.ownSpec(c, s))
		if err != nil {
			return err
		}
		streams[topic] = s
		topics = append(topics, topic)
	}
	if c.Retry == adapters.RetryInPlace {
		if _, err := b.topics.ensure(ctx, b.placesName(c), b.placesSpec(c)); err != nil {
			return err
		}
	}
	if err := b.verify(ctx, source, topics, streams); err != nil {
		return err
	}
	if b.cfg.Start == StartNewest {
		return b.startAtEnd(ctx, c, source)
	}
	return nil
}

// verify finds settings of our topics with which messages get lost or stuck. A
// user who may not see settings is not kept from running.
func (b *broker) verify(ctx context.Context, source string, topics []string, streams map[string]adapters.Stream) error {
	all, err := b.topics.settings(ctx, topics)
	if err != nil {
		b.logger.Warn("kafka: cannot read the settings of topics, so they are not verified", "topics", topics, "error", err)
		return nil
	}
	var errs []error
	for _, topic := range slices.Sorted(maps.Keys(streams)) {
		errs = append(errs, wrongSetting(topic, all[topic], all[source]))
	}
	return errors.Join(errs...)
}

// wrongSetting is the first setting of one of our topics that loses messages.
func wrongSetting(topic string, have, source map[string]string) error {
	if strings.Contains(have["cleanup.policy"], "compact") {
		return &TopicError{Topic: topic, Setting: "cleanup.policy", Have: have["cleanup.policy"], Want: "delete",
			Hint: "compaction drops all but the last message of a key"}
	}
	own, err1 := strconv.Atoi(have["max.message.bytes"])
	src, err2 := strconv.Atoi(source["max.message.bytes"])
	if err1 == nil && err2 == nil && own < src {
		return &TopicError{Topic: topic, Setting: "max.message.bytes", Have: strconv.Itoa(own), Want: fmt.Sprintf("at least %d", src+headRoom),
			Hint: "messages of the source do not fit it; alter it, with room for evidence"}
	}
	return nil
}

// startAtEnd commits the ends of a topic for a group that has never read it. Where
// the group reads other topics already, only its members may commit: then the ends
// are noted for whoever of this process reads the topic first.
func (b *broker) startAtEnd(ctx context.Context, c adapters.Consumer, source string) error {
	k, ok, err := b.topics.find(ctx, c.Topic)
	if err != nil || !ok {
		return err
	}
	group := b.mainGroup(c)
	positions, err := b.positions(ctx, group, map[string][]int32{source: upTo(k.partitions)})
	if err != nil {
		return err
	}
	ends := map[topicPartition]position{}
	for tp, p := range positions {
		if p.offset >= 0 {
			return nil // it has read before: what has no position is new
		}
		end, err := bounded(ctx, func() (int64, error) { return b.client.GetOffset(tp.topic, tp.partition, sarama.OffsetNewest) })
		if err != nil {
			return err
		}
		ends[tp] = position{offset: end}
	}
	err = b.commit(ctx, group, "", sarama.GroupGenerationUndefined, ends)
	if errors.Is(err, sarama.ErrUnknownMemberId) || errors.Is(err, sarama.ErrIllegalGeneration) || errors.Is(err, sarama.ErrRebalanceInProgress) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for tp, end := range ends {
			key := start{group, tp, k.id}
			if _, noted := b.starts[key]; !noted {
				b.starts[key] = end.offset
			}
		}
		return nil
	}
	return err
}

// start is where a group is to begin to read a partition of a topic with this id.
type start struct {
	group string
	topicPartition
	id uint64
}

// startOf returns what startAtEnd has noted: once, where a topic cannot be told from
// a later one of its name.
func (b *broker) startOf(key start) (offset int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	offset, ok = b.starts[key]
	if key.id == 0 {
		delete(b.starts, key)
	}
	return offset, ok
}

func upTo(n int32) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// bounded calls what knows no context.
func bounded[T any](ctx context.Context, call func() (T, error)) (T, error) {
	return boundedOr(ctx, call, func(T) {})
}

// boundedOr calls undo when the result comes after the end of ctx.
func boundedOr[T any](ctx context.Context, call func() (T, error), undo func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := call()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				undo(r.v)
			}
		}()
		var zero T
		return zero, ctx.Err()
	}
}
