package triage

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// State is where a group stands with the people who decide.
type State string

// The states. Their values are frozen.
const (
	Fresh     State = "fresh"     // never closed before
	Recurring State = "recurring" // closed before, and back
	Residue   State = "residue"   // fixed, and failing only in older versions
	Muted     State = "muted"     // until a time, a count or a rate
	Closed    State = "closed"    // and not back
)

// Disposition is an earlier decision about a group.
type Disposition struct {
	Reason  string    `json:"reason"`
	Version string    `json:"fixedIn,omitempty"` // the consumer version in which it was fixed
	Author  string    `json:"author,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Note    string    `json:"note,omitempty"`
}

// Standing is what is known of a group besides its dead letters. The zero
// value means fresh.
type Standing struct {
	State    State
	Previous *Disposition // nil if there is none
}

// Group is a triage group as people and other programs see it. The names and
// the meaning of its JSON form are stable.
type Group struct {
	ID              string      `json:"id"`
	Class           string      `json:"class"`
	Codes           []NameCount `json:"codes"`
	Consumer        string      `json:"consumer"` // of several, all that are known, with commas
	ConsumerVersion string      `json:"consumerVersion"`
	Signature       string      `json:"signature"`
	SignatureID     string      `json:"signatureId"`
	Count           int64       `json:"count"`
	// FirstSeen and LastSeen are of first attempts, and nil where no time is
	// known.
	FirstSeen     *time.Time `json:"firstSeen"`
	LastSeen      *time.Time `json:"lastSeen"`
	SpanHours     float64    `json:"spanHours"`
	Verdict       Verdict    `json:"verdict"`
	VerdictReason string     `json:"verdictReason"`
	// Episodes are those of the class and signature, across consumer versions.
	Episodes            []Episode    `json:"episodes"`
	State               State        `json:"state"`
	PreviousDisposition *Disposition `json:"previousDisposition"`
	Suggestion          string       `json:"suggestion"`
	Topics              []NameCount  `json:"topics"`
	Aggregates          []NameCount  `json:"aggregates"`
	Sample              Sample       `json:"sample"`

	suggestions []string // one, or two if mixed
}

// Suggestions are the next steps, one for each part of a mixed group.
func (g Group) Suggestions() []string { return slices.Clone(g.suggestions) }

// Window is the time from the first to the last first attempt.
type Window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Report is what triage says. The names of its JSON form are stable.
type Report struct {
	Messages    int64   `json:"messages"`
	Undecodable int64   `json:"undecodable"`
	Window      *Window `json:"window"` // nil where no time is known
	Groups      []Group `json:"groups"` // recurring first, then by count
}

// Options are those of [NewReport].
type Options struct {
	// Now is the present, to which an ongoing episode reaches. Zero means that of
	// [Present].
	Now        time.Time
	Thresholds Thresholds
	// Standing tells where a group stands. Nil means that all are fresh.
	Standing func(*Aggregate) Standing
	// Redact takes secrets and personal data out of texts that are shown. Nil
	// shows them as they are.
	Redact func(string) string
}

// Present is the time of the call; or that of the latest failure where it is up
// to a day later, as on a machine whose clock is behind. What failed later still
// says nothing: one clock far ahead must not make all others' failures old.
func Present(groups []*Aggregate) time.Time {
	clock := time.Now()
	now := clock
	for _, a := range groups {
		if a.LastFailed.After(now) && a.LastFailed.Sub(clock) <= 24*time.Hour {
			now = a.LastFailed
		}
	}
	return now
}

// NewReport makes a report of groups, which have different keys. It does not
// change them.
func NewReport(groups []*Aggregate, opts Options) Report {
	type cause struct{ class, signature string }
	type siblings struct {
		timeline Timeline
		count    int64
		verdict  Judgement
	}
	now := opts.Now
	if now.IsZero() {
		now = Present(groups)
	}
	causes := map[cause]*siblings{}
	for _, a := range groups {
		c := cause{a.Class, a.SignatureID}
		s := causes[c]
		if s == nil {
			s = new(siblings)
			causes[c] = s
		}
		s.timeline.Merge(a.Timeline)
		s.count += a.Count
	}
	for _, s := range causes {
		s.verdict = opts.Thresholds.Judge(s.timeline, s.count, now)
	}

	r := Report{Groups: make([]Group, 0, len(groups))}
	for _, a := range groups {
		standing := Standing{}
		if opts.Standing != nil {
			standing = opts.Standing(a)
		}
		g := newGroup(a, causes[cause{a.Class, a.SignatureID}].verdict, standing, now, opts.Redact)
		r.Groups = append(r.Groups, g)
		r.Messages += a.Count
		if a.FirstSeen.IsZero() {
			continue
		}
		if r.Window == nil {
			r.Window = &Window{a.FirstSeen, a.LastSeen}
		}
		if a.FirstSeen.Before(r.Window.From) {
			r.Window.From = a.FirstSeen
		}
		if a.LastSeen.After(r.Window.To) {
			r.Window.To = a.LastSeen
		}
	}
	slices.SortFunc(r.Groups, func(a, b Group) int {
		return cmp.Or(
			cmp.Compare(order(a.State), order(b.State)),
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Signature, b.Signature),
			cmp.Compare(a.ID, b.ID),
		)
	})
	return r
}

func order(s State) int {
	if s == Recurring {
		return 0
	}
	return 1
}

func newGroup(a *Aggregate, j Judgement, standing Standing, now time.Time, redact func(string) string) Group {
	g := Group{
		ID:                  a.ID(),
		Class:               a.Class,
		Codes:               orEmpty(a.Codes.List()),
		Consumer:            consumers(a.Consumers),
		ConsumerVersion:     a.Version,
		Signature:           a.Signature,
		SignatureID:         a.SignatureID,
		Count:               a.Count,
		Verdict:             j.Verdict,
		VerdictReason:       j.Reason,
		Episodes:            j.Episodes,
		State:               cmp.Or(standing.State, Fresh),
		PreviousDisposition: standing.Previous,
		Topics:              orEmpty(a.Topics.List()),
		Aggregates:          orEmpty(a.Aggregates.List()),
		Sample:              a.Sample,
	}
	if g.Episodes == nil {
		g.Episodes = []Episode{}
	}
	if !a.FirstSeen.IsZero() {
		g.FirstSeen, g.LastSeen = new(a.FirstSeen), new(a.LastSeen)
		g.SpanHours = a.LastSeen.Sub(a.FirstSeen).Hours()
	}
	if redact != nil {
		g.Signature, g.Sample.Text = redact(g.Signature), redact(g.Sample.Text)
	}
	g.suggestions = suggest(a, j, standing, now)
	g.Suggestion = strings.Join(g.suggestions, " ")
	return g
}

// consumers are nearly always one.
func consumers(names Names) string {
	var list []string
	for _, nc := range names.List() {
		list = append(list, nc.Name)
	}
	return strings.Join(list, ", ")
}

func orEmpty(list []NameCount) []NameCount {
	if list == nil {
		return []NameCount{}
	}
	return list
}
