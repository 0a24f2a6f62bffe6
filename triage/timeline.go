package triage

import (
	"encoding/json"
	"slices"
	"time"
)

// maxSpans bounds a [Timeline]. Up to twice as many are kept until they are
// made fewer, so that this is rare.
const maxSpans = 256

// joinWithin is how close two moments are that need not be told apart.
const joinWithin = time.Minute

// Timeline says when something happened, in bounded memory: at most 512 spans
// of time with the number of moments in each. Moments within a minute of each
// other share a span. When there are too many spans, neighbours become one: those
// first that have a short silence between them and few moments in them. So the
// bounds of a dense episode, and long silences, are the last to go.
//
// The zero Timeline is empty. A Timeline is not safe for concurrent use. Its
// JSON form is a list of [first, last, count], in milliseconds since 1970.
type Timeline struct{ spans []span }

type span struct{ first, last, n int64 }

// Add records n moments at t. Precision is a millisecond.
func (l *Timeline) Add(t time.Time, n int64) { ms := t.UnixMilli(); l.add(span{ms, ms, n}) }

// Merge adds all moments of other, which does not change.
func (l *Timeline) Merge(other Timeline) {
	for _, s := range other.spans {
		l.add(s)
	}
}

// Clone returns a copy that shares nothing with l.
func (l Timeline) Clone() Timeline { return Timeline{slices.Clone(l.spans)} }

// Count returns the number of moments.
func (l Timeline) Count() (n int64) {
	for _, s := range l.spans {
		n += s.n
	}
	return n
}

// First and Last are the bounds; ok is false for an empty Timeline.
func (l Timeline) Bounds() (first, last time.Time, ok bool) {
	if len(l.spans) == 0 {
		return time.Time{}, time.Time{}, false
	}
	return utc(l.spans[0].first), utc(l.spans[len(l.spans)-1].last), true
}

func (l *Timeline) add(s span) {
	near := joinWithin.Milliseconds()
	// The last span is the one that nearly all moments belong to.
	i := len(l.spans)
	if i > 0 && s.first < l.spans[i-1].first {
		i, _ = slices.BinarySearchFunc(l.spans, s.first, func(x span, first int64) int {
			if x.first < first {
				return -1
			}
			return 1
		})
	}
	// All before i begin before s. Does s touch the one before?
	if i > 0 && s.first-l.spans[i-1].last <= near {
		i--
		l.spans[i].join(s)
	} else {
		l.spans = slices.Insert(l.spans, i, s)
	}
	// And those after it?
	j := i + 1
	for j < len(l.spans) && l.spans[j].first-l.spans[i].last <= near {
		l.spans[i].join(l.spans[j])
		j++
	}
	l.spans = slices.Delete(l.spans, i+1, j)
	if len(l.spans) >= 2*maxSpans {
		l.shrink()
	}
}

func (s *span) join(t span) {
	s.first, s.last, s.n = min(s.first, t.first), max(s.last, t.last), s.n+t.n
}

// shrink joins neighbours until maxSpans are left.
func (l *Timeline) shrink() {
	costs := make([]float64, 0, len(l.spans)) // of joining a span with the one before
	for i := 1; i < len(l.spans); i++ {
		a, b := l.spans[i-1], l.spans[i]
		costs = append(costs, float64(b.first-a.last)*float64(a.n+b.n))
	}
	sorted := slices.Sorted(slices.Values(costs))
	excess := len(l.spans) - maxSpans
	highest := sorted[excess-1]
	equal := excess // how many that cost as much as the highest are joined
	for _, c := range sorted[:excess] {
		if c < highest {
			equal--
		}
	}
	kept := l.spans[:1]
	for i, cost := range costs {
		switch next := l.spans[i+1]; {
		case cost < highest:
			kept[len(kept)-1].join(next)
		case cost == highest && equal > 0:
			equal--
			kept[len(kept)-1].join(next)
		default:
			kept = append(kept, next)
		}
	}
	l.spans = kept
}

// spacing is the silence between one moment and the next that is usual, in
// milliseconds: the median. It is zero for fewer than two moments.
func (l Timeline) spacing() (ms int64) {
	type weighted struct{ silence, n int64 }
	var all []weighted
	var total int64
	for i, s := range l.spans {
		if s.n > 1 {
			all = append(all, weighted{(s.last - s.first) / (s.n - 1), s.n - 1})
			total += s.n - 1
		}
		if i > 0 {
			all = append(all, weighted{s.first - l.spans[i-1].last, 1})
			total++
		}
	}
	slices.SortFunc(all, func(a, b weighted) int { return int(min(max(a.silence-b.silence, -1), 1)) })
	for half := total / 2; len(all) > 0; all = all[1:] {
		if half -= all[0].n; half < 0 {
			return all[0].silence
		}
	}
	return 0
}

// Episode is a stretch of time without a long silence.
type Episode struct {
	First time.Time `json:"firstSeen"`
	Last  time.Time `json:"lastSeen"`
	Count int64     `json:"count"`
}

// Episodes cuts the timeline wherever the silence is longer than given.
func (l Timeline) Episodes(silence time.Duration) []Episode {
	return l.episodes(silence.Milliseconds())
}

func (l Timeline) episodes(silence int64) []Episode {
	var episodes []Episode
	for i, s := range l.spans {
		if i > 0 && s.first-l.spans[i-1].last <= silence {
			e := &episodes[len(episodes)-1]
			e.Last, e.Count = utc(s.last), e.Count+s.n
			continue
		}
		episodes = append(episodes, Episode{utc(s.first), utc(s.last), s.n})
	}
	return episodes
}

// days is on how many days, in UTC, there was something. Within a span it
// counts every day.
func (l Timeline) days() (n int) {
	const day = 24 * 60 * 60 * 1000
	done := int64(-1 << 62) // the last day that is counted
	for _, s := range l.spans {
		from, to := max(floorDiv(s.first, day), done+1), floorDiv(s.last, day)
		if to >= from {
			n, done = n+int(to-from+1), to
		}
	}
	return n
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func utc(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// MarshalJSON implements [json.Marshaler].
func (l Timeline) MarshalJSON() ([]byte, error) {
	list := make([][3]int64, 0, len(l.spans))
	for _, s := range l.spans {
		list = append(list, [3]int64{s.first, s.last, s.n})
	}
	return json.Marshal(list)
}

// mostStored is more messages than there are, and leaves room to count on.
const mostStored = 1 << 50

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Timeline) UnmarshalJSON(data []byte) error {
	var list [][3]int64
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	l.spans = nil
	for _, s := range list {
		if n := min(s[2], mostStored); n > 0 {
			l.add(span{min(s[0], s[1]), max(s[0], s[1]), n})
		}
	}
	return nil
}
