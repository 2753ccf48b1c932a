package crons

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The runs of each cron from its floor on, the newest hundred. The ORDER BY is
// the index's, forge_river_job_cron, so that the planner takes no other, however
// old its statistics are.
const earlierRunsSQL = `
SELECT c.name, coalesce(max(j.id), 0), coalesce(min(j.id) FILTER (WHERE j.active), 0),
       coalesce(max(j.id) FILTER (WHERE j.active), 0),
       coalesce((max(ARRAY[lpad(j.id::text, 20), j.state]) FILTER (WHERE j.active))[2], '')
FROM unnest($1::text[], $2::bigint[]) AS c (name, floor)
CROSS JOIN LATERAL (
    SELECT id, state::text AS state, state IN ('available', 'running', 'retryable', 'scheduled', 'pending') AS active
    FROM river_job
    WHERE metadata ? 'forge:cron' AND metadata ->> 'forge:cron' = c.name AND id >= c.floor
    ORDER BY metadata ->> 'forge:cron' DESC, id DESC
    LIMIT 100
) AS j
GROUP BY c.name`

// findEarlierRuns fills in the active runs of those crons that must not overlap
// them.
func findEarlierRuns(ctx context.Context, tx pgx.Tx, plans []*plan) error {
	var (
		names  []string
		floors []int64
		asking = map[string]*plan{}
	)
	for _, p := range plans {
		if len(p.due) > 0 && p.definition.spec.Overlap != overlapAllow {
			names, floors = append(names, p.cron.Name), append(floors, p.definition.floor)
			asking[p.cron.Name] = p
		}
	}
	if len(names) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, earlierRunsSQL, names, floors)
	if err != nil {
		return fmt.Errorf("look for earlier runs: %w", err)
	}
	var (
		name           string
		newest, oldest int64
		active         run
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &newest, &oldest, &active.ID, &active.State}, func() error {
		p := asking[name]
		p.definition.floor = newest
		if active.ID != 0 {
			earlier := active
			p.earlier, p.definition.floor = &earlier, oldest
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for earlier runs: %w", err)
	}
	return nil
}
