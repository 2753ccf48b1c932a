package jobstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const runningByOwnerSQL = `
SELECT attempted_by[array_upper(attempted_by, 1)], count(*)
FROM river_job
WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE client_id = ANY ($1)))
  AND state = 'running' AND attempted_by[array_upper(attempted_by, 1)] = ANY ($1)
GROUP BY 1`

// RunningByOwner counts the running jobs of each of these client ids. An owner without
// running jobs has no entry.
func (s *Store) RunningByOwner(ctx context.Context, owners []string) (map[string]int, error) {
	running := map[string]int{}
	rows, err := s.db.Query(ctx, runningByOwnerSQL, owners)
	if err == nil {
		var owner string
		var jobs int
		_, err = pgx.ForEachRow(rows, []any{&owner, &jobs}, func() error {
			running[owner] = jobs
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("count the running jobs of nodes: %w", err)
	}
	return running, nil
}
