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
	"unicode/utf8"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/triage"
)

// MessageState is what has become of a dead letter.
type MessageState string

// The states of dead letters. Their values are frozen.
const (
	MessageOpen   MessageState = "open"
	MessageClosed MessageState = "closed"
)

// Entry is a dead letter in the inventory.
type Entry struct {
	// DeadLetter as it was collected. Without payload, key and headers where
	// they were purged, or not asked for. Its id is the inventory's.
	DeadLetter  envelope.DeadLetter
	Group       string
	State       MessageState
	Stream      string // that it was collected from
	FailedAt    time.Time
	CollectedAt time.Time
	ClosedAt    time.Time // zero while it is open
	ClosedBy    int64     // the disposition; zero while it is open
	// PurgedAt is when its payload, key and headers were removed; zero if they
	// are there.
	PurgedAt time.Time
	// LeftOut says that they were never there: the record was only looked at.
	LeftOut bool
}

// Group is a triage group in the inventory.
type Group struct {
	ID          string
	Class       string
	Version     string // of the consumer
	SignatureID string
	Signature   string

	Total int64 // dead letters
	Open  int64 // of them not closed

	FirstFailed, LastFailed time.Time // of all of them
	CollectedAt             time.Time // the first of them

	// Aggregate is of the dead letters that are open.
	Aggregate *triage.Aggregate
}

const groupColumns = `id, class, version, signature_id, signature, total, still_open, first_failed, last_failed, collected_at, aggregate`

func scanGroup(scan func(...any) error) (g Group, err error) {
	var firstFailed, lastFailed, collected int64
	var aggregate string
	err = scan(&g.ID, &g.Class, &g.Version, &g.SignatureID, &g.Signature, &g.Total, &g.Open, &firstFailed, &lastFailed, &collected, &aggregate)
	if err != nil {
		return Group{}, err
	}
	g.CollectedAt, g.FirstFailed, g.LastFailed = timeOf(collected), timeOf(firstFailed), timeOf(lastFailed)
	g.Aggregate, err = decodeAggregate(aggregate)
	if err == nil && g.Aggregate == nil {
		g.Aggregate = g.none()
	}
	return g, err
}

// none is the aggregate of no dead letters of the group.
func (g *Group) none() *triage.Aggregate {
	return &triage.Aggregate{Class: g.Class, Version: g.Version, SignatureID: g.SignatureID, Signature: g.Signature}
}

func decodeAggregate(text string) (*triage.Aggregate, error) {
	if text == "" {
		return nil, nil
	}
	a := new(triage.Aggregate)
	return a, json.Unmarshal([]byte(text), a)
}

// Groups returns all triage groups, those with most open dead letters first.
func (s *Store) Groups(ctx context.Context) ([]Group, error) {
	groups, err := s.groups(ctx, `WHERE total > 0 ORDER BY still_open DESC, total DESC, id`)
	if err != nil {
		return nil, fmt.Errorf("inventory: groups: %w", err)
	}
	return groups, nil
}

func (s *Store) groups(ctx context.Context, rest string, args ...any) (groups []Group, err error) {
	rows, err := s.query(ctx, `SELECT `+groupColumns+` FROM triage_groups `+rest, args...)
	err = each(rows, err, func(scan func(...any) error) error {
		g, err := scanGroup(scan)
		groups = append(groups, g)
		return err
	})
	return groups, err
}

// Group returns the group whose id begins with prefix, of at least four
// characters. It is ErrNotFound if there is none, and ErrAmbiguous if there are
// several.
func (s *Store) Group(ctx context.Context, prefix string) (Group, error) {
	g, err := s.group(ctx, prefix)
	if err != nil {
		return Group{}, fmt.Errorf("inventory: group %q: %w", prefix, err)
	}
	return g, nil
}

func (s *Store) group(ctx context.Context, prefix string) (Group, error) {
	if len(prefix) < 4 {
		return Group{}, fmt.Errorf("%w: at least four characters of the id are needed", ErrAmbiguous)
	}
	// No comparison of texts: how they are in order is up to whoever made the database.
	n := utf8.RuneCountInString(prefix)
	groups, err := s.groups(ctx, `WHERE substr(id, 1, ?) = ? AND total > 0 ORDER BY length(id), id LIMIT 2`, n, prefix)
	if err == nil && len(groups) == 0 { // it may have become another one
		groups, err = s.groups(ctx, `WHERE total > 0 AND id IN (SELECT group_id FROM successors WHERE substr(old_group, 1, ?) = ?) ORDER BY id`, n, prefix)
		if err == nil && len(groups) > 1 {
			ids := make([]string, len(groups))
			for i, g := range groups {
				ids[i] = g.ID
			}
			return Group{}, fmt.Errorf("%w: it became several groups: %s", ErrAmbiguous, strings.Join(ids, ", "))
		}
	}
	switch {
	case err != nil:
		return Group{}, err
	case len(groups) == 0:
		return Group{}, ErrNotFound
	case len(groups) > 1 && groups[0].ID != prefix:
		return Group{}, fmt.Errorf("%w: %s and %s begin like this", ErrAmbiguous, groups[0].ID, groups[1].ID)
	}
	return groups[0], nil
}

const entryColumns = `id, group_id, state, stream, failed_at, collected_at, closed_at, closed_by, purged_at, document, raw_key, headers, payload`

func scanEntry(scan func(...any) error) (e Entry, err error) {
	var id, document, headers string
	var failed, collected, closed, purged int64
	var key, payload []byte
	if err := scan(&id, &e.Group, &e.State, &e.Stream, &failed, &collected, &closed, &e.ClosedBy, &purged, &document, &key, &headers, &payload); err != nil {
		return Entry{}, err
	}
	if e.DeadLetter, err = envelope.DecodeDeadLetter([]byte(document)); err != nil {
		return Entry{}, fmt.Errorf("dead letter %s: %w", id, err)
	}
	m := &e.DeadLetter.FailedMessage
	if len(key) > 0 {
		m.Key = key
	}
	if len(payload) > 0 {
		m.Payload = payload
	}
	if m.Headers, err = decodeHeaders(headers); err != nil {
		return Entry{}, fmt.Errorf("dead letter %s: %w", id, err)
	}
	e.DeadLetter.ID = id
	e.FailedAt, e.CollectedAt, e.ClosedAt = timeOf(failed), timeOf(collected), timeOf(closed)
	if e.LeftOut = purged == leftOut; !e.LeftOut {
		e.PurgedAt = timeOf(purged)
	}
	return e, nil
}

func (s *Store) entries(ctx context.Context, rest string, args ...any) (entries []Entry, err error) {
	rows, err := s.query(ctx, `SELECT `+entryColumns+` FROM dead_letters `+rest, args...)
	err = each(rows, err, func(scan func(...any) error) error {
		e, err := scanEntry(scan)
		entries = append(entries, e)
		return err
	})
	return entries, err
}

// DeadLetter returns a dead letter by its id, with its payload. It is
// ErrNotFound if there is none.
func (s *Store) DeadLetter(ctx context.Context, id string) (Entry, error) {
	e, err := scanEntry(s.row(ctx, `SELECT `+entryColumns+` FROM dead_letters WHERE id_hash = ? AND id = ?`, hashOf(indexed(id)), indexed(id)).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Entry{}, fmt.Errorf("inventory: dead letter %q: %w", id, err)
	}
	return e, nil
}

// Filter selects dead letters. Its zero value selects all.
type Filter struct {
	Group string // an id, whole
	State MessageState
	Limit int // the most that are returned; zero means all
}

// DeadLetters returns the dead letters of a filter, that which failed last
// first.
func (s *Store) DeadLetters(ctx context.Context, f Filter) ([]Entry, error) {
	where, args := f.where()
	entries, err := s.entries(ctx, where+` ORDER BY failed_at DESC, id`+limited(f.Limit), args...)
	if err != nil {
		return nil, fmt.Errorf("inventory: dead letters: %w", err)
	}
	return entries, nil
}

func (f Filter) where() (string, []any) {
	var parts []string
	var args []any
	if f.Group != "" {
		parts, args = append(parts, "group_id = ?"), append(args, f.Group)
	}
	if f.State != "" {
		parts, args = append(parts, "state = ?"), append(args, string(f.State))
	}
	if len(parts) == 0 {
		return "", nil
	}
	return "WHERE " + strings.Join(parts, " AND "), args
}

// Find returns the dead letters that a text is the id of: their own, that of
// the message, of the business object, or the key; those that failed last first,
// at most limit.
func (s *Store) Find(ctx context.Context, id string, limit int) ([]Entry, error) {
	x, own := hashOf(id), indexed(id)
	entries, err := s.entries(ctx, `WHERE id_hash = ? OR message_hash = ? OR aggregate_hash = ? OR key_hash = ?
		ORDER BY failed_at DESC, id`+limited(limit), hashOf(own), x, x, x)
	if err != nil {
		return nil, fmt.Errorf("inventory: find: %w", err)
	}
	return slices.DeleteFunc(entries, func(e Entry) bool {
		m := e.DeadLetter.FailedMessage
		return e.DeadLetter.ID != own && m.ID != id && m.Aggregate != id && string(m.Key) != id
	}), nil
}

// Totals are the counts of the whole inventory.
type Totals struct {
	DeadLetters int64
	Open        int64
	Groups      int64
	Quarantined int64
}

// Totals returns the counts of the whole inventory.
func (s *Store) Totals(ctx context.Context) (t Totals, err error) {
	err = s.row(ctx, `SELECT COALESCE(SUM(total), 0), COALESCE(SUM(still_open), 0), COUNT(*) FROM triage_groups WHERE total > 0`).Scan(&t.DeadLetters, &t.Open, &t.Groups)
	if err == nil {
		t.Quarantined, err = s.Quarantined(ctx)
	}
	if err != nil {
		return Totals{}, fmt.Errorf("inventory: totals: %w", err)
	}
	return t, nil
}
