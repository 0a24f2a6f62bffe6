package inventory

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/triage"
)

// Reason is why dead letters are closed. The values are frozen, and the list is
// closed: there is no other.
type Reason string

// The reasons that a person can give.
const (
	ReasonEntityDeleted    Reason = "entity_deleted"    // what the message refers to is gone
	ReasonWindowExpired    Reason = "window_expired"    // the event has lost its validity
	ReasonProducerRetired  Reason = "producer_retired"  // the format is of a producer that is no more
	ReasonAlreadyProcessed Reason = "already_processed" // another path did the work
	ReasonFixedInCode      Reason = "fixed_in_code"     // needs the version
	ReasonHandledByHand    Reason = "handled_by_hand"
	ReasonAcceptedLoss     Reason = "accepted_loss"
	ReasonTestData         Reason = "test_data"
)

// The reasons that only Spillway gives.
const (
	ReasonReplayedOK Reason = "replayed_ok" // a replay was processed
	ReasonExpired    Reason = "expired"     // nobody decided in time, and the payload was purged
)

// Reasons are those that a person can give.
func Reasons() []Reason {
	return []Reason{
		ReasonEntityDeleted, ReasonWindowExpired, ReasonProducerRetired, ReasonAlreadyProcessed,
		ReasonFixedInCode, ReasonHandledByHand, ReasonAcceptedLoss, ReasonTestData,
	}
}

// Action is what was decided about a group.
type Action string

// The actions. Their values are frozen.
const (
	ActionClose  Action = "close"
	ActionReopen Action = "reopen"
	ActionMute   Action = "mute"
)

// Decision is an order to decide about a group.
type Decision struct {
	Group  string // its id, or the beginning of it
	Author string // required
	Note   string

	Reason  Reason // to close
	FixedIn string // to close as fixed_in_code: the version of the consumer
	// To mute: what comes first ends it. All zero, it ends now.
	Until     time.Time
	UntilMore int64 // dead letters of the group
	UntilRate int64 // more than so many failures in an hour, for as long as there are

	// DryRun changes nothing, and returns what would be recorded.
	DryRun bool
}

// Disposition is a decision as it was recorded. Dispositions are never changed
// nor removed.
type Disposition struct {
	Seq         int64
	At          time.Time
	Author      string
	Action      Action
	Group       string
	Class       string
	SignatureID string
	Signature   string
	Consumers   string // the groups of consumers, with commas
	Version     string // of the consumer
	Reason      Reason
	FixedIn     string
	Note        string
	Affected    int64     // dead letters that were closed or opened
	FirstSeen   time.Time // of their first attempts; zero if not known
	LastSeen    time.Time
	// Of a mute; all zero say that it ended.
	Until      time.Time
	UntilTotal int64 // how many dead letters the group has had then
	UntilRate  int64 // more than so many failures in an hour
	Of         int64 // the disposition that a reopening takes back
}

// CloseGroup closes all dead letters of a group that are open, for a reason of
// [Reasons]. What is collected later and failed before that is closed with
// them.
func (s *Store) CloseGroup(ctx context.Context, d Decision) (Disposition, error) {
	if err := d.check(); err != nil {
		return Disposition{}, fmt.Errorf("inventory: close: %w", err)
	}
	return s.decide(ctx, ActionClose, d)
}

func (d Decision) check() error {
	switch {
	case !slices.Contains(Reasons(), d.Reason):
		names := make([]string, 0, len(Reasons()))
		for _, r := range Reasons() {
			names = append(names, string(r))
		}
		what := "a reason is needed"
		if d.Reason != "" {
			what = fmt.Sprintf("%q is no reason", string(d.Reason))
		}
		return fmt.Errorf("%w: %s; there are %s", ErrRefused, what, strings.Join(names, ", "))
	case d.Reason == ReasonFixedInCode && strings.TrimSpace(d.FixedIn) == "":
		return fmt.Errorf("%w: %s needs the version of the consumer that has the fix, so that later failures can be told from late ones", ErrRefused, ReasonFixedInCode)
	case d.Reason != ReasonFixedInCode && d.FixedIn != "":
		return fmt.Errorf("%w: a version belongs to %s only, not to %s", ErrRefused, ReasonFixedInCode, d.Reason)
	}
	return nil
}

// Reopen takes back the latest closing of a group: its dead letters are open
// again.
func (s *Store) Reopen(ctx context.Context, d Decision) (Disposition, error) {
	return s.decide(ctx, ActionReopen, d)
}

// Mute has a group raise no alarm until a time, until so many more dead letters
// have come, or while few fail in an hour. It closes nothing, and what is muted
// is counted and shown.
func (s *Store) Mute(ctx context.Context, d Decision) (Disposition, error) {
	if d.UntilMore < 0 || d.UntilRate < 0 {
		return Disposition{}, fmt.Errorf("inventory: mute: %w: a number of dead letters is 1 or more", ErrRefused)
	}
	if !d.Until.IsZero() && !d.Until.After(time.Now()) {
		return Disposition{}, fmt.Errorf("inventory: mute: %w: %s is not in the future", ErrRefused, d.Until.UTC().Format(time.RFC3339))
	}
	return s.decide(ctx, ActionMute, d)
}

func (s *Store) decide(ctx context.Context, action Action, d Decision) (Disposition, error) {
	var done Disposition
	err := func() error {
		if d.Author == "" {
			return fmt.Errorf("%w: a decision has an author", ErrRefused)
		}
		g, err := s.group(ctx, d.Group)
		if err != nil {
			return err
		}
		return s.inTx(ctx, func(tx *tx) error {
			// Again, and nobody else meanwhile.
			if g, err = tx.lockGroup(ctx, g.ID); err != nil {
				return err
			}
			switch action {
			case ActionClose:
				done, err = tx.closeGroup(ctx, g, d, time.Now())
			case ActionReopen:
				done, err = tx.reopen(ctx, g, d, time.Now())
			case ActionMute:
				mute := Disposition{Action: ActionMute, At: time.Now(), Until: d.Until, UntilRate: d.UntilRate}
				if d.UntilMore > 0 {
					mute.UntilTotal = g.Total + d.UntilMore
				}
				done, err = tx.decision(ctx, g, d, mute, g.Aggregate)
			}
			if err == nil && d.DryRun {
				err = errDryRun
			}
			return err
		})
	}()
	if err != nil && !errors.Is(err, errDryRun) {
		return Disposition{}, fmt.Errorf("inventory: %s %q: %w", action, d.Group, err)
	}
	return done, nil
}

var errDryRun = errors.New("dry run")

func (t *tx) lockGroup(ctx context.Context, id string) (Group, error) {
	return scanGroup(t.row(ctx, `SELECT `+groupColumns+` FROM triage_groups WHERE id = ?`+t.s.dialect.forUpdate, id).Scan)
}

// decision records what was done to the dead letters of an aggregate, in the
// audit too.
func (t *tx) decision(ctx context.Context, g Group, d Decision, done Disposition, a *triage.Aggregate) (Disposition, error) {
	done.Group, done.Class, done.SignatureID, done.Signature, done.Version = g.ID, g.Class, g.SignatureID, g.Signature, g.Version
	done.Author, done.Note, done.At = plain(d.Author), plain(d.Note), done.At.UTC()
	done.Consumers = consumers(a)
	done.FirstSeen, done.LastSeen = a.FirstSeen, a.LastSeen
	err := t.row(ctx, `INSERT INTO decisions (at, author, action, group_id, class, signature_id, signature, consumers, version,
			reason, fixed_in, note, affected, first_seen, last_seen, muted_until, takes_back, muted_total, muted_rate)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq`,
		nanos(done.At), done.Author, string(done.Action), done.Group, done.Class, done.SignatureID, done.Signature, done.Consumers, done.Version,
		string(done.Reason), done.FixedIn, done.Note, done.Affected, nanos(done.FirstSeen), nanos(done.LastSeen), nanos(done.Until), done.Of, done.UntilTotal, done.UntilRate).Scan(&done.Seq)
	if err != nil {
		return Disposition{}, err
	}
	details, err := json.Marshal(map[string]any{"decision": done.Seq, "reason": done.Reason, "fixedIn": done.FixedIn, "note": done.Note})
	if err != nil {
		return Disposition{}, err
	}
	return done, t.record(ctx, done.At, AuditEntry{
		Author: done.Author, Action: string(done.Action), Target: g.ID, Filter: "group=" + g.ID, Total: done.Affected, Details: string(details),
	})
}

func consumers(a *triage.Aggregate) string {
	var names []string
	for _, nc := range a.Consumers.List() {
		names = append(names, nc.Name)
	}
	return bounded(strings.Join(names, ", "), maxShown)
}

func (t *tx) closeGroup(ctx context.Context, g Group, d Decision, now time.Time) (Disposition, error) {
	if g.Open == 0 {
		return Disposition{}, fmt.Errorf("%w: none of its dead letters is open", ErrRefused)
	}
	done := Disposition{Action: ActionClose, Reason: d.Reason, FixedIn: strings.TrimSpace(plain(d.FixedIn)), Affected: g.Open, At: now}
	if g.LastFailed.After(now) {
		done.At = g.LastFailed // the clock of another instance
	}
	done, err := t.decision(ctx, g, d, done, g.Aggregate)
	if err != nil {
		return Disposition{}, err
	}
	_, err = t.exec(ctx, `UPDATE dead_letters SET state = 'closed', closed_at = ?, closed_by = ? WHERE group_id = ? AND state = 'open'`,
		nanos(done.At), done.Seq, g.ID)
	if err != nil {
		return Disposition{}, err
	}
	if err := t.setClosed(ctx, done.Seq, g.ID, g.Aggregate); err != nil {
		return Disposition{}, err
	}
	return done, t.setOpen(ctx, g.ID, 0, nil)
}

// setOpen says what of a group is open.
func (t *tx) setOpen(ctx context.Context, group string, n int64, a *triage.Aggregate) error {
	text, err := encodeAggregate(a)
	if err == nil {
		_, err = t.exec(ctx, `UPDATE triage_groups SET still_open = ?, aggregate = ? WHERE id = ?`, n, text, group)
	}
	return err
}

// setClosed says what a decision has closed.
func (t *tx) setClosed(ctx context.Context, seq int64, group string, a *triage.Aggregate) error {
	text, err := encodeAggregate(a)
	if err == nil {
		_, err = t.exec(ctx, `INSERT INTO closed_aggregates (decision, group_id, aggregate) VALUES (?, ?, ?)
			ON CONFLICT (decision, group_id) DO UPDATE SET aggregate = excluded.aggregate`, seq, group, text)
	}
	return err
}

func encodeAggregate(a *triage.Aggregate) (string, error) {
	if a == nil || a.Count == 0 {
		return "", nil
	}
	text, err := json.Marshal(a)
	return string(text), err
}

// closed returns what a decision has closed of a group, or nil for nothing.
func (t *tx) closed(ctx context.Context, seq int64, group string) (*triage.Aggregate, error) {
	var text string
	err := t.row(ctx, `SELECT aggregate FROM closed_aggregates WHERE decision = ? AND group_id = ?`+t.s.dialect.forUpdate, seq, group).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeAggregate(text)
}

func (t *tx) reopen(ctx context.Context, g Group, d Decision, now time.Time) (Disposition, error) {
	latest, err := t.closing(ctx, g.ID)
	if err != nil {
		return Disposition{}, err
	}
	if latest == nil {
		return Disposition{}, fmt.Errorf("%w: it is not closed", ErrRefused)
	}
	n, err := t.exec(ctx, `UPDATE dead_letters SET state = 'open', closed_at = 0, closed_by = 0 WHERE closed_by = ?`, latest.Seq)
	if err != nil {
		return Disposition{}, err
	}
	// What it closed may be in several groups since then.
	all := g.none()
	groups, err := t.texts(ctx, `SELECT group_id FROM closed_aggregates WHERE decision = ? ORDER BY group_id`, latest.Seq)
	if err != nil {
		return Disposition{}, err
	}
	for _, id := range groups {
		a, err := t.closed(ctx, latest.Seq, id)
		if err != nil {
			return Disposition{}, err
		}
		if a == nil {
			continue
		}
		of, err := t.lockGroup(ctx, id)
		if err != nil {
			return Disposition{}, err
		}
		all.Merge(a)
		of.Aggregate.Merge(a)
		if err := t.setOpen(ctx, id, of.Open+a.Count, of.Aggregate); err != nil {
			return Disposition{}, err
		}
	}
	if _, err := t.exec(ctx, `DELETE FROM closed_aggregates WHERE decision = ?`, latest.Seq); err != nil {
		return Disposition{}, err
	}
	return t.decision(ctx, g, d, Disposition{Action: ActionReopen, At: now, Reason: latest.Reason, Affected: n, Of: latest.Seq}, all)
}

// texts returns a column.
func (t *tx) texts(ctx context.Context, query string, args ...any) (all []string, err error) {
	rows, err := t.query(ctx, query, args...)
	return all, each(rows, err, func(scan func(...any) error) error {
		var text string
		err := scan(&text)
		all = append(all, text)
		return err
	})
}

// closing is the latest closing of a group, or of one that it comes from, that
// was not taken back, or nil.
// That nobody decided in time is none: it says nothing of what comes later.
func (t *tx) closing(ctx context.Context, group string) (*Disposition, error) {
	rows, err := t.query(ctx, `SELECT `+decisionColumns+` FROM decisions d
		WHERE (group_id = ? OR group_id IN (SELECT old_group FROM successors WHERE successors.group_id = ?)) AND action = 'close' AND reason <> 'expired'
		AND NOT EXISTS (SELECT 1 FROM decisions r WHERE r.takes_back = d.seq) ORDER BY seq DESC LIMIT 1`, group, group)
	all, err := scanDecisions(rows, err)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

const decisionColumns = `seq, at, author, action, group_id, class, signature_id, signature, consumers, version,
	reason, fixed_in, note, affected, first_seen, last_seen, muted_until, takes_back, muted_total, muted_rate`

func scanDecisions(rows *sql.Rows, err error) (all []Disposition, _ error) {
	err = each(rows, err, func(scan func(...any) error) error {
		var d Disposition
		var at, firstSeen, lastSeen, until int64
		err := scan(&d.Seq, &at, &d.Author, &d.Action, &d.Group, &d.Class, &d.SignatureID, &d.Signature, &d.Consumers, &d.Version,
			&d.Reason, &d.FixedIn, &d.Note, &d.Affected, &firstSeen, &lastSeen, &until, &d.Of, &d.UntilTotal, &d.UntilRate)
		d.At, d.FirstSeen, d.LastSeen, d.Until = timeOf(at), timeOf(firstSeen), timeOf(lastSeen), timeOf(until)
		all = append(all, d)
		return err
	})
	return all, err
}

// DispositionFilter selects decisions. Its zero value selects all. Those about
// groups that a group comes from are about it, too.
type DispositionFilter struct {
	Group       string // an id, whole
	Class       string // with SignatureID, of all versions of a consumer
	SignatureID string
	Since       time.Time
}

// Dispositions returns decisions, the latest first.
func (s *Store) Dispositions(ctx context.Context, f DispositionFilter) ([]Disposition, error) {
	var parts []string
	var args []any
	if f.Group != "" {
		parts = append(parts, "(group_id = ? OR group_id IN (SELECT old_group FROM successors WHERE successors.group_id = ?))")
		args = append(args, f.Group, f.Group)
	}
	if f.SignatureID != "" {
		parts = append(parts, "class = ?", "(signature_id = ? OR signature_id IN (SELECT old_signature_id FROM successors WHERE class = ? AND successors.signature_id = ?))")
		args = append(args, f.Class, f.SignatureID, f.Class, f.SignatureID)
	}
	if !f.Since.IsZero() {
		parts, args = append(parts, "at >= ?"), append(args, nanos(f.Since))
	}
	where := ""
	if len(parts) > 0 {
		where = " WHERE " + strings.Join(parts, " AND ")
	}
	rows, err := s.query(ctx, `SELECT `+decisionColumns+` FROM decisions`+where+` ORDER BY seq DESC`, args...)
	all, err := scanDecisions(rows, err)
	if err != nil {
		return nil, fmt.Errorf("inventory: dispositions: %w", err)
	}
	return all, nil
}

// Standing is where a group stands with the people who decide.
type Standing struct {
	State triage.State
	// Previous is the latest closing of the same cause, in whichever version,
	// that was not taken back, and that the group failed after if it failed after
	// any; nil if there is none.
	Previous *Disposition
	// Why says what decided, where versions were compared, or until when it is
	// muted; else empty.
	Why string
}

// Standings returns where groups stand, by their ids.
func (s *Store) Standings(ctx context.Context, groups []Group) (map[string]Standing, error) {
	all, err := s.Dispositions(ctx, DispositionFilter{})
	if err != nil {
		return nil, err
	}
	sightings, err := s.sightings(ctx)
	if err != nil {
		return nil, fmt.Errorf("inventory: standings: %w", err)
	}
	became, err := s.successors(ctx)
	if err != nil {
		return nil, fmt.Errorf("inventory: standings: %w", err)
	}
	h := newHistory(all, sightings, became)
	now := time.Now()
	h.recent = map[string]int64{}
	for _, g := range groups {
		if m := h.mutes[g.ID]; m == nil || m.UntilRate == 0 {
			continue
		}
		var n int64
		err := s.row(ctx, `SELECT COUNT(*) FROM dead_letters WHERE group_id = ? AND failed_at > ?`, g.ID, nanos(now.Add(-time.Hour))).Scan(&n)
		if err != nil {
			return nil, fmt.Errorf("inventory: standings: %w", err)
		}
		h.recent[g.ID] = n
	}
	standings := make(map[string]Standing, len(groups))
	for _, g := range groups {
		standings[g.ID] = h.standing(g, now)
	}
	return standings, nil
}

type cause struct{ class, signatureID string }

type sighting struct{ consumer, version string }

// history is all that was decided.
type history struct {
	closings  map[cause][]*Disposition // by people, not taken back, the latest first
	mutes     map[string]*Disposition  // the latest, by group
	sightings map[sighting]time.Time
	recent    map[string]int64 // failures within an hour, of groups that are muted by rate
}

func newHistory(latestFirst []Disposition, sightings map[sighting]time.Time, became successors) history {
	h := history{closings: map[cause][]*Disposition{}, mutes: map[string]*Disposition{}, sightings: sightings}
	takenBack := map[int64]bool{}
	for i := range latestFirst {
		d := &latestFirst[i]
		switch {
		case d.Action == ActionReopen:
			takenBack[d.Of] = true
		case d.Action == ActionMute:
			for _, group := range append(became.groups[d.Group], d.Group) {
				if h.mutes[group] == nil {
					h.mutes[group] = d
				}
			}
		case d.Action == ActionClose && !takenBack[d.Seq] && d.Reason != ReasonExpired:
			c := cause{d.Class, d.SignatureID}
			for _, c := range append(became.causes[c], c) {
				h.closings[c] = append(h.closings[c], d)
			}
		}
	}
	return h
}

// previous is the latest closing that a group failed after, if there is one: a
// later one, about other versions, takes nothing back of it. Else it is the
// latest.
func (h history) previous(g Group) *Disposition {
	all := h.closings[cause{g.Class, g.SignatureID}]
	if len(all) == 0 {
		return nil
	}
	if i := slices.IndexFunc(all, func(d *Disposition) bool { return g.LastFailed.After(d.At) }); i > 0 && g.Open > 0 {
		return all[i]
	}
	return all[0]
}

func (h history) standing(g Group, now time.Time) Standing {
	s := Standing{State: triage.Fresh, Previous: h.previous(g)}
	p := s.Previous
	if m := h.mutes[g.ID]; g.Open > 0 && m != nil && m.mutes(g, h.recent[g.ID], now) {
		s.State, s.Why = triage.Muted, m.until()+", by "+m.Author
		return s
	}
	switch {
	case g.Open == 0:
		s.State = triage.Closed
	case p == nil:
	case !g.LastFailed.After(p.At):
		// Of another version, and no failure is later than the decision: it was
		// not about these, and they did not come back.
	case p.Reason != ReasonFixedInCode:
		s.State = triage.Recurring
	default:
		var below bool
		if below, s.Why = h.below(g, p); below {
			s.State = triage.Residue
		} else {
			s.State = triage.Recurring
		}
	}
	return s
}

// mutes reports whether a mute holds for a group.
func (d *Disposition) mutes(g Group, recent int64, now time.Time) bool {
	switch {
	case d.Until.IsZero() && d.UntilTotal == 0 && d.UntilRate == 0:
		return false
	case !d.Until.IsZero() && !d.Until.After(now), d.UntilTotal > 0 && g.Total >= d.UntilTotal:
		return false
	}
	return d.UntilRate == 0 || recent <= d.UntilRate
}

// until says what ends a mute.
func (d *Disposition) until() string {
	var ends []string
	if !d.Until.IsZero() {
		ends = append(ends, "until "+clock(d.Until))
	}
	if d.UntilTotal > 0 {
		ends = append(ends, fmt.Sprintf("until there were %d", d.UntilTotal))
	}
	if d.UntilRate > 0 {
		ends = append(ends, fmt.Sprintf("while no more than %d fail in an hour", d.UntilRate))
	}
	return strings.Join(ends, " or ")
}

// below reports whether the version of a group comes before that which has the
// fix, and what that was decided by. Two versions are compared and never with
// the latest that was seen: a message can name any.
func (h history) below(g Group, p *Disposition) (bool, string) {
	if g.Version == "" || g.Version == triage.Unknown {
		return false, "the consumer's version is not known"
	}
	if c, ok := CompareVersions(g.Version, p.FixedIn); ok {
		words := map[int]string{-1: "below", 0: "the same as", 1: "above"}
		return c < 0, fmt.Sprintf("version %s is %s %s, in which it was fixed", g.Version, words[c], p.FixedIn)
	}
	if g.Version == p.FixedIn {
		return false, fmt.Sprintf("version %s is the one in which it was fixed", g.Version)
	}
	seen := h.firstSeen(g, g.Version)
	if fixed := h.firstSeen(g, p.FixedIn); !fixed.IsZero() {
		return seen.Before(fixed), fmt.Sprintf("version %s was first seen %s, version %s %s", g.Version, clock(seen), p.FixedIn, clock(fixed))
	}
	// The version with the fix may never fail, and so was never seen.
	return seen.Before(p.At), fmt.Sprintf("version %s was first seen %s, and the decision is of %s", g.Version, clock(seen), clock(p.At))
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// firstSeen is when a version of a group's consumers was first seen to fail.
func (h history) firstSeen(g Group, version string) (first time.Time) {
	for _, nc := range g.Aggregate.Consumers.List() {
		if t := h.sightings[sighting{nc.Name, version}]; !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if first.IsZero() && version == g.Version {
		first = g.FirstFailed
	}
	return first
}

func (s *Store) sightings(ctx context.Context) (map[sighting]time.Time, error) {
	all := map[sighting]time.Time{}
	rows, err := s.query(ctx, `SELECT consumer, version, first_seen FROM versions`)
	return all, each(rows, err, func(scan func(...any) error) error {
		var k sighting
		var at int64
		err := scan(&k.consumer, &k.version, &at)
		all[k] = timeOf(at)
		return err
	})
}

// String is a disposition in one line.
func (d Disposition) String() string {
	s := string(d.Action)
	if d.Action == ActionClose {
		s = "closed as " + string(d.Reason)
		if d.FixedIn != "" {
			s += " in " + d.FixedIn
		}
	}
	if d.Action == ActionReopen {
		s = "reopened"
	}
	if d.Action == ActionMute {
		s = "unmuted"
		if until := d.until(); until != "" {
			s = "muted " + until
		}
	}
	s += fmt.Sprintf(" on %s by %s", clock(d.At), d.Author)
	if d.Note != "" {
		s += ": " + d.Note
	}
	return s
}
