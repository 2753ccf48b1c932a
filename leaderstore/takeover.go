package leaderstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	// A tenure that did not end in order may have left work behind that does not
	// know it yet, also when those who came between never began theirs. A process
	// waits for its own work before it stands again.
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

// RowQueryer is what one-row statements go through: a pool, a connection or a
// transaction.
type RowQueryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// TakeoverWait returns how long work that no transaction fences must still wait
// after the term was won: zero when every predecessor resigned in order, stepped
// down or handed over, and else what is left of delay since the lead changed
// hands. It counts by the database's clock.
func (f Fence) TakeoverWait(ctx context.Context, db RowQueryer, delay time.Duration) (time.Duration, error) {
	var seconds float64
	row := db.QueryRow(ctx, takeoverWaitSQL, f.Role, f.Term, f.Incarnation, delay)
	if err := row.Scan(&seconds); err != nil {
		return 0, fmt.Errorf("look at the predecessors of %s term %d: %w", f.Role, f.Term, err)
	}
	return min(delay, max(0, time.Duration(seconds*float64(time.Second)))), nil
}

// Publish replaces what the leader's row says of itself to others, for as long as
// the term lasts. ErrDeposed means that it is over.
func (f Fence) Publish(ctx context.Context, db Execer, metadata json.RawMessage) error {
	tag, err := db.Exec(ctx, publishSQL, f.Role, f.Term, f.Incarnation, metadata, wire.LeaderChannel)
	if err != nil {
		return fmt.Errorf("publish the metadata of %s: %w", f.Role, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("publish the metadata of %w", f.Deposed())
	}
	return nil
}
