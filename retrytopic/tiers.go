package retrytopic

import (
	"fmt"
	"time"
)

// Tiers are the delays of the retry topics, ascending. A message waits in the
// first one that its delay does not exceed.
type Tiers []time.Duration

// DefaultTiers go from 2 seconds to 1 hour, a factor of two apart: a message
// that waits in one has at most as many others before it as came within half of
// its delay. They are fixed: a topic that a later version did not know would
// never be read again.
func DefaultTiers() Tiers {
	var all Tiers
	for d := 2 * time.Second; d < time.Hour; d *= 2 {
		all = append(all, d)
	}
	return append(all, time.Hour)
}

// Of returns the tier of a delay: the longest where it exceeds them all.
func (t Tiers) Of(d time.Duration) time.Duration {
	for _, tier := range t {
		if d <= tier {
			return tier
		}
	}
	return t.Longest()
}

// Longest is the longest delay that is kept in one piece.
func (t Tiers) Longest() time.Duration { return t[len(t)-1] }

// Name is the suffix of a tier's topic: "2s", "3600s".
func Name(tier time.Duration) string { return fmt.Sprintf("%ds", int64(tier/time.Second)) }
