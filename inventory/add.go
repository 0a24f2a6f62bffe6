package inventory

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/triage"
	"github.com/spillway-mq/spillway/triage/signature"
)

// Batch is what is written together.
type Batch struct {
	Items      []Item
	Quarantine []Quarantined // At and Seq are set by the inventory
	// LeaveOut stores the items without payloads, keys and headers. Adding an
	// item again without it fills them in.
	LeaveOut bool
	// NewSignatures of one consumer are told apart in an hour at most; 0 means
	// DefaultNewSignatures. Further ones fall into the group (overflow) of their
	// class and version: a text that a signature does not see through would
	// otherwise make a group of every message.
	NewSignatures int
}

// DefaultNewSignatures is how many signatures of one consumer may be new in an
// hour.
const DefaultNewSignatures = 500

// Added says what became of a batch.
type Added struct {
	New         int // dead letters that were not there before
	Duplicates  int // that were: a record that came again
	Quarantined int // records that were not there before
	Overflowed  int // of New, those in groups named (overflow)
}

func (a *Added) add(b Added) {
	a.New += b.New
	a.Duplicates += b.Duplicates
	a.Quarantined += b.Quarantined
	a.Overflowed += b.Overflowed
}

// rowsOfOne is how many rows one statement inserts. A statement costs more than
// a row.
const rowsOfOne = 64

// The statements that insert.
const (
	intoDeadLetters = `INSERT INTO dead_letters (id, id_hash, fingerprint, group_id, state, stream, message_hash, aggregate_hash, key_hash,
		failed_at, collected_at, purged_at, document, raw_key, headers, payload)
		VALUES (?, ?, ?, ?, 'open', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id_hash) DO NOTHING`
	intoGroups = `INSERT INTO triage_groups (id, class, version, signature_id, signature, total, still_open, first_failed, last_failed, collected_at, aggregate)
		VALUES (?, ?, ?, ?, ?, 0, 0, ?, ?, ?, '') ON CONFLICT (id) DO NOTHING`
	intoVersions = `INSERT INTO versions (consumer, version, first_seen) VALUES (?, ?, ?)
		ON CONFLICT (consumer, version) DO UPDATE SET
			first_seen = CASE WHEN excluded.first_seen < versions.first_seen THEN excluded.first_seen ELSE versions.first_seen END`
)

// many makes a statement for n rows of one for a single row.
func many(statement string, n int) string {
	head, rest, _ := strings.Cut(statement, "VALUES (")
	values, tail, _ := strings.Cut(rest, ")")
	return head + "VALUES (" + values + ")" + strings.Repeat(", ("+values+")", n-1) + tail
}

// Add stores a batch, all of it or nothing. What is there already counts as a
// duplicate. On return it is committed.
func (s *Store) Add(ctx context.Context, b Batch) (Added, error) {
	now := time.Now()
	signing, err := s.signing(ctx)
	if err != nil {
		return Added{}, fmt.Errorf("inventory: add: %w", err)
	}
	rows, err := rowsOf(b.Items, now, b.LeaveOut, signing)
	if err != nil {
		return Added{}, fmt.Errorf("inventory: add: %w", err)
	}
	// One order for all, so that two instances wait for each other at most once.
	// And it is that of the index.
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b *row) int { return cmp.Compare(a.hash, b.hash) })
	var added Added
	err = s.inTxOf(ctx, s.adds, func(tx *tx) error {
		if err := tx.overwriting(ctx, false); err != nil {
			return err
		}
		if err := tx.limit(ctx, rows, cmp.Or(b.NewSignatures, DefaultNewSignatures), now); err != nil {
			return err
		}
		isFresh, err := tx.addRows(ctx, sorted)
		if err != nil {
			return err
		}
		// As they came: of many names, an aggregate keeps those that came first.
		fresh := make([]*row, 0, len(isFresh))
		for _, r := range rows {
			if isFresh[r] {
				fresh = append(fresh, r)
			}
		}
		added = Added{New: len(fresh), Duplicates: len(rows) - len(fresh)}
		for _, r := range fresh {
			if r.signature.Text == triage.Overflow {
				added.Overflowed++
			}
		}
		if err := tx.count(ctx, fresh); err != nil {
			return err
		}
		added.Quarantined, err = tx.quarantine(ctx, b.Quarantine, now)
		return err
	})
	if err != nil {
		return Added{}, fmt.Errorf("inventory: add: %w", err)
	}
	return added, nil
}

// rowsOf encodes on all processors: it costs about as much as the database.
func rowsOf(items []Item, now time.Time, leaveOut bool, signing signing) ([]*row, error) {
	rows := make([]row, len(items))
	pointers := make([]*row, len(items))
	errs := make([]error, len(items))
	inParts(len(items), func(i int) {
		rows[i], errs[i] = rowOf(&items[i], now, signing)
		if leaveOut {
			rows[i].leaveOut()
		}
		pointers[i] = &rows[i]
	})
	return pointers, errors.Join(errs...)
}

// inParts calls do for 0 to n-1, on all processors if it is worth it.
func inParts(n int, do func(i int)) {
	part := max(64, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for from := 0; from < n; from += part {
		wg.Go(func() {
			for i := from; i < min(from+part, n); i++ {
				do(i)
			}
		})
	}
	wg.Wait()
}

// limit has rows overflow whose signature would be one too many.
func (t *tx) limit(ctx context.Context, rows []*row, most int, now time.Time) error {
	causes, groups := map[cause]bool{}, map[string]*row{} // that are there, that may be new
	var order []string
	for _, r := range rows {
		r.signature, r.group = r.signed, r.signedGroup // in a transaction that is tried again
		if groups[r.group] == nil {
			groups[r.group] = r
			order = append(order, r.group)
		}
	}
	for chunk := range slices.Chunk(order, 500) {
		args := make([]any, 0, len(chunk))
		for _, id := range chunk {
			args = append(args, groups[id].signature.ID)
		}
		res, err := t.query(ctx, `SELECT DISTINCT class, signature_id FROM triage_groups WHERE signature_id IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
		err = each(res, err, func(scan func(...any) error) error {
			var c cause
			err := scan(&c.class, &c.signatureID)
			causes[c] = true
			return err
		})
		if err != nil {
			return err
		}
	}
	full := map[string]bool{} // consumers
	over := map[cause]bool{}
	for _, id := range order {
		r := groups[id]
		c := cause{r.entry.Key(r.signature).Class, r.signature.ID}
		if causes[c] || over[c] {
			continue
		}
		if !full[r.consumer] {
			var n int
			err := t.row(ctx, `INSERT INTO new_signatures (consumer, hour, n) VALUES (?, ?, 1) ON CONFLICT (consumer) DO UPDATE SET
				n = CASE WHEN new_signatures.hour = excluded.hour THEN new_signatures.n + 1 ELSE 1 END, hour = excluded.hour RETURNING n`,
				r.consumer, now.Unix()/3600).Scan(&n)
			if err != nil {
				return err
			}
			full[r.consumer] = n > most
		}
		if full[r.consumer] {
			over[c] = true
		} else {
			causes[c] = true
		}
	}
	for _, r := range rows {
		if over[cause{r.entry.Key(r.signature).Class, r.signature.ID}] {
			r.signature = t.s.overflow()
			r.group = triage.GroupID(r.entry.Key(r.signature))
		}
	}
	return nil
}

// overflow is the signature of those that are too many.
func (s *Store) overflow() signature.Signature {
	return signature.Signature{ID: s.rules.version + ":" + triage.Overflow, Text: triage.Overflow}
}

// addRows inserts what is new, and returns it.
func (t *tx) addRows(ctx context.Context, rows []*row) (map[*row]bool, error) {
	fresh := make(map[*row]bool, len(rows))
	for len(rows) > 0 {
		var again []*row // that share an id with another one of this batch
		mine := map[int64]*row{}
		once := rows[:0:0]
		for _, r := range rows {
			switch have := mine[r.hash]; {
			case have == nil:
				mine[r.hash] = r
				once = append(once, r)
			case !bytes.Equal(have.fingerprint, r.fingerprint):
				again = append(again, r)
			}
		}
		inserted, err := t.insertRows(ctx, once)
		if err != nil {
			return nil, err
		}
		var present []*row
		for _, r := range once {
			if inserted[r.hash] {
				fresh[r] = true
			} else {
				present = append(present, r)
			}
		}
		others, err := t.others(ctx, present)
		if err != nil {
			return nil, err
		}
		for _, r := range others {
			r.rename()
		}
		rows = append(again, others...)
	}
	return fresh, nil
}

func (r *row) values() []any {
	return []any{
		r.id, r.hash, r.fingerprint, r.group, r.stream, r.messageID, r.aggregate, r.keyHash,
		r.failed, r.collectedAt, r.purgedAt, r.document, r.key, r.headers, r.payload,
	}
}

// insertRows returns the hashes of ids that were not there.
func (t *tx) insertRows(ctx context.Context, rows []*row) (map[int64]bool, error) {
	inserted := make(map[int64]bool, len(rows))
	note := func(scan func(...any) error) error {
		var hash int64
		err := scan(&hash)
		inserted[hash] = true
		return err
	}
	var last int64 // seq before
	if !t.s.dialect.returning {
		if err := t.row(ctx, `SELECT COALESCE(MAX(seq), 0) FROM dead_letters`).Scan(&last); err != nil {
			return nil, err
		}
	}
	n := int64(0)
	var args []any
	for chunk := range slices.Chunk(rows, rowsOfOne) {
		args = args[:0]
		for _, r := range chunk {
			args = append(args, r.values()...)
		}
		if t.s.dialect.returning {
			res, err := t.insertQuery(ctx, len(chunk), args)
			if err := each(res, err, note); err != nil {
				return nil, err
			}
			continue
		}
		added, err := t.insertExec(ctx, len(chunk), args)
		if err != nil {
			return nil, err
		}
		n += added
	}
	switch {
	case t.s.dialect.returning:
		return inserted, nil
	case n == int64(len(rows)): // nearly always
		for _, r := range rows {
			inserted[r.hash] = true
		}
		return inserted, nil
	}
	res, err := t.query(ctx, `SELECT id_hash FROM dead_letters WHERE seq > ?`, last)
	return inserted, each(res, err, note)
}

func (t *tx) insertQuery(ctx context.Context, n int, args []any) (*sql.Rows, error) {
	if n == rowsOfOne {
		return t.StmtContext(ctx, t.s.insert).QueryContext(ctx, args...)
	}
	return t.query(ctx, many(t.s.dialect.insert, n), args...)
}

func (t *tx) insertExec(ctx context.Context, n int, args []any) (int64, error) {
	if n != rowsOfOne {
		return t.exec(ctx, many(t.s.dialect.insert, n), args...)
	}
	r, err := t.StmtContext(ctx, t.s.insert).ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// leftOut is the time of purging of what was never there.
const leftOut = -1

func (r *row) leaveOut() {
	r.purgedAt, r.key, r.keyHash, r.headers, r.payload = leftOut, nil, nil, "", nil
}

// overwriting has a transaction of adds overwrite what it frees from here on:
// it moves rows.
func (t *tx) overwriting(ctx context.Context, on bool) error {
	if t.s.dialect.name != sqlite.name {
		return nil
	}
	value := map[bool]string{true: "ON", false: "OFF"}[on]
	_, err := t.exec(ctx, "PRAGMA secure_delete = "+value)
	return err
}

// fillIn completes a dead letter that was only looked at.
func (t *tx) fillIn(ctx context.Context, r *row) error {
	if err := t.overwriting(ctx, true); err != nil {
		return err
	}
	_, err := t.exec(ctx, `UPDATE dead_letters SET purged_at = 0, raw_key = ?, key_hash = ?, headers = ?, payload = ?, document = ?, stream = ?
		WHERE id_hash = ? AND purged_at = ?`, r.key, r.keyHash, r.headers, r.payload, r.document, r.stream, r.hash, leftOut)
	return err
}

// others returns those of rows whose id belongs to a dead letter with another
// content, and completes the rest where that is needed.
func (t *tx) others(ctx context.Context, rows []*row) (others []*row, err error) {
	for chunk := range slices.Chunk(rows, rowsOfOne) {
		byHash := map[int64]*row{}
		args := make([]any, len(chunk))
		for i, r := range chunk {
			byHash[r.hash], args[i] = r, r.hash
		}
		var incomplete []*row
		res, err := t.query(ctx, `SELECT id_hash, fingerprint, purged_at FROM dead_letters WHERE id_hash IN (?`+strings.Repeat(", ?", len(chunk)-1)+`)`, args...)
		err = each(res, err, func(scan func(...any) error) error {
			var hash, purged int64
			var fp []byte
			if err := scan(&hash, &fp, &purged); err != nil {
				return err
			}
			switch r := byHash[hash]; {
			case !bytes.Equal(fp, r.fingerprint):
				others = append(others, r)
			case purged == leftOut && r.purgedAt == 0:
				incomplete = append(incomplete, r)
			}
			return nil
		})
		for _, r := range incomplete {
			if err == nil {
				err = t.fillIn(ctx, r)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return others, nil
}

// tally is what a batch adds to a group.
type tally struct {
	rows                    []*row
	firstFailed, lastFailed int64
}

// count brings the groups up to date with what was inserted.
func (t *tx) count(ctx context.Context, rows []*row) error {
	groups := map[string]*tally{}
	versions := map[sighting]int64{}
	for _, r := range rows {
		r.entry.ID = r.id // which may be another one by now
		g := groups[r.group]
		if g == nil {
			g = &tally{firstFailed: r.failed, lastFailed: r.failed}
			groups[r.group] = g
		}
		g.rows = append(g.rows, r)
		g.firstFailed, g.lastFailed = min(g.firstFailed, r.failed), max(g.lastFailed, r.failed)
		v := sighting{r.consumer, r.entry.Key(r.signature).Version}
		if at, ok := versions[v]; !ok || r.failed < at {
			versions[v] = r.failed
		}
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if err := t.countGroup(ctx, id, groups[id]); err != nil {
			return err
		}
	}
	for _, v := range slices.SortedFunc(maps.Keys(versions), func(a, b sighting) int {
		return cmp.Or(strings.Compare(a.consumer, b.consumer), strings.Compare(a.version, b.version))
	}) {
		if _, err := t.exec(ctx, intoVersions, v.consumer, v.version, versions[v]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) countGroup(ctx context.Context, id string, g *tally) error {
	r := g.rows[0]
	k := r.entry.Key(r.signature)
	_, err := t.exec(ctx, intoGroups, id, k.Class, k.Version, k.SignatureID, bounded(r.signature.Text, maxShown), g.firstFailed, g.lastFailed, r.collectedAt)
	if err != nil {
		return err
	}
	open, err := t.aggregate(ctx, id) // and nobody else decides meanwhile
	if err != nil {
		return err
	}
	if open == nil {
		open = triage.NewAggregate(r.entry, r.signature)
	}
	late, err := t.closeLate(ctx, id, g.rows)
	if err != nil {
		return err
	}
	n := 0
	for _, r := range g.rows {
		if !late[r] {
			open.Add(r.entry)
			n++
		}
	}
	text, err := encodeAggregate(open)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `UPDATE triage_groups SET total = total + ?, still_open = still_open + ?, aggregate = ?,
		first_failed = CASE WHEN first_failed < ? THEN first_failed ELSE ? END,
		last_failed = CASE WHEN last_failed > ? THEN last_failed ELSE ? END WHERE id = ?`,
		len(g.rows), n, text, g.firstFailed, g.firstFailed, g.lastFailed, g.lastFailed, id)
	return err
}

// closeLate closes what failed before its group was closed and was collected
// after, and returns it: the decision was about it too.
func (t *tx) closeLate(ctx context.Context, group string, rows []*row) (map[*row]bool, error) {
	d, err := t.closing(ctx, group)
	if err != nil || d == nil {
		return nil, err
	}
	if d.Group != group { // it was about what is a part of the group now, or all of it
		var merged int
		if err := t.row(ctx, `SELECT merged FROM successors WHERE old_group = ? AND group_id = ?`, d.Group, group).Scan(&merged); err != nil || merged != 0 {
			return nil, err
		}
	}
	late := map[*row]bool{}
	for _, r := range rows {
		if r.failed > nanos(d.At) {
			continue
		}
		late[r] = true
		if err := t.overwriting(ctx, true); err != nil {
			return nil, err
		}
		_, err := t.exec(ctx, `UPDATE dead_letters SET state = 'closed', closed_at = ?, closed_by = ? WHERE id_hash = ?`, r.collectedAt, d.Seq, r.hash)
		if err != nil {
			return nil, err
		}
	}
	if len(late) == 0 {
		return nil, nil
	}
	a, err := t.closed(ctx, d.Seq, group)
	if err != nil {
		return nil, err
	}
	if a == nil {
		a = triage.NewAggregate(rows[0].entry, rows[0].signature)
	}
	for _, r := range rows {
		if late[r] {
			a.Add(r.entry)
		}
	}
	return late, t.setClosed(ctx, d.Seq, group, a)
}

// aggregate returns that of the open dead letters of a group, or nil if there
// are none, and keeps other writers off it.
func (t *tx) aggregate(ctx context.Context, id string) (*triage.Aggregate, error) {
	var text string
	err := t.row(ctx, `SELECT aggregate FROM triage_groups WHERE id = ?`+t.s.dialect.forUpdate, id).Scan(&text)
	if err != nil {
		return nil, err
	}
	return decodeAggregate(text)
}

// Quarantined is a record that could not be stored as a dead letter.
type Quarantined struct {
	Seq    int64 // set by the inventory
	Copies int   // set by the inventory: how many records are like this one in every byte
	Stream string
	Cause  string // why
	At     time.Time
	Record adapters.Record // without Native
}
