package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
)

const (
	// topicPoll is how often a reader looks for topics that other processes have
	// created, or that have more partitions than before.
	topicPoll = 5 * time.Second
	// coordination bounds each exchange with a coordinator.
	coordination = 10 * time.Second
	// minMetadata has room for who holds a partition.
	minMetadata = 64
	// shortest and longest pause after a failure.
	minPause, maxPause = 100 * time.Millisecond, 5 * time.Second
)

// reader is a member of a consumer group that reads one stream: a topic, or all
// tiers of retries. It implements sarama.ConsumerGroupHandler.
type reader struct {
	s       *subscription
	b       *broker
	stream  adapters.Stream
	group   string
	streams []string

	mu     sync.Mutex
	names  map[string]string // streams by topic
	shapes map[string]shape  // by topic
	parts  map[topicPartition]*partition
	member sarama.ConsumerGroupSession // nil between sessions

	flushing  chan struct{} // held during a commit
	kick      chan struct{} // commit now
	waiters   sync.Mutex    // guards attempted
	attempted chan struct{} // closed and replaced after each commit
	end       context.CancelFunc
	ended     chan struct{}
	unsaid    map[topicPartition][]uint64 // see testify
}

func newReader(s *subscription, stream adapters.Stream, group string, streams []string) *reader {
	return &reader{
		s: s, b: s.b, stream: stream, group: group, streams: streams,
		parts: map[topicPartition]*partition{}, flushing: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		attempted: make(chan struct{}),
	}
}

// run is a member of the group until the subscription closes.
func (r *reader) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-r.s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer r.abandon()
	pause := minPause
	for ctx.Err() == nil {
		began := time.Now()
		err := r.join(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = minPause
			continue
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		r.b.logger.Warn("kafka: reading is interrupted", "topic", r.s.c.Topic, "group", r.group, "pause", pause, "error", err)
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// join consumes with a client of its own until ctx ends or it fails.
func (r *reader) join(ctx context.Context) (err error) {
	topics, err := r.lookUp(ctx)
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		if r.stream == adapters.StreamMain {
			return r.b.ensure(ctx, r.s.c) // it was deleted
		}
		r.awaitChange(ctx, nil)
		return nil
	}
	client, err := boundedOr(ctx, func() (sarama.Client, error) { return sarama.NewClient(r.b.addrs, r.b.sarama) },
		func(c sarama.Client) { _ = c.Close() })
	if err != nil {
		return err
	}
	defer func() {
		if e := client.Close(); e != nil && ctx.Err() == nil {
			err = errors.Join(err, e)
		}
	}()
	group, err := sarama.NewConsumerGroupFromClient(r.group, client)
	if err != nil {
		return err
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for err := range group.Errors() {
			r.b.logger.Warn("kafka: consumer group", "topic", r.s.c.Topic, "group", r.group, "error", err)
		}
	}()
	defer func() {
		if e := group.Close(); e != nil && ctx.Err() == nil {
			err = errors.Join(err, e)
		}
		<-logged
	}()
	var handler sarama.ConsumerGroupHandler = r
	if t := r.b.cfg.Tracer; t != nil && r.stream == adapters.StreamMain {
		handler = t.WrapConsumerGroupHandler(handler)
	}
	for ctx.Err() == nil {
		if topics, err = r.lookUp(ctx); err != nil || len(topics) == 0 {
			return err
		}
		awaitLeaders(ctx, client, topics)
		session, leave := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			defer leave()
			r.awaitChange(session, topics)
		}()
		err := group.Consume(session, slices.Sorted(maps.Keys(topics)), handler)
		leave()
		<-watched
		r.testify()
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitLeaders waits a while for the leaders of new topics: sarama looks for one
// that is missing every five seconds only.
func awaitLeaders(ctx context.Context, client sarama.Client, topics map[string]shape) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		missing := false
		for topic, shape := range topics {
			for n := range shape.partitions {
				missing = missing || client.PartitionNotReadable(topic, n)
			}
		}
		if !missing {
			return
		}
		_, _ = bounded(ctx, func() (struct{}, error) {
			return struct{}{}, client.RefreshMetadata(slices.Collect(maps.Keys(topics))...)
		})
		sleep(ctx, 20*time.Millisecond)
	}
}

// lookUp returns the topics that exist now, with their partitions.
func (r *reader) lookUp(ctx context.Context) (map[string]shape, error) {
	ctx, cancel := context.WithTimeout(ctx, coordination)
	defer cancel()
	found, err := r.b.topics.findAll(ctx, r.streams)
	if err != nil {
		return nil, err
	}
	topics, names := map[string]shape{}, map[string]string{}
	for stream, k := range found {
		topics[k.topic], names[k.topic] = k.shape, stream
	}
	r.mu.Lock()
	r.names, r.shapes = names, topics
	r.mu.Unlock()
	return topics, nil
}

// awaitChange returns when the topics are others than those given.
func (r *reader) awaitChange(ctx context.Context, topics map[string]shape) {
	poll := time.NewTicker(topicPoll)
	defer poll.Stop()
	for {
		change := r.b.topics.change()
		switch now, err := r.lookUp(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			sleep(ctx, maxPause/10)
			continue
		case !maps.Equal(now, topics):
			return
		}
		select {
		case <-change:
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// Setup begins a session: it reads how far the group is in each partition, and
// commits that this process now holds it, before anything is handed out.
func (r *reader) Setup(sess sarama.ConsumerGroupSession) error {
	ctx, cancel := context.WithTimeout(sess.Context(), coordination)
	defer cancel()
	claims := sess.Claims()
	positions, err := r.b.positions(ctx, r.group, claims)
	if err != nil {
		return err
	}
	r.mu.Lock()
	for tp, p := range r.parts {
		if pos, ok := positions[tp]; !ok || !p.resume(pos, r.shapes[tp.topic].id) {
			p.lose()
			delete(r.parts, tp)
		}
	}
	var fresh []*partition
	for tp := range positions {
		if r.parts[tp] == nil {
			p := newPartition(r, tp, r.names[tp.topic], r.shapes[tp.topic].id)
			r.parts[tp] = p
			fresh = append(fresh, p)
		}
	}
	r.member = sess
	r.mu.Unlock()
	if err := each(placesAtOnce, fresh, func(p *partition) error { return p.load(ctx, positions[p.topicPartition]) }); err != nil {
		return err
	}
	if err := r.loadPlaces(sess.Context(), fresh); err != nil {
		return err
	}
	ctx, again := context.WithTimeout(sess.Context(), coordination)
	defer again()
	r.hear(ctx)
	if err := r.refreshDrained(ctx, nil); err != nil {
		return err
	}
	if err := r.flush(ctx, false); err != nil {
		return err
	}
	for _, p := range fresh {
		if p.begin >= 0 { // the one call is for earlier offsets, the other for later ones
			sess.ResetOffset(p.topic, p.partition, p.begin, "")
			sess.MarkOffset(p.topic, p.partition, p.begin, "")
		}
	}
	ctx, r.end = context.WithCancel(context.WithoutCancel(sess.Context()))
	r.ended = make(chan struct{})
	go func() {
		defer close(r.ended)
		r.commits(ctx)
	}()
	return nil
}

// ConsumeClaim reads one partition until the session ends, and then waits a
// while for its handlers.
func (r *reader) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	r.mu.Lock()
	p := r.parts[topicPartition{claim.Topic(), claim.Partition()}]
	r.mu.Unlock()
	if p == nil {
		return fmt.Errorf("partition %d of topic %q was not announced", claim.Partition(), claim.Topic())
	}
	p.run(sess.Context(), claim)
	return nil
}

// Cleanup ends a session: it commits, and says that nothing crashed.
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error {
	if r.end != nil {
		r.end()
		<-r.ended
		r.end = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxRevokeGrace)
	defer cancel()
	err := r.flush(ctx, true)
	if err != nil {
		r.cutOff() // others have to believe that this process has crashed
	}
	closing := isClosed(r.s.closing)
	defer r.tell()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.member = nil
	for tp, p := range r.parts {
		if closing || !p.suspend() {
			p.lose()
			delete(r.parts, tp)
		}
	}
	return err
}

// abandon gives up what is still unsettled.
func (r *reader) abandon() {
	defer r.tell()
	r.testify()
	r.mu.Lock()
	defer r.mu.Unlock()
	for tp, p := range r.parts {
		p.lose()
		delete(r.parts, tp)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// commits commits at intervals, and when somebody waits for it. It also looks for
// what operators have drained.
func (r *reader) commits(ctx context.Context) {
	tick := time.NewTicker(r.b.cfg.CommitInterval)
	defer tick.Stop()
	// Drains rely on being noticed within drainGuard, however rarely one commits.
	look := time.NewTicker(min(r.b.cfg.CommitInterval, time.Second))
	defer look.Stop()
	for {
		step := func(ctx context.Context) error { return r.flush(ctx, false) }
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		case <-tick.C:
		case <-look.C:
			step = func(ctx context.Context) error {
				r.hear(ctx)
				return r.refreshDrained(ctx, (*partition).drainable)
			}
		}
		short, cancel := context.WithTimeout(ctx, coordination)
		err := step(short)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.b.logger.Warn("kafka: exchanging positions failed: what was finished since the last commit is delivered again if this process ends now, and so may be what operators drain",
				"topic", r.s.c.Topic, "group", r.group, "error", err)
			sleep(ctx, minPause)
		}
	}
}

// flush commits what has changed. With final it says that this process lets go.
func (r *reader) flush(ctx context.Context, final bool) error {
	for {
		err := r.flushOnce(ctx, final)
		if most := r.b.metadataMax.Load(); !errors.Is(err, sarama.ErrOffsetMetadataTooLarge) || most == 0 {
			return err
		} else if most /= 2; most >= minMetadata {
			r.b.littleMetadata(int(most)) // it did not say how much it takes
		} else {
			r.b.littleMetadata(0)
		}
	}
}

func (r *reader) flushOnce(ctx context.Context, final bool) error {
	select {
	case r.flushing <- struct{}{}:
		defer func() { <-r.flushing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	member := r.member
	parts := slices.Collect(maps.Values(r.parts))
	r.mu.Unlock()
	if member == nil {
		return nil
	}
	what := map[topicPartition]position{}
	versions := map[*partition]uint64{}
	for _, p := range parts {
		if pos, version, ok := p.snapshot(final); ok {
			what[p.topicPartition], versions[p] = pos, version
		}
	}
	err := r.b.commit(ctx, r.group, member.MemberID(), member.GenerationID(), what)
	if err == nil {
		for p, version := range versions {
			p.committed(what[p.topicPartition], version)
		}
	}
	r.tell()
	return err
}

// tell wakes those who wait for a commit.
func (r *reader) tell() {
	r.waiters.Lock()
	defer r.waiters.Unlock()
	close(r.attempted)
	r.attempted = make(chan struct{})
}

// awaitCommit returns when a version of p is committed; it reports false when
// the wait ended otherwise.
func (r *reader) awaitCommit(ctx context.Context, stop <-chan struct{}, p *partition, version uint64) bool {
	for {
		r.waiters.Lock()
		attempted := r.attempted
		r.waiters.Unlock()
		switch ok, state := p.isCommitted(version); {
		case ok:
			return true
		case state != live:
			return false
		}
		select {
		case r.kick <- struct{}{}:
		default:
		}
		select {
		case <-attempted:
		case <-ctx.Done():
			return false
		case <-stop:
			return false
		}
	}
}

// refreshDrained reads what operators have taken out of our own topics.
func (r *reader) refreshDrained(ctx context.Context, of func(*partition) bool) error {
	if r.stream == adapters.StreamMain {
		return nil
	}
	r.mu.Lock()
	parts := slices.Collect(maps.Values(r.parts))
	r.mu.Unlock()
	ask := map[string][]int32{}
	for _, p := range parts {
		if of == nil || of(p) {
			ask[p.topic] = append(ask[p.topic], p.partition)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	positions, err := r.b.positions(ctx, drainGroup(r.group), ask)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if pos, ok := positions[p.topicPartition]; ok {
			if err := p.drain(ctx, pos); err != nil {
				return err
			}
		}
	}
	return nil
}
