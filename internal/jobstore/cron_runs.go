package jobstore

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// maxActiveRuns is how many active runs of a cron are read, the newest ones.
const maxActiveRuns = 100

// The newest run of each cron from its floor on, and the newest active ones. Each part compares
// rows, and has no equality that would make the first column of its ORDER BY redundant: only its
// index, forge_river_job_cron or forge_river_job_cron_active, gives that order, so the planner uses
// it even with outdated statistics. The floor keeps the second part from reading the index entries
// of runs that have ended and are not vacuumed yet.
var cronRunsSQL = strings.NewReplacer("@limit", strconv.Itoa(maxActiveRuns), "@max", strconv.Itoa(math.MaxInt64)).Replace(`
SELECT c.name, newest.id, coalesce(min(j.id), 0), coalesce(max(j.id), 0),
       coalesce((array_agg(j.state ORDER BY j.id DESC))[1], ''),
       coalesce((array_agg(j.since ORDER BY j.id DESC) FILTER (WHERE j.id IS NOT NULL))[1], 'epoch'),
       coalesce((array_agg(j.started ORDER BY j.id DESC))[1], false),
       coalesce(array_agg(j.id) FILTER (WHERE j.id IS NOT NULL), '{}')
FROM unnest($1::text[], $2::bigint[]) AS c (name, floor)
CROSS JOIN LATERAL (
    SELECT id
    FROM river_job
    WHERE metadata ? 'forge:cron'
      AND (metadata ->> 'forge:cron', id) >= (c.name, c.floor) AND (metadata ->> 'forge:cron', id) <= (c.name, @max)
    ORDER BY metadata ->> 'forge:cron' DESC, id DESC
    LIMIT 1
) AS newest
LEFT JOIN LATERAL (
    SELECT id, state::text AS state, attempted_at IS NOT NULL AS started,
           ` + boundTime + `CASE WHEN state = 'running' THEN coalesce(attempted_at, scheduled_at) ELSE scheduled_at END` + inYears + ` AS since
    FROM river_job
    WHERE finalized_at IS NULL AND metadata ? 'forge:cron'
      AND (metadata #>> '{forge:cron}', id) >= (c.name, c.floor) AND (metadata #>> '{forge:cron}', id) <= (c.name, @max)
    ORDER BY metadata #>> '{forge:cron}' DESC, id DESC
    LIMIT @limit
) AS j ON true
GROUP BY c.name, newest.id`)

// A locked row is being claimed or changed, so it counts as started.
const lockUnstartedSQL = `
SELECT id FROM river_job
WHERE id = ANY ($1) AND state IN ('available', 'scheduled', 'pending') AND attempted_at IS NULL
FOR UPDATE SKIP LOCKED`

// CronRuns summarizes the runs of a cron from a floor on.
type CronRuns struct {
	Cron string
	// Newest is the newest run, Oldest the oldest of All.
	Newest, Oldest int64
	// Active is the newest active run; its ID is 0 if there is none.
	Active CronRun
	// All are the active runs, or the newest hundred of them.
	All []int64
	// More reports that older runs may be active too.
	More bool
}

// CronRun is an active run of a cron.
type CronRun struct {
	ID    int64
	State string
	// Since is when the current attempt began, or when the next one is or was due.
	Since time.Time
	// Started reports whether the job has had an attempt.
	Started bool
}

// BatchCronRuns adds a query for the runs of crons from their floors on, lowest ids, to a
// batch. It calls found for each cron that has any.
func BatchCronRuns(batch *pgx.Batch, crons []string, floors []int64, found func(CronRuns)) {
	batch.Queue(cronRunsSQL, crons, floors).Query(func(rows pgx.Rows) error {
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r CronRuns, err error) {
			err = row.Scan(&r.Cron, &r.Newest, &r.Oldest, &r.Active.ID, &r.Active.State, &r.Active.Since, &r.Active.Started, &r.All)
			r.More = len(r.All) == maxActiveRuns
			return r, err
		})
		if err != nil {
			return fmt.Errorf("find earlier runs: %w", err)
		}
		for _, runs := range all {
			found(runs)
		}
		return nil
	})
}

// LockUnstarted locks the waiting jobs among these that have had no attempt, and returns
// their ids.
func (s *Store) LockUnstarted(ctx context.Context, ids []int64) ([]int64, error) {
	locked, err := postgres.Collect(ctx, s.db, pgx.RowTo[int64], lockUnstartedSQL, ids)
	if err != nil {
		return nil, fmt.Errorf("lock runs that have not started: %w", err)
	}
	return locked, nil
}
