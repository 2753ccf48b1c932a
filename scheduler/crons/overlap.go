package crons

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// The runs of each cron from its floor on, the newest hundred. The ORDER BY is
// the index's, forge_river_job_cron, so that the planner takes no other, however
// old its statistics are.
const earlierRunsSQL = `
SELECT c.name, coalesce(max(j.id), 0), coalesce(min(j.id) FILTER (WHERE j.active), 0),
       coalesce(max(j.id) FILTER (WHERE j.active), 0),
       coalesce((max(ARRAY[lpad(j.id::text, 20), j.state]) FILTER (WHERE j.active))[2], ''),
       coalesce(array_agg(j.id) FILTER (WHERE j.active), '{}')
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
		if len(p.due)+len(p.queue.Oldest) > 0 && p.definition.spec.Overlap != overlapAllow {
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
		all            []int64
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &newest, &oldest, &active.ID, &active.State, &all}, func() error {
		p := asking[name]
		p.active = slices.Clone(all)
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

// findQueues fills in what waits for its turn, for those crons that may have a
// queue: by their policy, or by one that they had.
func (l *ledger) findQueues(ctx context.Context, tx pgx.Tx, plans []*plan) error {
	var names []string
	for _, p := range plans {
		overlap := p.definition.spec.Overlap
		if overlap == overlapQueue || overlap == overlapQueueAll || l.queued[p.cron.Name] {
			names = append(names, p.cron.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	queues, err := cronstore.Waiting(ctx, tx, names, queueBatch)
	if err != nil {
		return err
	}
	for _, p := range plans {
		p.queue = queues[p.cron.Name]
	}
	return nil
}

// replace cancels the runs whose place a newer one has taken.
func (l *ledger) replace(ctx context.Context, tx pgx.Tx, plans []*plan, fired []cronstore.Tick) error {
	newer := map[string]cronstore.Tick{}
	for _, row := range fired {
		if fires(row.Verdict) {
			newer[row.Cron] = row
		}
	}
	for _, p := range plans {
		row, ok := newer[p.cron.Name]
		if !ok || len(p.active) == 0 || p.definition.spec.Overlap != overlapReplace {
			continue
		}
		for _, id := range p.active {
			if err := l.options.Inserter.Cancel(ctx, tx, id); err != nil {
				return err
			}
		}
		reason := fmt.Sprintf("Its run was cancelled: job %d of the tick %s took its place.", row.JobID, row.Tick.UTC().Format(time.RFC3339))
		if err := cronstore.MarkReplaced(ctx, tx, p.active, reason); err != nil {
			return err
		}
	}
	return nil
}
