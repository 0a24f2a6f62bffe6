package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/envelope"
)

// quarantine stores records, and returns how many were not there.
func (t *tx) quarantine(ctx context.Context, records []Quarantined, now time.Time) (n int, err error) {
	for _, q := range records {
		headers, err := encodeHeaders(q.Record.Headers)
		if err != nil {
			return 0, err
		}
		p := q.Record.Position
		if y := p.Timestamp.UTC().Year(); y < 1 || y > 9999 {
			p.Timestamp = time.Time{} // JSON has no form for it
		}
		position, err := json.Marshal(p)
		if err != nil {
			return 0, err
		}
		added, err := t.exec(ctx, `INSERT INTO quarantine (fingerprint, stream, cause, collected_at, message_id, position, raw_key, headers, payload)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO `+q.again(),
			q.fingerprint(headers, position), indexed(q.Stream), bounded(q.Cause, maxShown), nanos(now),
			indexed(q.Record.ID), string(position), q.Record.Key, string(headers), q.Record.Payload)
		if err != nil {
			return 0, err
		}
		n += int(added)
	}
	return n, nil
}

// again says what to do with a record whose like is there. With a position or an
// id it is the same record, which came again. Without them nobody can tell, and
// in doubt it is another one, of which the bytes are there already.
func (q *Quarantined) again() string {
	if p := q.Record.Position; q.Record.ID != "" || p.Partition != nil && p.Offset != nil {
		return "NOTHING"
	}
	return "UPDATE SET copies = quarantine.copies + 1"
}

func (q *Quarantined) fingerprint(headers, position []byte) []byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(q.Stream), []byte(q.Record.ID), position, headers, q.Record.Key, q.Record.Payload} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return h.Sum(nil)
}

// Quarantine returns records that are no dead letters, the latest first, at
// most limit; zero means all. Their payloads come with them.
func (s *Store) Quarantine(ctx context.Context, limit int) ([]Quarantined, error) {
	var records []Quarantined
	rows, err := s.query(ctx, `SELECT seq, stream, cause, collected_at, message_id, position, raw_key, headers, payload, copies
		FROM quarantine ORDER BY seq DESC`+limited(limit))
	err = each(rows, err, func(scan func(...any) error) error {
		var q Quarantined
		var at int64
		var headers, position string
		err := scan(&q.Seq, &q.Stream, &q.Cause, &at, &q.Record.ID, &position, &q.Record.Key, &headers, &q.Record.Payload, &q.Copies)
		if err != nil {
			return err
		}
		q.At = timeOf(at)
		if q.Record.Headers, err = decodeHeaders(headers); err != nil {
			return err
		}
		var p envelope.Position
		if err := json.Unmarshal([]byte(position), &p); err != nil {
			return err
		}
		q.Record.Position = p
		records = append(records, q)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inventory: quarantine: %w", err)
	}
	return records, nil
}

// Quarantined returns how many records are in the quarantine.
func (s *Store) Quarantined(ctx context.Context) (n int64, err error) {
	if err := s.row(ctx, `SELECT COALESCE(SUM(copies), 0) FROM quarantine`).Scan(&n); err != nil {
		return 0, fmt.Errorf("inventory: quarantine: %w", err)
	}
	return n, nil
}

func limited(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" LIMIT %d", n)
}
