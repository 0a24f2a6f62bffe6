package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keep is the duration that keeps payloads for ever.
const Keep time.Duration = -1

// Retention says for how long payloads are kept, with keys and headers: what
// may be personal data. Groups, decisions, error texts and the audit stay.
//
// There is no way to leave payloads out when collecting: the record is removed
// from its stream then, and the inventory has the only copy.
type Retention struct {
	Open   time.Duration // since an open dead letter failed; 0 means 90 days, Keep for ever
	Closed time.Duration // since it was closed; 0 means 15 days, Keep for ever
}

// The defaults of a [Retention].
const (
	DefaultKeepOpen   = 90 * 24 * time.Hour
	DefaultKeepClosed = 15 * 24 * time.Hour
)

func (r Retention) withDefaults() Retention {
	if r.Open == 0 {
		r.Open = DefaultKeepOpen
	}
	if r.Closed == 0 {
		r.Closed = DefaultKeepClosed
	}
	return r
}

// Swept says what a sweep did, or would do.
type Swept struct {
	Expired int64 // open dead letters that were closed as expired, and purged
	Purged  int64 // closed ones that were purged
}

// Sweep purges what is older than r says. An open dead letter that is purged
// is closed as [ReasonExpired]: without its payload nobody can replay it.
func (s *Store) Sweep(ctx context.Context, r Retention) (Swept, error) { return s.sweep(ctx, r, false) }

// SweepPlan returns what Sweep would do.
func (s *Store) SweepPlan(ctx context.Context, r Retention) (Swept, error) {
	return s.sweep(ctx, r, true)
}

func (s *Store) sweep(ctx context.Context, r Retention, dry bool) (swept Swept, err error) {
	r = r.withDefaults()
	now := time.Now()
	err = s.inTx(ctx, func(tx *tx) error {
		swept = Swept{}
		if r.Open >= 0 {
			if swept.Expired, err = tx.expire(ctx, now.Add(-r.Open), now); err != nil {
				return err
			}
		}
		if r.Closed >= 0 {
			if swept.Purged, err = tx.purge(ctx, `purged_at = 0 AND state = 'closed' AND closed_at < ?`, now, nanos(now.Add(-r.Closed))); err != nil {
				return err
			}
		}
		if dry {
			return errDryRun
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return Swept{}, fmt.Errorf("inventory: sweep: %w", err)
	}
	return swept, nil
}

// purge removes payload, key and headers of those of a condition that have
// them.
func (t *tx) purge(ctx context.Context, condition string, now time.Time, args ...any) (int64, error) {
	return t.exec(ctx, `UPDATE dead_letters SET payload = NULL, raw_key = NULL, key_hash = NULL, headers = '', purged_at = ?
		WHERE purged_at <= 0 AND `+condition, append([]any{nanos(now)}, args...)...)
}

// expire closes what is open and failed before a time, group by group, and
// purges it.
func (t *tx) expire(ctx context.Context, before, now time.Time) (n int64, err error) {
	var groups []string
	rows, err := t.query(ctx, `SELECT DISTINCT group_id FROM dead_letters WHERE state = 'open' AND failed_at < ? ORDER BY group_id`, nanos(before))
	err = each(rows, err, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		groups = append(groups, id)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, id := range groups {
		expired, err := t.expireGroup(ctx, id, before, now)
		if err != nil {
			return 0, err
		}
		n += expired
	}
	return n, nil
}

func (t *tx) expireGroup(ctx context.Context, id string, before, now time.Time) (int64, error) {
	g, err := t.lockGroup(ctx, id)
	if err != nil {
		return 0, err
	}
	// Nothing can be taken out of an aggregate, so both parts are made anew.
	gone, left := g.none(), g.none()
	rows, err := t.query(ctx, `SELECT `+entryColumns+` FROM dead_letters WHERE group_id = ? AND state = 'open' ORDER BY seq`, id)
	err = each(rows, err, func(scan func(...any) error) error {
		e, err := scanEntry(scan)
		if err != nil {
			return err
		}
		if e.FailedAt.Before(before) {
			gone.Add(entryOf(&e.DeadLetter, e.FailedAt))
		} else {
			left.Add(entryOf(&e.DeadLetter, e.FailedAt))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	done := Disposition{Action: ActionClose, Reason: ReasonExpired, At: now, Affected: gone.Count}
	done, err = t.decision(ctx, g, Decision{Author: systemAuthor, Note: "nobody decided in time"}, done, gone)
	if err != nil {
		return 0, err
	}
	_, err = t.exec(ctx, `UPDATE dead_letters SET state = 'closed', closed_at = ?, closed_by = ? WHERE group_id = ? AND state = 'open' AND failed_at < ?`,
		nanos(now), done.Seq, id, nanos(before))
	if err != nil {
		return 0, err
	}
	if _, err := t.purge(ctx, `closed_by = ? AND group_id = ?`, now, done.Seq, id); err != nil {
		return 0, err
	}
	if err := t.setClosed(ctx, done.Seq, id, gone); err != nil {
		return 0, err
	}
	return gone.Count, t.setOpen(ctx, id, left.Count, left)
}

// systemAuthor decides what nobody decides.
const systemAuthor = "spillway"
