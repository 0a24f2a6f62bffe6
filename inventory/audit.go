package inventory

import (
	"context"
	"fmt"
	"time"
)

// AuditEntry is a line of the audit: who did what, when, to what.
type AuditEntry struct {
	Seq     int64     // set by the inventory
	At      time.Time // set by the inventory
	Author  string
	Action  string // "collect", "close"
	Target  string // a group, stream or dead letter
	Filter  string // that chose what it was done to
	Total   int64  // how many dead letters it was done to
	Details string // more, as JSON; may be empty
}

// Record adds a line to the audit. Lines are never changed nor removed: the
// database refuses it.
func (s *Store) Record(ctx context.Context, e AuditEntry) error {
	err := s.inTx(ctx, func(tx *tx) error { return tx.record(ctx, time.Now(), e) })
	if err != nil {
		return fmt.Errorf("inventory: audit: %w", err)
	}
	return nil
}

func (t *tx) record(ctx context.Context, at time.Time, e AuditEntry) error {
	_, err := t.exec(ctx, `INSERT INTO audit (at, author, action, target, filter, total, details) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		nanos(at), plain(e.Author), plain(e.Action), indexed(e.Target), plain(e.Filter), e.Total, plain(e.Details))
	return err
}

// Audit returns the lines about a target, or all if that is empty, the latest
// first, at most limit; zero means all.
func (s *Store) Audit(ctx context.Context, target string, limit int) (entries []AuditEntry, err error) {
	where, args := "", []any(nil)
	if target != "" {
		where, args = " WHERE target = ?", []any{indexed(target)}
	}
	rows, err := s.query(ctx, `SELECT seq, at, author, action, target, filter, total, details FROM audit`+where+` ORDER BY seq DESC`+limited(limit), args...)
	err = each(rows, err, func(scan func(...any) error) error {
		var e AuditEntry
		var at int64
		err := scan(&e.Seq, &at, &e.Author, &e.Action, &e.Target, &e.Filter, &e.Total, &e.Details)
		e.At = timeOf(at)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inventory: audit: %w", err)
	}
	return entries, nil
}
