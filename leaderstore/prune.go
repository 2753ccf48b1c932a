package leaderstore

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// A tenure without an end ended when the next one began.
const pruneHistorySQL = `
DELETE FROM forge_leader_history
WHERE (role, term) IN (
    SELECT role, term
    FROM forge_leader_history h
    WHERE acquired_at < $1
      AND term < (SELECT max(term) FROM forge_leader_history WHERE role = h.role)
      AND coalesce(ended_at,
          (SELECT min(acquired_at) FROM forge_leader_history WHERE role = h.role AND term > h.term)) < $1
    ORDER BY acquired_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

// PruneHistory deletes at most limit tenures that ended before an instant, except the
// newest of each role.
func (s *Store) PruneHistory(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "delete expired tenures", pruneHistorySQL, before, limit)
}
