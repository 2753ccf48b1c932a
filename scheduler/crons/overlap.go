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
       coalesce((array_agg(j.state ORDER BY j.id DESC) FILTER (WHERE j.active))[1], ''),
       coalesce((array_agg(j.since ORDER BY j.id DESC) FILTER (WHERE j.active))[1], 'epoch'),
       coalesce((array_agg(j.started ORDER BY j.id DESC) FILTER (WHERE j.active))[1], false),
       coalesce(array_agg(j.id) FILTER (WHERE j.active), '{}')
FROM unnest($1::text[], $2::bigint[]) AS c (name, floor)
CROSS JOIN LATERAL (
    SELECT id, state::text AS state, state IN ('available', 'running', 'retryable', 'scheduled', 'pending') AS active,
           CASE WHEN state = 'running' THEN coalesce(attempted_at, scheduled_at) ELSE scheduled_at END AS since,
           attempted_at IS NOT NULL AS started
    FROM river_job
    WHERE metadata ? 'forge:cron' AND metadata ->> 'forge:cron' = c.name AND id >= c.floor
    ORDER BY metadata ->> 'forge:cron' DESC, id DESC
    LIMIT 100
) AS j
GROUP BY c.name`

// A row that is locked is being claimed or changed: it counts as started.
const lockUnstartedSQL = `
SELECT id FROM river_job
WHERE id = ANY ($1) AND state IN ('available', 'scheduled', 'pending') AND attempted_at IS NULL
FOR UPDATE SKIP LOCKED`

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
	_, err = pgx.ForEachRow(rows, []any{&name, &newest, &oldest, &active.ID, &active.State, &active.Since, &active.Started, &all}, func() error {
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

// lockUnstarted keeps runs that may be replaced only while they wait from being
// claimed until the transaction ends, and marks the plans all of whose active runs
// it has locked. Plans that are made again when their newest tick is due are left
// alone.
func lockUnstarted(ctx context.Context, tx pgx.Tx, plans []*plan, now time.Time) error {
	var ids []int64
	for _, p := range plans {
		if p.mayReplaceWaiting(now) {
			ids = append(ids, p.active...)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, lockUnstartedSQL, ids)
	if err != nil {
		return fmt.Errorf("lock runs that have not started: %w", err)
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("lock runs that have not started: %w", err)
	}
	isLocked := make(map[int64]bool, len(locked))
	for _, id := range locked {
		isLocked[id] = true
	}
	for _, p := range plans {
		if p.mayReplaceWaiting(now) {
			p.unstarted = !slices.ContainsFunc(p.active, func(id int64) bool { return !isLocked[id] })
		}
	}
	return nil
}

func (p *plan) mayReplaceWaiting(now time.Time) bool {
	return len(p.active) > 0 && p.definition.spec.Overlap == overlapReplaceWaiting && !p.waits(now)
}

// replaces says whether the active runs give way to a tick that fires.
func (p *plan) replaces() bool {
	return len(p.active) > 0 && (p.unstarted || p.definition.spec.Overlap == overlapReplace)
}

// blockedBy says which run keeps the cron from firing: the one for which its newest
// tick was skipped. Without a new tick it is as it was.
func (p *plan) blockedBy(decisions []decision) cronstore.Blocked {
	if len(decisions) == 0 && len(p.called) == 0 {
		return p.cron.Blocked
	}
	first := len(decisions) // of the newest ticks that were skipped
	for first > 0 && decisions[first-1].verdict == cronstore.SkippedOverlap {
		first--
	}
	switch {
	case p.earlier == nil || first == len(decisions):
		return cronstore.Blocked{}
	case p.cron.Blocked.By != 0:
		return cronstore.Blocked{By: p.earlier.ID, Since: p.cron.Blocked.Since}
	default:
		return cronstore.Blocked{By: p.earlier.ID, Since: decisions[first].at}
	}
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
		if !ok || !p.replaces() {
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
