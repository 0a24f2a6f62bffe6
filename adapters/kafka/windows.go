package kafka

import (
	"maps"
	"slices"
	"sync"

	"github.com/spillway-mq/spillway/adapters"
)

// Windows implements adapters.Windowed.
func (b *broker) Windows() []adapters.Window {
	var all []adapters.Window
	for _, r := range b.readers.all() {
		for _, p := range r.held() {
			if w, ok := p.readAhead(); ok {
				all = append(all, w)
			}
		}
	}
	return all
}

// held are the partitions that a reader has.
func (r *reader) held() []*partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.parts))
}

// readAhead says what was read of a partition; ok is false for one that is given
// away.
func (p *partition) readAhead() (w adapters.Window, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == lost {
		return w, false
	}
	cfg := p.r.b.cfg
	w = adapters.Window{
		Consumer: p.r.s.c, Stream: p.r.stream, Name: p.topic, Partition: p.topicPartition.partition,
		Messages: p.held, Bytes: p.bytes, Fill: 1,
	}
	if !p.full {
		// Below 1: one message may be larger than the window.
		w.Fill = min(max(float64(p.held)/float64(cfg.Window), float64(p.bytes)/float64(cfg.WindowBytes)), fillable)
	}
	return w, true
}

// fillable is the most that is in use of a window with room for one more.
const fillable = 0.999

// readers are those that run.
type readers struct {
	mu  sync.Mutex
	set map[*reader]bool
}

func (rs *readers) add(r *reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.set == nil {
		rs.set = map[*reader]bool{}
	}
	rs.set[r] = true
}

func (rs *readers) remove(r *reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.set, r)
}

func (rs *readers) all() []*reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Keys(rs.set))
}

var _ adapters.Windowed = (*broker)(nil)
