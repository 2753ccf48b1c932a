package nodestore

import (
	"context"
	"fmt"
	"time"
)

const pruneSQL = `
DELETE FROM forge_nodes
WHERE node_id IN (
    SELECT node_id
    FROM forge_nodes n
    WHERE state IN ('left', 'dead') AND last_heartbeat_at < $1
      AND NOT EXISTS (
          SELECT FROM river_job
          WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE client_id = n.node_id || '-' || n.incarnation))
            AND state = 'running'
            AND attempted_by[array_upper(attempted_by, 1)] = n.node_id || '-' || n.incarnation)
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

// Prune deletes at most limit nodes that are gone, were last heard of before an instant,
// and own no running job.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	tag, err := s.db.Exec(ctx, pruneSQL, before, limit)
	if err != nil {
		return 0, fmt.Errorf("delete nodes that are gone: %w", err)
	}
	return tag.RowsAffected(), nil
}
