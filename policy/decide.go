package policy

import (
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// Decide says what becomes of a failed message. It is pure: the same input
// gives the same decision, and u in [0,1), which [Draw] makes from the
// message's identity and attempt, is the only source of jitter. Values of u
// outside [0,1) are taken as the nearest inside, NaN as 0.
//
// Zero fields of p mean the defaults; p need not have been through
// [Policy.WithDefaults]. A nature that is none of the four counts as unknown.
func Decide(p Policy, f failure.Failure, h History, now time.Time, u float64) Decision {
	if h.Shutdown {
		return Return{}
	}
	d := decide(p, f, h, now, clampUnit(u))
	if _, dead := d.(DeadLetter); dead && h.DeadLetterTopic {
		return Return{}
	}
	return d
}

func decide(p Policy, f failure.Failure, h History, now time.Time, u float64) Decision {
	p, f = p.forFailure(f)
	if h.ReplayCount >= max(1, p.MaxReplays) {
		return DeadLetter{ReasonReplayLimit}
	}

	attempts := max(1, h.Attempts)
	limit := p.Attempts.of(f.Nature)
	ambiguous := f.Nature == failure.NatureAmbiguous
	switch {
	case f.Park, ambiguous && (attempts >= limit || !h.ParkedAt.IsZero()):
		return p.park(f, h, now)
	case attempts >= limit:
		return DeadLetter{exhausted(f, limit)}
	}

	delay := p.Backoff.spread(p.Backoff.mean(attempts), u)
	if f.RetryAfter > 0 {
		delay = max(delay, p.Backoff.atLeast(min(f.RetryAfter, p.MaxRetryAfter), u))
	}
	due := now.Add(delay)
	if end, limited := p.ageLimit(h); limited && (due.After(end) || !now.Before(end)) {
		return DeadLetter{ReasonTooOld}
	}
	return Retry{Due: due}
}

// park parks until the deadline or the age limit, whichever comes first. Both
// have passed already at their own instant: the last re-check is due exactly
// then, and must not be followed by another one.
func (p Policy) park(f failure.Failure, h History, now time.Time) Decision {
	since := h.ParkedAt
	if since.IsZero() || since.After(now) { // the clock of another host may be ahead
		since = now
	}
	deadline := since.Add(p.Parking.deadline(f.Reference != ""))
	if !now.Before(deadline) {
		return DeadLetter{ReasonParkingDeadline}
	}
	if end, limited := p.ageLimit(h); limited && end.Before(deadline) {
		if !now.Before(end) {
			return DeadLetter{ReasonTooOld}
		}
		deadline = end
	}
	due := now.Add(duration(float64(p.Parking.Interval)))
	if due.After(deadline) {
		due = deadline
	}
	return Park{Due: due, Deadline: deadline}
}

// ageLimit is the instant beyond which nothing is scheduled, if there is one.
func (p Policy) ageLimit(h History) (end time.Time, limited bool) {
	if p.MaxAge <= 0 || h.FirstAttemptAt.IsZero() {
		return time.Time{}, false
	}
	return h.FirstAttemptAt.Add(p.MaxAge), true
}

// exhausted is the reason of a failure that has used up its limit of attempts.
func exhausted(f failure.Failure, limit int) Reason {
	switch {
	case f.Nature != failure.NaturePermanent:
		return ReasonAttemptsExhausted
	case f.Class == failure.ClassUndecodable:
		return ReasonUndecodable
	case f.Class == failure.ClassConsumerCrash:
		return ReasonConsumerCrash
	case limit <= 1:
		return ReasonPermanent
	default:
		return ReasonAttemptsExhausted
	}
}

// Draw makes the number in [0,1) that spreads the delay after an attempt from
// the identity of the message, so that duplicates of a message draw alike. It
// is uniform over ids and over attempts, the same on every platform, and
// frozen: copies of a message may meet consumers of different versions.
func Draw(id string, attempt int) float64 {
	// FNV-1a takes in the bytes. Its high bits hardly notice the last ones, and
	// ids often differ in the last ones only, so the finalizer of splitmix64
	// stirs the sum, before and after the attempt comes in.
	sum := uint64(14695981039346656037)
	for i := range len(id) {
		sum = (sum ^ uint64(id[i])) * 1099511628211
	}
	sum = stir(stir(sum) + uint64(int64(attempt)))
	return float64(sum>>11) / (1 << 53) // 53 bits are what a float64 holds exactly
}

func stir(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
