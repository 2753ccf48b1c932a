package leaderstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	// A term that did not end in order may have left work behind that has not noticed the
	// end, even if the terms after it never began their work. Terms of the same process do
	// not count: a process waits for its own work before it becomes a candidate again.
	takeoverWaitSQL = `
SELECT coalesce(extract(epoch FROM max(next.acquired_at) + $4::interval - clock_timestamp()), 0)::float8
FROM forge_leader_history next
JOIN LATERAL (
    SELECT incarnation, end_reason
    FROM forge_leader_history before
    WHERE before.role = next.role AND before.term < next.term
    ORDER BY term DESC
    LIMIT 1
) lost ON lost.incarnation <> $3
      AND coalesce(lost.end_reason, '') NOT IN ('resigned', 'stepped_down', 'transferred')
WHERE next.role = $1 AND next.term <= $2 AND next.acquired_at > clock_timestamp() - $4::interval`

	publishSQL = `
WITH published AS (
    UPDATE forge_leaders SET metadata = $4
    WHERE role = $1 AND term = $2 AND incarnation = $3
    RETURNING role
)
SELECT pg_notify(current_schema() || '.' || $5, role) FROM published`
)

// TakeoverWait returns how long work that no transaction fences must wait after it has won
// the term of f. It is zero if every predecessor resigned in order, stepped down or handed over,
// and otherwise the rest of delay since the leadership changed, by the database's clock: more
// than delay if that clock was set back.
func (s *Store) TakeoverWait(ctx context.Context, f Fence, delay time.Duration) (time.Duration, error) {
	var seconds float64
	row := s.db.QueryRow(ctx, takeoverWaitSQL, f.Role, f.Term, f.Incarnation, delay)
	if err := row.Scan(&seconds); err != nil {
		return 0, fmt.Errorf("read the predecessors of %s term %d: %w", f.Role, f.Term, err)
	}
	return max(0, time.Duration(seconds*float64(time.Second))), nil
}

// Publish replaces the metadata in the leader's row for the rest of the term of f. It returns
// ErrDeposed if the term is over.
func (s *Store) Publish(ctx context.Context, f Fence, metadata json.RawMessage) error {
	tag, err := s.db.Exec(ctx, publishSQL, f.Role, f.Term, f.Incarnation, metadata, wire.LeaderChannel)
	if err != nil {
		return fmt.Errorf("publish the metadata of %s: %w", f.Role, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("publish the metadata of %w", f.Deposed())
	}
	return nil
}
