package app

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/middleware"
)

// standsStill is how far away the next look at a parked message must be for the
// program not to wait for it.
const standsStill = 30 * time.Second

// ledger knows each published message by its id. It is safe for concurrent use.
type ledger struct {
	seed maphash.Seed

	mu        sync.Mutex
	fates     map[string]*fate
	now       tally
	strangers int             // messages that came to an end and that nobody here published
	firstTry  []time.Duration // from publishing to processed, of those that needed one attempt
}

// fate is what became of a message so far.
type fate struct {
	published time.Time
	body      uint64 // hash
	last      middleware.Outcome
	due       time.Time
	retried   bool
}

// tally counts messages by their fate.
type tally struct {
	published, processed, retried, waiting, parked, deadLettered, lastResort int
	retries                                                                  int // hand-offs to retry, of all messages together
	moving                                                                   int // published, and not at rest
}

func newLedger(size int) *ledger {
	return &ledger{seed: maphash.MakeSeed(), fates: make(map[string]*fate, size)}
}

// publishing enters a message before it is published, because its consumer may
// be faster than its publisher.
func (l *ledger) publishing(msg *message.Message) {
	f := &fate{published: time.Now(), body: maphash.Bytes(l.seed, msg.Payload)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[msg.UUID] = f
	l.now.published++
	l.now.moving++
}

// refused takes back a message that the broker did not take.
func (l *ledger) refused(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.fates[id]; f != nil {
		l.count(f, -1)
		l.now.published--
		delete(l.fates, id)
	}
}

// outcome is a hook.
func (l *ledger) outcome(_ context.Context, o *middleware.OutcomeInfo) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.fates[o.MessageID]
	if f == nil { // of another run on the same broker
		if isEnd(o.Outcome) {
			l.strangers++
		}
		return
	}
	if o.Outcome == middleware.OutcomeRetried {
		l.now.retries++
		if !f.retried {
			f.retried = true
			l.now.retried++
		}
	}
	switch o.Outcome {
	case middleware.OutcomeProcessed, middleware.OutcomeDeadLettered, middleware.OutcomeLastResort:
		if o.Outcome == middleware.OutcomeProcessed && o.Attempt == 1 && f.last == "" {
			l.firstTry = append(l.firstTry, now.Sub(f.published))
		}
	case middleware.OutcomeRetried, middleware.OutcomeParked:
		// A message may be back before we are told that it was handed off.
		if isEnd(f.last) || o.DueAt.Before(f.due) {
			return
		}
	default:
		return
	}
	l.count(f, -1)
	f.last, f.due = o.Outcome, o.DueAt
	l.count(f, +1)
}

func isEnd(o middleware.Outcome) bool {
	return o == middleware.OutcomeProcessed || o == middleware.OutcomeDeadLettered || o == middleware.OutcomeLastResort
}

// count adds a message to the tally, or takes it out.
func (l *ledger) count(f *fate, by int) {
	atRest := isEnd(f.last)
	switch f.last {
	case middleware.OutcomeProcessed:
		l.now.processed += by
	case middleware.OutcomeRetried:
		l.now.waiting += by
	case middleware.OutcomeParked:
		l.now.parked += by
		atRest = f.due.Sub(f.published) > standsStill
	case middleware.OutcomeDeadLettered:
		l.now.deadLettered += by
	case middleware.OutcomeLastResort:
		l.now.lastResort += by
	}
	if !atRest {
		l.now.moving += by
	}
}

func (l *ledger) tally() tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// others is how many messages of other runs came to an end here.
func (l *ledger) others() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.strangers
}

// quantile of the time from publishing to processed, of what needed one attempt.
func (l *ledger) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.firstTry) == 0 {
		return 0
	}
	slices.Sort(l.firstTry)
	return l.firstTry[min(int(q*float64(len(l.firstTry))), len(l.firstTry)-1)]
}
