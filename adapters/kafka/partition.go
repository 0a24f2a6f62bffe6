package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/retrytopic"
)

const (
	// carefulOut bounds what a careful partition has handed out, and carefulAhead
	// what it has committed beyond that: all of it must fit the metadata.
	carefulOut   = 64
	carefulAhead = 48
	// exactFrom is how many crashes make a message worth a commit of its own: what
	// is committed ahead, and not handed out, is counted without cause.
	exactFrom = 2
	// convictFrom is how many crashes make the next hand-out of a suspect its verdict.
	convictFrom = 3
)

// errLost means that the broker delivers a message again.
var errLost = fmt.Errorf("%w: its partition was given to another member, which delivers it again", adapters.ErrClosed)

type state int

const (
	live      state = iota
	suspended       // between two sessions: it may come back
	lost
)

// entry is a message that was read and is not finished.
type entry struct {
	msg     *sarama.ConsumerMessage
	due     time.Time
	size    int
	lane    uint64
	laned   bool
	returns int
	count   int   // of its deliveries, when it was handed out last
	again   *kept // handed off in place, and not yet acknowledged
	kept    *kept // has waited, or waits, in place
}

// partition is one partition while this process has it.
type partition struct {
	topicPartition
	r      *reader
	stream string // its name for us
	id     uint64 // of the topic
	begin  int64  // where to read from instead of the committed position, if not negative
	wake   chan struct{}

	queued atomic.Bool   // for its turn
	turn   chan struct{} // a slot for run, when partition is careful

	mu       sync.Mutex
	state    state
	reading  bool          // run runs
	waiting  bool          // until something is settled: run does
	resolved chan struct{} // closed at the end of suspended
	offsets  *retrytopic.Offsets
	drained  *retrytopic.Offsets        // by operators
	drainPos position                   // that drained is of
	window   *retrytopic.Window[*entry] // can be handed out when due
	lanes    map[uint64][]*entry        // behind another message of their key
	out      map[int64]*entry           // handed out, not settled
	carried  map[int64]bool             // out since an earlier session
	held     int                        // entries in window, lanes and out
	bytes    int                        // of them
	full     bool                       // nothing more is read: run says so
	unplaced bool                       // where the log begins is known with the first message
	late     time.Time                  // of the last warning
	inPlace  bool
	kept     map[int64]*kept // of messages not yet read

	// What deliveries counts crashes by.
	careful bool     // commit what is handed out before it is
	ahead   []*entry // committed, to be handed out next
	until   int64
	blamed  int64 // offsets below it may have been in a process that crashed
	trials  map[int64]retrytopic.Trial
	accused []uint64 // owners that may be heard of again: see accuse
	// blamedBy is the bit of the owner because of whom blamed is.
	blamedBy uint8
	verdicts time.Time // those with convictFrom crashes wait until then

	version  uint64 // of all that is committed
	stored   uint64 // the version that is
	position position
}

func newPartition(r *reader, tp topicPartition, stream string, id uint64) *partition {
	return &partition{
		topicPartition: tp, r: r, stream: stream, id: id, begin: -1, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		offsets: retrytopic.NewOffsets(0),
		window:  retrytopic.NewWindow[*entry](r.b.cfg.Window, r.b.cfg.WindowBytes),
		lanes:   map[uint64][]*entry{}, out: map[int64]*entry{}, trials: map[int64]retrytopic.Trial{},
		careful: r.stream == adapters.StreamSuspect, version: 1,
		inPlace: r.stream == adapters.StreamMain && r.s.c.Retry == adapters.RetryInPlace, kept: map[int64]*kept{},
	}
}

// another reports that two ids are those of two topics.
func another(a, b uint64) bool { return a != 0 && b != 0 && a != b }

// load begins where the group has left off.
func (p *partition) load(ctx context.Context, pos position) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.place(ctx, pos)
}

// place finds out what is finished. The lock is held.
func (p *partition) place(ctx context.Context, pos position) error {
	p.position = pos
	oldest, end, err := p.bounds(ctx)
	if err != nil {
		return err
	}
	progress, err := retrytopic.DecodeProgress(pos.offset, pos.metadata)
	switch {
	case pos.offset < 0:
		p.offsets = retrytopic.NewOffsets(oldest)
		if p.r.stream != adapters.StreamMain {
			return nil
		}
		if noted, ok := p.r.b.startOf(start{p.r.group, p.topicPartition, p.id}); ok && noted <= end {
			p.begin, p.offsets = max(noted, oldest), retrytopic.NewOffsets(max(noted, oldest))
		}
		return nil
	case err == nil && another(progress.Topic, p.id), pos.offset > end:
		p.r.b.logger.Warn("kafka: a position is not of this topic, which was deleted and created anew, or cut: it is read from its beginning",
			"topic", p.topic, "partition", p.partition, "position", pos.offset, "oldest", oldest, "end", end)
		p.begin, p.offsets = oldest, retrytopic.NewOffsets(oldest)
		return nil
	case pos.offset < oldest:
		p.begin = oldest // and what is finished above it stays so
		p.r.b.logger.Warn("kafka: messages were deleted before they were finished, by the retention of their topic or by somebody",
			"topic", p.topic, "partition", p.partition, "from", pos.offset, "to", oldest)
	}
	if err != nil { // committed by another client
		p.offsets = retrytopic.NewOffsets(pos.offset)
		return nil
	}
	p.offsets = progress.Offsets
	crashed := progress.Running && !p.r.b.isMe(progress.Owner)
	p.accused = progress.Accused
	var by uint8
	if crashed {
		by = p.accuse(progress)
	}
	for _, t := range progress.Trials {
		if t.Out && crashed {
			t.Crashes++
			t.By |= by
		}
		if t.Out = false; t.Crashes > 0 {
			p.trials[t.Offset] = t
		}
	}
	p.blamed, p.blamedBy, p.until = progress.Blamed, progress.BlamedBy, progress.Until
	if len(p.accused) > 0 {
		p.verdicts = time.Now().Add(p.r.b.sarama.Consumer.Group.Session.Timeout)
	}
	if p.r.stream != adapters.StreamSuspect {
		p.careful = crashed || len(p.trials) > 0 || p.until > 0
	}
	if !crashed {
		return nil
	}
	p.until = end
	if !progress.Careful {
		p.blamed, p.blamedBy = min(end, pos.offset+retrytopic.MaxSpan), by
	}
	p.r.b.logger.Warn("kafka: the process that held a partition has ended without letting go, or is not heard of: what it may have been handling is watched",
		"topic", p.topic, "partition", p.partition, "offset", pos.offset)
	return nil
}

// bounds are the oldest offset and the end.
func (p *partition) bounds(ctx context.Context) (oldest, end int64, err error) {
	if oldest, err = p.offsetAt(ctx, sarama.OffsetOldest); err == nil {
		end, err = p.offsetAt(ctx, sarama.OffsetNewest)
	}
	return oldest, end, err
}

func (p *partition) offsetAt(ctx context.Context, at int64) (int64, error) {
	offset, err := bounded(ctx, func() (int64, error) { return p.r.b.client.GetOffset(p.topic, p.partition, at) })
	if err != nil {
		return 0, fmt.Errorf("bounds of partition %d of topic %q: %w", p.partition, p.topic, err)
	}
	return offset, nil
}

// snapshot is what to commit; ok is false when nothing has changed.
func (p *partition) snapshot(final bool) (pos position, version uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != live || !final && p.stored == p.version {
		return position{}, 0, false
	}
	progress := retrytopic.Progress{Offsets: p.offsets, Owner: p.r.b.owner(), Topic: p.id, Running: !final, Careful: p.careful}
	if p.careful {
		progress.Blamed, progress.BlamedBy, progress.Until = p.blamed, p.blamedBy, p.until
		progress.Accused = p.accused
	}
	for _, t := range p.trials {
		if final {
			t.Out = false
		}
		if t.Out || t.Crashes > 0 {
			progress.Trials = append(progress.Trials, t)
		}
	}
	slices.SortFunc(progress.Trials, func(a, b retrytopic.Trial) int { return int(a.Offset - b.Offset) })
	return position{p.offsets.Mark(), progress.EncodeWithin(int(p.r.b.metadataMax.Load()))}, p.version, true
}

func (p *partition) committed(pos position, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.position, p.stored = pos, version
}

func (p *partition) isCommitted(version uint64) (bool, state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored >= version, p.state
}

// suspend keeps what is handed out beyond the session, and reports false when
// that is nothing.
func (p *partition) suspend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == suspended {
		return true // the session did not begin
	}
	if len(p.out) == 0 || p.state == lost {
		return false
	}
	p.state, p.resolved = suspended, make(chan struct{})
	return true
}

// resume goes on with what is handed out, if nobody else has committed
// meanwhile. What was only read is read again.
func (p *partition) resume(pos position, id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != suspended || pos != p.position || id != p.id {
		return false
	}
	p.state = live
	p.version++
	p.window.Remove(func(i retrytopic.Item[*entry]) bool {
		if k := i.Value.kept; k != nil {
			p.kept[i.Seq] = k
		}
		return true
	})
	p.window = retrytopic.NewWindow[*entry](p.r.b.cfg.Window, p.r.b.cfg.WindowBytes)
	for _, behind := range p.lanes {
		for _, e := range behind {
			if e.kept != nil {
				p.kept[e.msg.Offset] = e.kept
			}
		}
	}
	clear(p.lanes)
	p.carried, p.held, p.bytes = map[int64]bool{}, 0, 0
	for offset, e := range p.out {
		p.carried[offset] = true
		p.held++
		p.bytes += e.size
		if e.laned {
			p.lanes[e.lane] = nil
		}
	}
	close(p.resolved)
	return true
}

// lose fails what is handed out.
func (p *partition) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == suspended {
		close(p.resolved)
	}
	p.state = lost // what is out stays known by its place until it is settled
}

// hold returns with the lock held when it is known whose partition it is; with an
// error, and without the lock, if it is not this process's any more.
func (p *partition) hold(ctx context.Context) error {
	p.mu.Lock()
	for p.state == suspended {
		resolved := p.resolved
		p.mu.Unlock()
		select {
		case <-resolved:
		case <-ctx.Done():
			return errors.Join(errLost, ctx.Err())
		}
		p.mu.Lock()
	}
	if p.state == lost {
		p.mu.Unlock()
		return errLost
	}
	return nil
}

// drainable reports that something could be drained.
func (p *partition) drainable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held > len(p.out)
}

// drain notes what operators have taken.
func (p *partition) drain(ctx context.Context, pos position) error {
	p.mu.Lock()
	same, read := pos == p.drainPos, p.offsets.Mark()+int64(p.offsets.Span())
	p.mu.Unlock()
	if pos.offset < 0 || same {
		return nil
	}
	end := read
	if pos.offset > read {
		var err error
		if end, err = p.offsetAt(ctx, sarama.OffsetNewest); err != nil {
			return err
		}
	}
	taken, ok := offsetsAt(pos, p.id, end)
	if !ok {
		p.r.b.logger.Warn("kafka: the position of drains is not of this topic, which was deleted and created anew, or cut: nothing of it was drained",
			"topic", p.topic, "partition", p.partition, "position", pos.offset, "end", end)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.rouse() // there may be room again
	p.drained, p.drainPos = taken, pos
	p.window.Remove(func(i retrytopic.Item[*entry]) bool {
		if !p.drained.Finished(i.Seq) {
			return false
		}
		p.held--
		p.bytes -= i.Value.size
		p.finish(i.Seq)
		return true
	})
	return nil
}

// finish notes that an offset is done with. The lock is held.
func (p *partition) finish(offset int64) {
	p.offsets.Finish(offset)
	delete(p.trials, offset)
	p.version++
	if p.careful && p.r.stream != adapters.StreamSuspect && len(p.trials) == 0 && len(p.ahead) == 0 && p.offsets.Mark() >= p.until {
		p.careful, p.blamed, p.blamedBy, p.until, p.accused = false, 0, 0, 0, nil
	}
}

// room reports that more may be read. The lock is held.
func (p *partition) room() bool {
	return p.held == 0 || p.held < p.r.b.cfg.Window && p.bytes < p.r.b.cfg.WindowBytes
}

// lowRoom is room for so much that it is worth waking run: live messages leave one
// by one. The lock is held.
func (p *partition) lowRoom() bool {
	if p.r.stream != adapters.StreamMain || p.inPlace || p.window.Len() == 0 {
		return true
	}
	return p.held <= p.r.b.cfg.Window/4*3 && p.bytes <= p.r.b.cfg.WindowBytes/4*3
}

// run reads until the session ends, and has handed out what is due.
func (p *partition) run(ctx context.Context, claim sarama.ConsumerGroupClaim) {
	s, in := p.r.s, claim.Messages()
	stop := s.stop
	p.mu.Lock()
	p.reading = true
	p.unplaced = claim.InitialOffset() < 0 // what was committed is not there any more
	p.mu.Unlock()
	alone := make(chan struct{}, 1)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var ahead *sarama.ConsumerMessage // does not fit yet
	for open := true; open && ctx.Err() == nil; {
		p.mu.Lock()
		if ahead != nil && p.offsets.Fits(ahead.Offset) {
			p.accept(ahead)
			ahead = nil
		}
		source := in
		full := ahead != nil || !p.room()
		p.full = full
		if full {
			source = nil
			p.warnFull()
		}
		p.waiting = full || p.careful
		next, some := p.window.Next()
		if len(p.ahead) > 0 {
			next, some = retrytopic.Item[*entry]{}, true
		}
		some = some && stop != nil && p.state == live && !(p.careful && len(p.out) >= carefulOut)
		p.mu.Unlock()

		var suspect chan struct{}
		var due <-chan time.Time
		if some {
			switch {
			case !isDue(next.Due):
				timer.Reset(time.Until(next.Due))
				due = timer.C
			case p.r.stream == adapters.StreamSuspect:
				suspect = alone
			case s.turns.queueUp(p):
				s.handOut()
				continue
			}
		}
		select {
		case m, ok := <-source:
			if open = ok; open {
				ahead = p.take(m, in)
			}
		case suspect <- struct{}{}:
			p.handOutSuspect(ctx)
			<-alone
		case <-p.turn:
			p.queued.Store(false)
			p.handOutCareful(ctx)
		case <-due:
		case <-p.wake:
		case <-stop:
			stop = nil
		case <-ctx.Done():
		}
	}
	p.endTurns()
	p.disarm()
	p.calmDown()
}

// endTurns ends the hand-outs of a session.
func (p *partition) endTurns() {
	p.mu.Lock()
	p.reading = false
	p.mu.Unlock()
	select {
	case <-p.turn:
		p.queued.Store(false)
		p.r.s.turns.release()
		p.r.s.handOut()
	default:
	}
}

// take accepts a message, and those behind it that are here already. It returns
// one that does not fit yet.
func (p *partition) take(m *sarama.ConsumerMessage, in <-chan *sarama.ConsumerMessage) *sarama.ConsumerMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.unplaced {
			p.offsets, p.unplaced = retrytopic.NewOffsets(m.Offset), false
			p.version++
		}
		if !p.offsets.Fits(m.Offset) {
			return m
		}
		p.accept(m)
		if !p.room() {
			return nil
		}
		select {
		case next, open := <-in:
			if !open {
				return nil
			}
			m = next
		default:
			return nil
		}
	}
}

// accept puts a message where it waits for being handed out. The lock is held.
func (p *partition) accept(m *sarama.ConsumerMessage) {
	mark := p.offsets.Mark()
	fresh := p.offsets.Read(m.Offset)
	if p.offsets.Mark() != mark {
		p.version++
	}
	switch {
	case !fresh:
		return
	case p.carried[m.Offset]:
		delete(p.carried, m.Offset)
		return
	case p.drained != nil && p.drained.Finished(m.Offset):
		p.finish(m.Offset)
		return
	}
	e := &entry{msg: m, size: sizeOf(m)}
	p.held++
	p.bytes += e.size
	if p.r.stream != adapters.StreamMain {
		e.due = heldUntil(m, maxHeld)
		if p.r.stream == adapters.StreamSuspect && e.due.Before(p.verdicts) && p.crashes(m.Offset) >= convictFrom {
			e.due = p.verdicts
		}
		p.push(e)
		return
	}
	if k := p.kept[m.Offset]; k != nil {
		delete(p.kept, m.Offset)
		if k.At == m.Timestamp.UnixMilli() {
			e.kept, e.due = k, k.Due
		}
	}
	switch p.r.b.cfg.Order {
	case OrderPartition:
		e.laned = true
	case OrderKey:
		if m.Key != nil {
			e.laned, e.lane = true, maphash.Bytes(laneSeed, m.Key)
		}
	}
	if !e.laned {
		p.push(e)
		return
	}
	queue, busy := p.lanes[e.lane]
	if busy {
		p.lanes[e.lane] = append(queue, e)
		return
	}
	p.lanes[e.lane] = nil
	p.push(e)
}

// maxHeld is the longest that the seam asks for, which is what the parking lot
// may hold.
const maxHeld = 7 * 24 * time.Hour

var laneSeed = maphash.MakeSeed()

func (p *partition) push(e *entry) {
	p.window.Push(retrytopic.Item[*entry]{Due: e.due, Seq: e.msg.Offset, Bytes: e.size, Value: e})
}

// handOutNext hands out one message with a slot that it has got, and queues up for
// the next one. It reports false if it has no use for the slot. A careful partition
// has to commit first, which takes time: run does it.
func (p *partition) handOutNext() bool {
	p.mu.Lock()
	switch {
	case !p.reading || p.state != live:
		p.queued.Store(false)
		p.mu.Unlock()
		return false
	case p.careful:
		p.turn <- struct{}{} // has room: it is not queued again before this is taken
		p.mu.Unlock()
		return true
	}
	p.queued.Store(false) // what is added from now on queues up
	e := p.popDue()
	next, more := p.window.Next()
	p.mu.Unlock()
	switch {
	case more && isDue(next.Due):
		p.r.s.turns.queueUp(p)
	case more:
		p.rouse() // to wait for it
	}
	if e == nil {
		return false
	}
	if !p.send(context.Background(), e, nil) {
		p.putBack(e)
		return false
	}
	return true
}

// handOutCareful hands out what is due, as slots allow; one is held already.
func (p *partition) handOutCareful(ctx context.Context) {
	s := p.r.s
	defer s.handOut() // others, with what is left
	if !s.turns.begin() {
		s.turns.release()
		return
	}
	defer s.turns.busy.Done()
	for range carefulOut {
		e := p.nextOut(ctx, s.turns.left())
		if e == nil {
			break
		}
		if !p.send(ctx, e, nil) {
			p.putBack(e)
			break
		}
		if !s.turns.acquire() {
			return
		}
	}
	s.turns.release()
}

// nextOut takes the next message to hand out, if one is due. A careful partition
// commits it first, with others ahead: as many as there are slots free where one
// message is suspicious already, and else as many as fit.
func (p *partition) nextOut(ctx context.Context, free int) *entry {
	p.mu.Lock()
	careful := p.careful
	if careful && len(p.ahead) > 0 {
		e := p.ahead[0]
		p.ahead = p.ahead[1:]
		p.handing(e)
		p.mu.Unlock()
		return e
	}
	p.mu.Unlock()
	e, version := p.pop()
	if e == nil || version == 0 {
		return e
	}
	p.mu.Lock()
	exact := p.crashes(e.msg.Offset) >= exactFrom
	for len(p.ahead) < carefulAhead && (!exact || len(p.ahead) < free) {
		i, ok := p.window.Pop(time.Now())
		if !ok {
			break
		}
		if !exact && p.crashes(i.Seq) >= exactFrom {
			p.push(i.Value)
			break
		}
		p.try(i.Seq)
		p.ahead = append(p.ahead, i.Value)
	}
	version = p.version
	p.mu.Unlock()
	if !p.r.awaitCommit(ctx, p.r.s.stop, p, version) {
		p.putBack(e)
		p.disarm()
		return nil
	}
	return e
}

// disarm puts back what was committed and not handed out.
func (p *partition) disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	ahead := p.ahead
	p.ahead = nil
	for _, e := range ahead {
		p.unpop(e)
	}
}

// try notes that an offset is about to be handed out. The lock is held.
func (p *partition) try(offset int64) {
	t := p.trial(offset)
	t.Out = true
	p.trials[offset] = t
	p.version++
}

// handing notes that a message is handed out. The lock is held.
func (p *partition) handing(e *entry) {
	e.count = 1 + p.crashes(e.msg.Offset) + e.returns
	p.out[e.msg.Offset] = e
	if p.inPlace {
		p.r.b.places.add(p, e)
	}
}

// handOutSuspect hands out one message, alone in the process, and waits until it
// is settled. What was handed out is committed before, and only when it is its
// turn: its count then means crashes of its own.
func (p *partition) handOutSuspect(ctx context.Context) {
	s := p.r.s
	if !s.turns.begin() {
		return
	}
	defer s.turns.busy.Done()
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-over.Done():
		}
	}()
	token := p.r.b.tokenOf(s.c)
	select {
	case token <- struct{}{}:
		defer func() { <-token }()
	case <-over.Done():
		return
	}
	end, ok := p.r.b.alone(over.Done())
	if !ok {
		return
	}
	e, version := p.pop()
	if e == nil {
		end()
		return
	}
	undo := func() {
		p.putBack(e)
		end()
	}
	if !p.r.awaitCommit(ctx, s.stop, p, version) {
		undo()
		return
	}
	settled := make(chan struct{})
	if !p.send(ctx, e, func() { end(); close(settled) }) {
		undo()
		return
	}
	select {
	case <-settled:
	case <-over.Done():
	}
}

// pop takes the first message that is due. The version is that to be committed
// before it is handed out, and zero where that is not necessary.
func (p *partition) pop() (e *entry, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e = p.popDue(); e == nil || !p.careful {
		return e, 0
	}
	p.try(e.msg.Offset)
	return e, p.version
}

// popDue takes the first message that is due, if any. The lock is held.
func (p *partition) popDue() *entry {
	next, some := p.window.Next()
	if !some || !isDue(next.Due) {
		return nil
	}
	p.window.Pop(next.Due)
	p.handing(next.Value)
	return next.Value
}

// isDue does not look at the clock for live messages.
func isDue(due time.Time) bool { return due.IsZero() || !due.After(time.Now()) }

// crashes is how many processes ended while they handled an offset. The lock is
// held.
func (p *partition) crashes(offset int64) int { return p.trial(offset).Crashes }

// trial is what is known of an offset. The lock is held.
func (p *partition) trial(offset int64) retrytopic.Trial {
	t, ok := p.trials[offset]
	if t.Offset = offset; !ok && offset < p.blamed {
		t.Crashes, t.By = 1, p.blamedBy
	}
	return t
}

// send hands out a message, unless the session or the subscription ends first. The
// end of its being alone is given for suspects, and nil for what has a slot.
func (p *partition) send(ctx context.Context, e *entry, end func()) bool {
	d := p.delivery(e, end)
	select { // there is room, but for suspects whose session has ended meanwhile
	case p.r.s.out <- d:
		return true
	default:
	}
	select {
	case p.r.s.out <- d:
		return true
	case <-p.r.s.stop:
	case <-ctx.Done():
	}
	return false
}

// delivery makes the delivery of a message that is being handed out.
func (p *partition) delivery(e *entry, end func()) *adapters.Delivery {
	both := &struct {
		adapters.Delivery
		settler
	}{settler: settler{p: p, e: e, end: end}}
	d := &both.Delivery
	d.Consumer, d.Stream, d.Count, d.Alone, d.Settler = p.r.s.c, p.r.stream, e.count, end != nil, &both.settler
	if d.Stream == adapters.StreamParking {
		d.Stream = adapters.StreamRetry
	}
	d.Record, d.Undecodable = recordOf(e.msg, p.stream, p.r.b.cfg.Marshaler)
	if e.kept != nil {
		d.Stream = adapters.StreamRetry
		d.Headers = slices.Clip(envelope.StripHeaders(d.Headers))
		for _, pair := range e.kept.State {
			d.Headers = append(d.Headers, adapters.Header{Key: pair.Key, Value: []byte(pair.Value)})
		}
	}
	return d
}

// putBack undoes a pop.
func (p *partition) putBack(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unpop(e)
}

// unpop puts a message back where it was. The lock is held.
func (p *partition) unpop(e *entry) {
	delete(p.out, e.msg.Offset)
	p.leavePlace(e)
	if t, ok := p.trials[e.msg.Offset]; ok {
		t.Out = false
		p.trials[e.msg.Offset] = t
	}
	p.version++
	p.push(e)
}

// settle finishes a message, or puts it back. Between two sessions it waits for
// whose partition it is.
func (p *partition) settle(ctx context.Context, e *entry, finished bool) error {
	if err := p.hold(ctx); err != nil {
		p.leavePlace(e)
		return err
	}
	p.leavePlace(e)
	if p.out[e.msg.Offset] != e {
		p.mu.Unlock()
		return errLost
	}
	waited := e.kept != nil
	switch {
	case finished && e.again != nil:
		delete(p.out, e.msg.Offset)
		delete(p.trials, e.msg.Offset)
		p.version++
		e.kept, e.due, e.again, e.returns = e.again, e.again.Due, nil, 0
		finished, waited = false, false
		p.push(e)
	case finished:
		delete(p.out, e.msg.Offset)
		p.finish(e.msg.Offset)
		p.held--
		p.bytes -= e.size
		p.leaveLane(e)
	default:
		if !isClosed(p.r.s.stop) {
			e.returns++
		}
		p.unpop(e)
	}
	version := p.version
	rouse := p.waiting && (p.careful || p.lowRoom()) || !p.reading
	ready := !p.careful && p.window.Len() > 0
	p.mu.Unlock()
	if rouse {
		p.rouse()
	}
	if ready {
		p.r.s.turns.queueUp(p)
	}
	if finished && waited {
		p.r.b.dropPlace(p.r.s.c, e.msg)
	}
	if p.r.stream == adapters.StreamSuspect && finished && !p.r.awaitCommit(ctx, p.r.s.gone, p, version) {
		return errLost
	}
	return nil
}

// leavePlace ends a hand-out's being known by its place.
func (p *partition) leavePlace(e *entry) {
	if p.inPlace {
		p.r.b.places.remove(e)
	}
}

// rouse has run look again at what it can do.
func (p *partition) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// leaveLane lets the next message of a key go. The lock is held.
func (p *partition) leaveLane(e *entry) {
	if !e.laned {
		return
	}
	queue := p.lanes[e.lane]
	if len(queue) == 0 {
		delete(p.lanes, e.lane)
		return
	}
	p.lanes[e.lane] = queue[1:]
	p.push(queue[0])
}

// calmDown waits until what is handed out is settled, for a bounded time.
func (p *partition) calmDown() {
	grace := time.NewTimer(p.r.b.cfg.RevokeGrace)
	defer grace.Stop()
	for {
		p.mu.Lock()
		busy := len(p.out) > 0
		p.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-p.wake:
		case <-grace.C:
			return
		case <-p.r.s.closing:
			return
		}
	}
}

// warnFull says that messages come late because too many wait. The lock is held.
func (p *partition) warnFull() {
	if p.r.stream == adapters.StreamMain || time.Since(p.late) < time.Minute {
		return
	}
	p.late = time.Now()
	p.r.b.logger.Warn("kafka: more messages wait than are read ahead: those behind them may come late, none is lost",
		"topic", p.topic, "partition", p.partition, "waiting", p.held, "bytes", p.bytes)
}
