package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Validate refuses what cannot be meant: negative values, factors below 1 or
// not finite, a base above its max, limits above [MaxAttempts], delays above
// [MaxDelay], a parking interval above its deadline, unknown natures and kinds
// of jitter. The error names all problems, one a line, each with the path of
// its field, such as
//
//	policy: classes["validation"].backoff.factor must be at least 1, is 0.5
//
// Zero fields are always valid. A class is blamed for a contradiction only
// where it sets one side of it.
func (p Policy) Validate() error {
	var v problems
	v.limit("attempts.transient", p.Attempts.Transient)
	v.limit("attempts.unknown", p.Attempts.Unknown)
	v.limit("attempts.permanent", p.Attempts.Permanent)
	v.limit("attempts.ambiguous", p.Attempts.Ambiguous)
	resolved := p.WithDefaults()
	v.backoff("backoff", p.Backoff, resolved.Backoff)
	v.parking("parking", p.Parking, resolved.Parking)
	v.delay("maxRetryAfter", p.MaxRetryAfter)
	v.notNegative("maxAge", p.MaxAge)
	v.limit("maxReplays", p.MaxReplays)

	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		o, path := p.Classes[class], fmt.Sprintf("classes[%q]", string(class))
		if class == "" {
			v.add(path, "must have a name, is empty")
		}
		if o.Nature != "" && !slices.Contains(natures, o.Nature) {
			v.add(path+".nature", "must be transient, unknown, permanent or ambiguous, is %q", string(o.Nature))
		}
		v.limit(path+".attempts", o.Attempts)
		with := resolved.with(o)
		if o.Backoff != (Backoff{}) {
			v.backoff(path+".backoff", o.Backoff, with.Backoff)
		}
		if o.Parking != (Parking{}) {
			v.parking(path+".parking", o.Parking, with.Parking)
		}
	}
	return errors.Join(v...)
}

type problems []error

func (v *problems) add(path, format string, args ...any) {
	*v = append(*v, fmt.Errorf("policy: %s %s", path, fmt.Sprintf(format, args...)))
}

func (v *problems) limit(path string, n int) {
	switch {
	case n < 0:
		v.add(path, "must not be negative, is %d", n)
	case n > MaxAttempts:
		v.add(path, "must be at most %d, is %d: there is no unlimited", MaxAttempts, n)
	}
}

func (v *problems) notNegative(path string, d time.Duration) bool {
	if d < 0 {
		v.add(path, "must not be negative, is %s", short(d))
	}
	return d >= 0
}

func (v *problems) delay(path string, d time.Duration) bool {
	if d > MaxDelay {
		v.add(path, "must be at most %s, is %s", short(MaxDelay), short(d))
		return false
	}
	return v.notNegative(path, d)
}

// backoff checks what was set, and against each other what it comes to with
// what is inherited.
func (v *problems) backoff(path string, set, resolved Backoff) {
	base := v.notNegative(path+".base", set.Base)
	switch f := set.Factor; {
	case f == 0: // the default
	case !(f >= 1): // or NaN
		v.add(path+".factor", "must be at least 1, is %v", f)
	case math.IsInf(f, 1):
		v.add(path+".factor", "must be finite, is %v", f)
	}
	most := v.delay(path+".max", set.Max)
	if base && most {
		v.order(path, "base", set.Base, resolved.Base, "max", set.Max, resolved.Max)
	}
	switch set.Jitter {
	case "", JitterProportional, JitterFull, JitterNone:
	default:
		v.add(path+".jitter", "must be proportional, full or none, is %q", string(set.Jitter))
	}
}

func (v *problems) parking(path string, set, resolved Parking) {
	interval := v.delay(path+".interval", set.Interval)
	deadline := v.notNegative(path+".deadline", set.Deadline)
	without := v.notNegative(path+".deadlineWithoutReference", set.DeadlineWithoutReference)
	if interval && deadline {
		v.order(path, "interval", set.Interval, resolved.Interval, "deadline", set.Deadline, resolved.Deadline)
	}
	if interval && without {
		v.order(path, "interval", set.Interval, resolved.Interval,
			"deadlineWithoutReference", set.DeadlineWithoutReference, resolved.DeadlineWithoutReference)
	}
}

// order wants low <= high, if one of them was set here at all, and says which
// of them was not: whoever lowers one often does not know of the other.
func (v *problems) order(path, low string, lowSet, lowIs time.Duration, high string, highSet, highIs time.Duration) {
	if lowSet == 0 && highSet == 0 || lowIs <= highIs || highIs < 0 {
		return
	}
	v.add(path+"."+low, "must be at most %s, which is %s%s, is %s%s",
		high, short(highIs), elsewhere(highSet), short(lowIs), elsewhere(lowSet))
}

func elsewhere(set time.Duration) string {
	if set == 0 {
		return " (not set here)"
	}
	return ""
}
