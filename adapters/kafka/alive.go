package kafka

import (
	"context"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/retrytopic"
)

// To its group, a process that was killed and one that was paused, or cut off, for
// longer than its session look the same: they hold a partition and are not heard of
// any more. What tells them apart comes later: a paused process comes back. Then it
// says, for each partition that it lost without letting go, under which name it held
// it: as the metadata of a commit by the group <suspect stream>.alive, which has no
// members. Whoever counts crashes because of that name takes them back. The process
// goes on under another name, so that its next end counts.

const (
	alivePrefix = "spillway-alive1:"
	// aliveNames is how many names are kept for a partition: more than are accused.
	aliveNames = 4 * retrytopic.MaxAccused
)

// owner is the name under which this process holds partitions now.
func (b *broker) owner() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owners[len(b.owners)-1]
}

// isMe reports whether a name is, or was, this process's.
func (b *broker) isMe(owner uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.owners, owner)
}

func (b *broker) rename() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners = append(b.owners, newOwner())
}

func (b *broker) aliveGroup(c adapters.Consumer) string {
	return b.names.Of(adapters.StreamSuspect, c) + ".alive"
}

// cutOff notes that this process has lost its partitions and could not say so.
func (r *reader) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsaid == nil {
		r.unsaid = map[topicPartition][]uint64{}
	}
	for tp, p := range r.parts {
		r.unsaid[tp] = append(r.unsaid[tp], p.heldAs())
	}
	r.b.rename()
}

// testify says of which partitions this process was cut off, if of any. What fails
// is said again after the next session.
func (r *reader) testify() {
	if len(r.unsaid) == 0 { // only this goroutine's sessions write it
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxRevokeGrace)
	defer cancel()
	group := r.b.aliveGroup(r.s.c)
	ask := map[string][]int32{}
	for tp := range r.unsaid {
		ask[tp.topic] = append(ask[tp.topic], tp.partition)
	}
	said, err := r.b.positions(ctx, group, ask)
	if err == nil {
		what := map[topicPartition]position{}
		for tp, names := range r.unsaid {
			what[tp] = position{0, alive(append(aliveOf(said[tp]), names...))}
		}
		err = r.b.commit(ctx, group, "", sarama.GroupGenerationUndefined, what)
	}
	if err != nil {
		r.b.logger.Warn("kafka: cannot say yet that this process was cut off and has not crashed", "topic", r.s.c.Topic, "group", group, "error", err)
		return
	}
	clear(r.unsaid)
}

// hear takes back crashes of processes that were heard of again.
func (r *reader) hear(ctx context.Context) {
	r.mu.Lock()
	parts := maps.Clone(r.parts)
	r.mu.Unlock()
	ask := map[string][]int32{}
	for tp, p := range parts {
		if p.accuses() {
			ask[tp.topic] = append(ask[tp.topic], tp.partition)
		}
	}
	if len(ask) == 0 {
		return
	}
	said, err := r.b.positions(ctx, r.b.aliveGroup(r.s.c), ask)
	if err != nil {
		r.b.logger.Warn("kafka: cannot read which processes came back: they count as crashed", "topic", r.s.c.Topic, "error", err)
		return
	}
	for tp, pos := range said {
		parts[tp].acquit(aliveOf(pos))
	}
}

// alive is the metadata that has these names.
func alive(names []uint64) string {
	text := make([]string, 0, aliveNames)
	for _, name := range names[max(len(names)-aliveNames, 0):] {
		text = append(text, strconv.FormatUint(name, 36))
	}
	return alivePrefix + strings.Join(text, " ")
}

// aliveOf are the names in what is committed.
func aliveOf(pos position) (names []uint64) {
	text, _ := strings.CutPrefix(pos.metadata, alivePrefix)
	for word := range strings.FieldsSeq(text) {
		if name, err := strconv.ParseUint(word, 36, 64); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// accuse notes the owner of what was committed as ended, and returns the bit of the
// counts that it causes: zero if there are too many to be told apart. The lock is
// held.
func (p *partition) accuse(progress retrytopic.Progress) (by uint8) {
	used := progress.BlamedBy
	for _, t := range progress.Trials {
		used |= t.By
	}
	p.accused = slices.Clone(progress.Accused)
	i := bits.TrailingZeros8(^used)
	switch {
	case i >= retrytopic.MaxAccused:
		return 0
	case i < len(p.accused):
		p.accused[i] = progress.Owner
	default:
		i = len(p.accused)
		p.accused = append(p.accused, progress.Owner)
	}
	return 1 << i
}

// accuses reports that something is counted because of owners that may be heard of
// again.
func (p *partition) accuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := p.blamedBy
	for _, t := range p.trials {
		counts |= t.By
	}
	return counts != 0
}

// acquit takes back what is counted because of owners that are alive.
func (p *partition) acquit(alive []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var of uint8
	for i, owner := range p.accused {
		if slices.Contains(alive, owner) {
			of |= 1 << i
		}
	}
	if p.blamedBy&of != 0 {
		p.blamed, p.blamedBy = 0, 0
		p.version++
	}
	for offset, t := range p.trials {
		if t.By&of == 0 {
			continue
		}
		t.Crashes = max(t.Crashes-bits.OnesCount8(t.By&of), 0)
		if t.By &^= of; t.Crashes == 0 && !t.Out {
			delete(p.trials, offset)
		} else {
			p.trials[offset] = t
		}
		p.version++
	}
}

// heldAs is the name under which others know this process to hold a partition.
func (p *partition) heldAs() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	progress, err := retrytopic.DecodeProgress(p.position.offset, p.position.metadata)
	if err != nil || !progress.Running || !p.r.b.isMe(progress.Owner) {
		return p.r.b.owner() // by a commit whose answer was lost
	}
	return progress.Owner
}
