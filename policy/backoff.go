package policy

import (
	"cmp"
	"math"
	"time"
)

// Delay is the delay after n attempts, at least 0 and at most [MaxDelay]. It
// depends on nothing else than its arguments: asking for it changes nothing.
// Values of u outside [0,1) are taken as the nearest inside, NaN as 0.
func (b Backoff) Delay(n int, u float64) time.Duration {
	b = b.withDefaults()
	return b.spread(b.mean(n), clampUnit(u))
}

// mean is the delay after n attempts before jitter, in nanoseconds. It is a
// float so that no exponent overflows: Base*Factor^n may well be infinite
// before Max caps it.
func (b Backoff) mean(n int) float64 {
	return min(float64(b.Max), float64(b.Base)*math.Pow(b.Factor, float64(n)))
}

// spread applies jitter to a delay of d nanoseconds. It grows with u, which
// may be 1 here to learn the upper bound.
func (b Backoff) spread(d, u float64) time.Duration {
	switch b.Jitter {
	case JitterNone:
		return duration(d)
	case JitterFull:
		return duration(d * u)
	default:
		return duration(d * (0.5 + u))
	}
}

// atLeast spreads a wish for a delay of at least d. Messages that failed
// together were mostly told the same d, so they must not all return with it,
// nor sooner.
func (b Backoff) atLeast(d time.Duration, u float64) time.Duration {
	if b.Jitter == JitterNone {
		return duration(float64(d))
	}
	return duration(float64(d) * (1 + u/2))
}

func (b Backoff) withDefaults() Backoff {
	return b.over(Backoff{Base: time.Second, Factor: 2, Max: 5 * time.Minute, Jitter: JitterProportional})
}

// over fills the zero fields of b from under.
func (b Backoff) over(under Backoff) Backoff {
	return Backoff{
		Base:   cmp.Or(b.Base, under.Base),
		Factor: cmp.Or(b.Factor, under.Factor),
		Max:    cmp.Or(b.Max, under.Max),
		Jitter: cmp.Or(b.Jitter, under.Jitter),
	}
}

// duration clamps before it converts: a float out of range converts to
// whatever the processor likes. The negated comparison also catches NaN.
func duration(ns float64) time.Duration {
	if !(ns > 0) {
		return 0
	}
	return time.Duration(min(ns, float64(MaxDelay)))
}

// clampUnit makes u a number in [0,1).
func clampUnit(u float64) float64 {
	if !(u > 0) {
		return 0
	}
	return min(u, math.Nextafter(1, 0))
}
