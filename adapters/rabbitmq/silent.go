package rabbitmq

import (
	"errors"
	"sync"
	"time"
)

var (
	// errUnconfirmed: the message was written, and the broker has not said what
	// became of it.
	errUnconfirmed = errors.New("not confirmed in time")
	// errPatience ends a hand-off after Config.PublishTimeout, and no sooner.
	errPatience = errors.New("publish timeout")
)

// A rung that was being declared when the broker died may come back without a
// leader: it exists, takes messages and never confirms them. Rungs are shared,
// so each retry that draws that delay would hold up a handler for ever. What
// would go to a silent rung goes to the next longer one instead; what was
// written to the silent one is a duplicate if it comes to life.
const (
	silentFirst = time.Minute
	silentMost  = time.Hour
)

// silences remembers which rungs did not confirm, and when to try them again:
// after a minute, then twice as long each time. It is safe for concurrent use.
type silences struct {
	mu  sync.Mutex
	all map[time.Duration]silence
}

type silence struct {
	until time.Time
	pause time.Duration // that ended, or will end, at until
}

// around returns the shortest rung that is at least d and not silent now;
// where there is none, the one that quantize has promised.
func (s *silences) around(l ladder, d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	promised := l.rung(d)
	now := time.Now()
	for _, rung := range l {
		if rung >= promised && !now.Before(s.all[rung].until) {
			return rung
		}
	}
	return promised
}

// heard notes whether a rung was silent when it was published to, and returns
// for how long it will be avoided if that is news.
func (s *silences) heard(rung time.Duration, silent bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !silent:
		delete(s.all, rung)
	case time.Now().After(s.all[rung].until):
		pause := min(max(2*s.all[rung].pause, silentFirst), silentMost)
		if s.all == nil {
			s.all = map[time.Duration]silence{}
		}
		s.all[rung] = silence{time.Now().Add(pause), pause}
		return pause
	}
	return 0
}
