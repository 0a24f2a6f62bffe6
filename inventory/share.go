package inventory

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Share is what some streams have of a group.
type Share struct {
	Group  string
	Total  int64     // dead letters from these streams
	Open   int64     // of them not closed
	Recent int64     // of all of them, those that failed since a time
	First  time.Time // the first failure of all
	Oldest time.Time // the first failure of the open ones; zero if there are none
}

// Shares returns what some streams have of each group, and how many records
// from them are in the quarantine. Recent counts from since on.
func (s *Store) Shares(ctx context.Context, streams []string, since time.Time) (shares []Share, quarantined int64, err error) {
	if len(streams) == 0 {
		return nil, 0, nil
	}
	in := `(?` + strings.Repeat(", ?", len(streams)-1) + `)`
	names := make([]any, len(streams))
	for i, stream := range streams {
		names[i] = indexed(stream)
	}
	rows, err := s.query(ctx, `SELECT group_id, COUNT(*), SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), SUM(CASE WHEN failed_at >= ? THEN 1 ELSE 0 END),
		MIN(failed_at), COALESCE(MIN(CASE WHEN state = 'open' THEN failed_at END), 0)
		FROM dead_letters WHERE stream IN `+in+` GROUP BY group_id ORDER BY group_id`, append([]any{nanos(since)}, names...)...)
	err = each(rows, err, func(scan func(...any) error) error {
		var sh Share
		var first, oldest int64
		err := scan(&sh.Group, &sh.Total, &sh.Open, &sh.Recent, &first, &oldest)
		sh.First, sh.Oldest = timeOf(first), timeOf(oldest)
		shares = append(shares, sh)
		return err
	})
	if err == nil {
		err = s.row(ctx, `SELECT COALESCE(SUM(copies), 0) FROM quarantine WHERE stream IN `+in, names...).Scan(&quarantined)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("inventory: shares: %w", err)
	}
	return shares, quarantined, nil
}
