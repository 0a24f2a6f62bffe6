package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/triage"
	"github.com/spillway-mq/spillway/triage/signature"
)

// rules are what signs error texts.
type rules struct {
	version string // which begins every id
	of      func(text string) signature.Signature
}

var currentRules = rules{signature.Version, signature.Of}

// signing is how dead letters are signed now: by the rules, and as people
// overrule them.
type signing struct {
	rules
	into map[cause]signature.Signature
	by   map[cause]string // a field
}

// of returns the signature of a dead letter.
func (s signing) of(d *envelope.DeadLetter, e triage.Entry) signature.Signature {
	sig := s.rules.of(e.Text)
	if len(s.into)+len(s.by) == 0 {
		return sig
	}
	c := cause{e.Key(sig).Class, sig.ID}
	if other, ok := s.into[c]; ok {
		sig, c.signatureID = other, other.ID
	}
	if field, ok := s.by[c]; ok {
		value := indexed(valueOf(field, d, e))
		sum := sha256.Sum256([]byte(sig.ID + "\x00" + field + "\x00" + value))
		sig = signature.Signature{ID: s.version + ":" + base32s.EncodeToString(sum[:10]), Text: fmt.Sprintf("%s [%s %s]", sig.Text, field, value)}
	}
	return sig
}

var base32s = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567")

// signing loads what is overruled.
func (s *Store) signing(ctx context.Context) (signing, error) {
	all, err := s.overrides(ctx)
	if err != nil {
		return signing{}, err
	}
	return s.signingOf(all), nil
}

func (s *Store) signingOf(all []Override) signing {
	sg := signing{s.rules, map[cause]signature.Signature{}, map[cause]string{}}
	for _, o := range all {
		c := cause{o.Class, s.rules.of(o.Text).ID}
		if o.Field != "" {
			sg.by[c] = o.Field
		} else {
			sg.into[c] = s.rules.of(o.Into)
		}
	}
	// Of a chain the end counts. A circle, which new rules can make, has none.
	for c, sig := range sg.into {
		for range len(sg.into) {
			next, ok := sg.into[cause{c.class, sig.ID}]
			if !ok {
				break
			}
			sig = next
		}
		sg.into[c] = sig
	}
	return sg
}

// isStale reports whether dead letters of a group would get another signature
// today.
func (s signing) isStale(g Group) bool {
	c := cause{g.Class, g.SignatureID}
	into, merged := s.into[c]
	return !strings.HasPrefix(g.SignatureID, s.version+":") || merged && into.ID != g.SignatureID || s.by[c] != ""
}

// Resigned says what signing anew did, or would do.
type Resigned struct {
	Moves []Move
}

// Move is that dead letters went from one group to another.
type Move struct {
	From, To    string // ids of groups
	Class       string
	FromText    string // signatures
	ToText      string
	DeadLetters int64
}

// Resign signs dead letters anew whose signature was made by earlier rules, or
// is overruled, and moves them to the groups that they belong to now. What was
// decided about a group holds for those that it becomes, whether they are split
// or merged. Each group has a transaction; after an interruption it goes on
// where it was. With dry nothing is changed.
func (s *Store) Resign(ctx context.Context, dry bool) (Resigned, error) {
	done, err := s.resign(ctx, dry, nil)
	if err != nil {
		return done, fmt.Errorf("inventory: sign anew: %w", err)
	}
	return done, nil
}

// Stale is how many groups [Store.Resign] would sign anew.
func (s *Store) Stale(ctx context.Context) (n int, err error) {
	sg, err := s.signing(ctx)
	if err != nil {
		return 0, fmt.Errorf("inventory: %w", err)
	}
	groups, err := s.Groups(ctx)
	for _, g := range groups {
		if sg.isStale(g) {
			n++
		}
	}
	return n, err
}

// resign also looks at the groups that are named, stale or not.
func (s *Store) resign(ctx context.Context, dry bool, named []string) (done Resigned, err error) {
	sg, err := s.signing(ctx)
	if err != nil {
		return done, err
	}
	return s.resignWith(ctx, sg, dry, named)
}

func (s *Store) resignWith(ctx context.Context, sg signing, dry bool, named []string) (done Resigned, err error) {
	groups, err := s.Groups(ctx)
	if err != nil {
		return done, err
	}
	for _, g := range groups {
		if !sg.isStale(g) && !slices.Contains(named, g.ID) {
			continue
		}
		var moves []Move
		err := s.inTx(ctx, func(tx *tx) (err error) {
			moves, err = tx.resignGroup(ctx, g.ID, sg)
			if err == nil && dry {
				err = errDryRun
			}
			return err
		})
		if err != nil && !(dry && err == errDryRun) {
			return done, err
		}
		done.Moves = append(done.Moves, moves...)
	}
	return done, nil
}

// share is what goes from one group to another.
type share struct {
	key         triage.Key
	text        string
	seqs        []int64
	first, last int64 // failures
	open        *triage.Aggregate
	closed      map[int64]*triage.Aggregate // by decision
}

func (t *tx) resignGroup(ctx context.Context, id string, sg signing) (moves []Move, err error) {
	g, err := t.lockGroup(ctx, id)
	if err != nil {
		return nil, err
	}
	shares := map[string]*share{}
	rows, err := t.query(ctx, `SELECT seq, id, closed_by, failed_at, document FROM dead_letters WHERE group_id = ? ORDER BY seq`, id)
	err = each(rows, err, func(scan func(...any) error) error {
		var seq, closedBy, failed int64
		var letter, document string
		if err := scan(&seq, &letter, &closedBy, &failed, &document); err != nil {
			return err
		}
		d, err := envelope.DecodeDeadLetter([]byte(document))
		if err != nil {
			return fmt.Errorf("dead letter %s: %w", letter, err)
		}
		e := entryOf(&d, timeOf(failed))
		e.ID = letter
		sig := sg.of(&d, e)
		key := e.Key(sig)
		if shares[triage.GroupID(key)] == nil && len(shares) >= DefaultNewSignatures {
			sig = t.s.overflow()
			key = e.Key(sig)
		}
		to := shares[triage.GroupID(key)]
		if to == nil {
			to = &share{key: key, text: sig.Text, first: failed, last: failed, open: triage.NewAggregate(e, sig), closed: map[int64]*triage.Aggregate{}}
			shares[triage.GroupID(key)] = to
		}
		to.seqs = append(to.seqs, seq)
		to.first, to.last = min(to.first, failed), max(to.last, failed)
		a := to.open
		if closedBy != 0 {
			if a = to.closed[closedBy]; a == nil {
				a = triage.NewAggregate(e, sig)
				to.closed[closedBy] = a
			}
		}
		a.Add(e)
		return nil
	})
	if err != nil || len(shares) == 0 || len(shares) == 1 && shares[id] != nil {
		return nil, err
	}
	if _, err := t.exec(ctx, `UPDATE triage_groups SET total = 0, still_open = 0, aggregate = '' WHERE id = ?`, id); err != nil {
		return nil, err
	}
	if _, err := t.exec(ctx, `DELETE FROM closed_aggregates WHERE group_id = ?`, id); err != nil {
		return nil, err
	}
	for _, to := range slices.Sorted(maps.Keys(shares)) {
		sh := shares[to]
		if err := t.give(ctx, g, to, sh); err != nil {
			return nil, err
		}
		if to != id {
			moves = append(moves, Move{id, to, g.Class, g.Signature, sh.text, int64(len(sh.seqs))})
		}
	}
	return moves, nil
}

// give hands dead letters of a group to another one, or back to itself.
func (t *tx) give(ctx context.Context, from Group, to string, sh *share) error {
	_, err := t.exec(ctx, intoGroups, to, sh.key.Class, sh.key.Version, sh.key.SignatureID, bounded(sh.text, maxShown), sh.first, sh.last, nanos(from.CollectedAt))
	if err != nil {
		return err
	}
	g, err := t.lockGroup(ctx, to)
	if err != nil {
		return err
	}
	merged := 0
	if to != from.ID && g.Total > 0 {
		merged = 1
		if _, err := t.exec(ctx, `UPDATE successors SET merged = 1 WHERE group_id = ?`, to); err != nil {
			return err
		}
	}
	open := g.Aggregate
	open.Merge(sh.open)
	text, err := encodeAggregate(open)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `UPDATE triage_groups SET total = total + ?, still_open = still_open + ?, aggregate = ?,
		first_failed = CASE WHEN first_failed < ? THEN first_failed ELSE ? END,
		last_failed = CASE WHEN last_failed > ? THEN last_failed ELSE ? END,
		collected_at = CASE WHEN collected_at < ? THEN collected_at ELSE ? END WHERE id = ?`,
		len(sh.seqs), sh.open.Count, text, sh.first, sh.first, sh.last, sh.last, nanos(from.CollectedAt), nanos(from.CollectedAt), to)
	if err != nil {
		return err
	}
	for _, seq := range slices.Sorted(maps.Keys(sh.closed)) {
		a, err := t.closed(ctx, seq, to)
		if err != nil {
			return err
		}
		if a == nil {
			a = g.none()
		}
		a.Merge(sh.closed[seq])
		if err := t.setClosed(ctx, seq, to, a); err != nil {
			return err
		}
	}
	if to == from.ID {
		return nil
	}
	for chunk := range slices.Chunk(sh.seqs, 500) {
		args := []any{to}
		for _, seq := range chunk {
			args = append(args, seq)
		}
		if _, err := t.exec(ctx, `UPDATE dead_letters SET group_id = ? WHERE seq IN (?`+strings.Repeat(", ?", len(chunk)-1)+`)`, args...); err != nil {
			return err
		}
	}
	const link = `INSERT INTO successors (old_group, group_id, class, old_signature_id, signature_id, merged) `
	if _, err := t.exec(ctx, link+`VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (old_group, group_id) DO NOTHING`,
		from.ID, to, sh.key.Class, from.SignatureID, sh.key.SignatureID, merged); err != nil {
		return err
	}
	// And those that it came from.
	_, err = t.exec(ctx, link+`SELECT old_group, CAST(? AS TEXT), class, old_signature_id, CAST(? AS TEXT), CASE WHEN merged = 1 THEN 1 ELSE CAST(? AS BIGINT) END
		FROM successors WHERE group_id = ? AND old_group <> ? ON CONFLICT (old_group, group_id) DO NOTHING`, to, sh.key.SignatureID, merged, from.ID, to)
	return err
}

// successors says what groups and causes became.
type successors struct {
	groups map[string][]string
	causes map[cause][]cause
}

func (s *Store) successors(ctx context.Context) (successors, error) {
	all := successors{map[string][]string{}, map[cause][]cause{}}
	rows, err := s.query(ctx, `SELECT old_group, group_id, class, old_signature_id, signature_id FROM successors ORDER BY old_group, group_id`)
	return all, each(rows, err, func(scan func(...any) error) error {
		var old, id, class, oldSignature, sig string
		err := scan(&old, &id, &class, &oldSignature, &sig)
		all.groups[old] = append(all.groups[old], id)
		c := cause{class, oldSignature}
		if to := (cause{class, sig}); !slices.Contains(all.causes[c], to) {
			all.causes[c] = append(all.causes[c], to)
		}
		return err
	})
}

// Override is that a person overrules signatures: dead letters with one
// signature count as those with another one, or are told apart by a field.
type Override struct {
	Seq    int64
	At     time.Time
	Author string
	Class  string
	Text   string // an error text of the signature
	Into   string // one of the signature that it counts as; empty with Field
	Field  string // one of [SplitFields]; empty with Into
	Note   string
}

// SplitFields are what groups can be split by.
func SplitFields() []string { return []string{"code", "consumer", "handler", "topic", "type"} }

func valueOf(field string, d *envelope.DeadLetter, e triage.Entry) string {
	switch field {
	case "code":
		return e.Code
	case "consumer":
		return e.Consumer
	case "handler":
		return d.Consumer.Handler
	case "topic":
		return e.Topic
	case "type":
		return d.FailedMessage.Type
	}
	return ""
}

// Overrides returns what is overruled, the latest last.
func (s *Store) Overrides(ctx context.Context) ([]Override, error) {
	all, err := s.overrides(ctx)
	if err != nil {
		return nil, fmt.Errorf("inventory: overrides: %w", err)
	}
	return all, nil
}

func (s *Store) overrides(ctx context.Context) (all []Override, err error) {
	rows, err := s.query(ctx, `SELECT seq, at, author, class, text, into_text, field, note FROM overrides WHERE removed_at = 0 ORDER BY seq`)
	return all, each(rows, err, func(scan func(...any) error) error {
		var o Override
		var at int64
		err := scan(&o.Seq, &at, &o.Author, &o.Class, &o.Text, &o.Into, &o.Field, &o.Note)
		o.At = timeOf(at)
		all = append(all, o)
		return err
	})
}

// MergeGroups has the dead letters of a group, and all with its class and
// signature, of whichever version and also later ones, count as those of
// another group, of the same class. Decisions about either hold for it.
func (s *Store) MergeGroups(ctx context.Context, d Decision, into string) (Resigned, error) {
	done, err := func() (Resigned, error) {
		g, err := s.group(ctx, d.Group)
		if err != nil {
			return Resigned{}, err
		}
		other, err := s.group(ctx, into)
		if err != nil {
			return Resigned{}, fmt.Errorf("%q: %w", into, err)
		}
		switch {
		case g.Class != other.Class:
			return Resigned{}, fmt.Errorf("%w: their classes are %s and %s", ErrRefused, g.Class, other.Class)
		case g.SignatureID == other.SignatureID:
			return Resigned{}, fmt.Errorf("%w: they have one signature", ErrRefused)
		}
		text, err := s.textOf(ctx, g)
		if err != nil {
			return Resigned{}, err
		}
		intoText, err := s.textOf(ctx, other)
		if err != nil {
			return Resigned{}, err
		}
		return s.overrule(ctx, "merge", d, g, Override{Class: g.Class, Text: text, Into: intoText})
	}()
	if err != nil {
		return Resigned{}, fmt.Errorf("inventory: merge %q: %w", d.Group, err)
	}
	return done, nil
}

// SplitGroup tells the dead letters of a group, and all with its class and
// signature, apart by a field of [SplitFields].
func (s *Store) SplitGroup(ctx context.Context, d Decision, field string) (Resigned, error) {
	done, err := func() (Resigned, error) {
		if !slices.Contains(SplitFields(), field) {
			return Resigned{}, fmt.Errorf("%w: %q is no field to split by; there are %s", ErrRefused, field, strings.Join(SplitFields(), ", "))
		}
		g, err := s.group(ctx, d.Group)
		if err != nil {
			return Resigned{}, err
		}
		text, err := s.textOf(ctx, g)
		if err != nil {
			return Resigned{}, err
		}
		return s.overrule(ctx, "split", d, g, Override{Class: g.Class, Text: text, Field: field})
	}()
	if err != nil {
		return Resigned{}, fmt.Errorf("inventory: split %q: %w", d.Group, err)
	}
	return done, nil
}

// Restore takes back what was overruled about a group: what it was split by, or
// what was merged into it.
func (s *Store) Restore(ctx context.Context, d Decision) (Resigned, error) {
	done, err := func() (Resigned, error) {
		g, err := s.group(ctx, d.Group)
		if err != nil {
			return Resigned{}, err
		}
		all, err := s.overrides(ctx)
		if err != nil {
			return Resigned{}, err
		}
		became, err := s.successors(ctx)
		if err != nil {
			return Resigned{}, err
		}
		var kept, gone []Override
		for _, o := range all {
			c := cause{o.Class, s.rules.of(o.Text).ID}
			if slices.Contains(became.causes[c], cause{g.Class, g.SignatureID}) {
				gone = append(gone, o)
			} else {
				kept = append(kept, o)
			}
		}
		if len(gone) == 0 {
			return Resigned{}, fmt.Errorf("%w: nothing was overruled about it", ErrRefused)
		}
		return s.overruleWith(ctx, "restore", d, g, kept, func(tx *tx, now time.Time) error {
			for _, o := range gone {
				if _, err := tx.exec(ctx, `UPDATE overrides SET removed_at = ? WHERE seq = ?`, nanos(now), o.Seq); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	if err != nil {
		return Resigned{}, fmt.Errorf("inventory: restore %q: %w", d.Group, err)
	}
	return done, nil
}

// textOf is an error text of a group whose signature by the rules is that of
// the group: of one that was split or merged there is none.
func (s *Store) textOf(ctx context.Context, g Group) (string, error) {
	entries, err := s.DeadLetters(ctx, Filter{Group: g.ID, Limit: 50})
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if text := plain(e.DeadLetter.Failure.Message); s.rules.of(text).ID == g.SignatureID {
			return text, nil
		}
	}
	return "", fmt.Errorf("%w: its signature is overruled already, or was made by earlier rules: restore it, or sign anew, first", ErrRefused)
}

func (s *Store) overrule(ctx context.Context, action string, d Decision, g Group, o Override) (Resigned, error) {
	all, err := s.overrides(ctx)
	if err != nil {
		return Resigned{}, err
	}
	return s.overruleWith(ctx, action, d, g, append(all, o), func(tx *tx, now time.Time) error {
		_, err := tx.exec(ctx, `INSERT INTO overrides (at, author, class, text, into_text, field, note, removed_at) VALUES (?, ?, ?, ?, ?, ?, ?, 0)`,
			nanos(now), plain(d.Author), o.Class, o.Text, o.Into, o.Field, plain(d.Note))
		return err
	})
}

// overruleWith changes what is overruled to all, writes that to the audit, and
// signs anew what it is about.
func (s *Store) overruleWith(ctx context.Context, action string, d Decision, g Group, all []Override, change func(tx *tx, now time.Time) error) (Resigned, error) {
	if d.Author == "" {
		return Resigned{}, fmt.Errorf("%w: a decision has an author", ErrRefused)
	}
	// The groups of all versions of the consumer.
	groups, err := s.groups(ctx, `WHERE class = ? AND signature_id = ? AND total > 0`, g.Class, g.SignatureID)
	if err != nil {
		return Resigned{}, err
	}
	if action == "restore" { // and those beside it
		beside, err := s.groups(ctx, `WHERE total > 0 AND id IN (SELECT b.group_id FROM successors a JOIN successors b ON b.old_group = a.old_group WHERE a.group_id = ?)`, g.ID)
		if err != nil {
			return Resigned{}, err
		}
		groups = append(groups, beside...)
	}
	var named []string
	for _, g := range groups {
		named = append(named, g.ID)
	}
	sg := s.signingOf(all)
	plan, err := s.resignWith(ctx, sg, true, named)
	if err != nil || d.DryRun {
		return plan, err
	}
	err = s.inTx(ctx, func(tx *tx) error {
		now := time.Now()
		if err := change(tx, now); err != nil {
			return err
		}
		var total int64
		for _, m := range plan.Moves {
			total += m.DeadLetters
		}
		return tx.record(ctx, now, AuditEntry{Author: plain(d.Author), Action: action, Target: g.ID, Filter: "group=" + g.ID, Total: total, Details: details(map[string]any{"note": plain(d.Note)})})
	})
	if err != nil {
		return Resigned{}, err
	}
	return s.resign(ctx, false, named)
}

func details(m map[string]any) string {
	text, _ := json.Marshal(m) // texts encode
	return string(text)
}
