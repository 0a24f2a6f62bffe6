package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/triage"
)

// TriageOptions are those of [Store.Triage].
type TriageOptions struct {
	// Now is the present, to which an ongoing episode reaches; zero means the
	// time of the call.
	Now        time.Time
	Thresholds triage.Thresholds
	// Redact takes secrets and personal data out of texts that are shown; nil
	// shows them as they are.
	Redact func(string) string
}

// Triage is what triage says of an inventory.
type Triage struct {
	// Report is of the dead letters that are open, as of a file with them. Its
	// verdicts know of those that were closed, too: a defect that is closed
	// every week looks like an incident otherwise.
	triage.Report
	// Closed are groups without an open dead letter, the most messages first.
	Closed []triage.Group
	// Groups and Standings by the groups' ids.
	Groups    map[string]Group
	Standings map[string]Standing
}

// Triage groups what is in the inventory.
func (s *Store) Triage(ctx context.Context, opts TriageOptions) (Triage, error) {
	groups, err := s.Groups(ctx)
	if err != nil {
		return Triage{}, err
	}
	standings, err := s.Standings(ctx, groups)
	if err != nil {
		return Triage{}, err
	}
	closed, err := s.closedAggregates(ctx)
	if err != nil {
		return Triage{}, fmt.Errorf("inventory: triage: %w", err)
	}
	quarantined, err := s.Quarantined(ctx)
	if err != nil {
		return Triage{}, err
	}
	t := Triage{Groups: map[string]Group{}, Standings: standings}
	var all []*triage.Aggregate
	of := map[*triage.Aggregate]triage.Standing{}
	for _, g := range groups {
		t.Groups[g.ID] = g
		st := triage.Standing{State: standings[g.ID].State}
		if p := standings[g.ID].Previous; p != nil {
			st.Previous = &triage.Disposition{Reason: string(p.Reason), Version: p.FixedIn, Author: p.Author, At: p.At, Note: p.Note}
		}
		if g.Open > 0 {
			all = append(all, g.Aggregate)
			of[g.Aggregate] = st
		}
		if a := closed[g.ID]; a != nil {
			all = append(all, a)
			of[a] = triage.Standing{State: triage.Closed, Previous: st.Previous}
		}
	}
	report := triage.NewReport(all, triage.Options{
		Now: opts.Now, Thresholds: opts.Thresholds, Redact: opts.Redact,
		Standing: func(a *triage.Aggregate) triage.Standing { return of[a] },
	})
	t.Report = triage.Report{Undecodable: quarantined, Groups: []triage.Group{}}
	for _, g := range report.Groups {
		if g.State != triage.Closed {
			t.Report.Groups = append(t.Report.Groups, g)
			t.Messages += g.Count
			t.widen(g.FirstSeen, g.LastSeen)
		} else if t.Groups[g.ID].Open == 0 {
			t.Closed = append(t.Closed, g)
		}
	}
	return t, nil
}

func (t *Triage) widen(first, last *time.Time) {
	switch {
	case first == nil || last == nil:
	case t.Window == nil:
		t.Window = &triage.Window{From: *first, To: *last}
	default:
		if first.Before(t.Window.From) {
			t.Window.From = *first
		}
		if last.After(t.Window.To) {
			t.Window.To = *last
		}
	}
}

// closedAggregates returns what was closed of each group, in all.
func (s *Store) closedAggregates(ctx context.Context) (map[string]*triage.Aggregate, error) {
	closed := map[string]*triage.Aggregate{}
	rows, err := s.query(ctx, `SELECT group_id, aggregate FROM closed_aggregates ORDER BY decision`)
	return closed, each(rows, err, func(scan func(...any) error) error {
		var id, text string
		if err := scan(&id, &text); err != nil {
			return err
		}
		a, err := decodeAggregate(text)
		switch {
		case err != nil || a == nil:
		case closed[id] == nil:
			closed[id] = a
		default:
			closed[id].Merge(a)
		}
		return err
	})
}
