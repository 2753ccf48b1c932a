package jobstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Time until the next due job, or until the next end of a queue's pause: a lookup in the index
// forge_river_job_due for each priority, and the few rows of river_queue.
const nextDueSQL = `
SELECT (least(
    (SELECT extract(epoch FROM min(j.scheduled_at))
     FROM generate_series(1, 4) AS p (priority),
          LATERAL (SELECT scheduled_at FROM river_job
                   WHERE ` + isDue + ` AND priority = p.priority
                   ORDER BY scheduled_at LIMIT 1) AS j),
    (SELECT min(` + pauseEndSQL + `) FROM river_queue AS r WHERE r.paused_at IS NOT NULL),
    (SELECT extract(epoch FROM min(until)) FROM forge_pauses)
) - extract(epoch FROM clock_timestamp()))::float8`

// River's statement, without reading the whole rows again. A job whose unique key another
// job holds is discarded. The unique states of a retryable job may be in its metadata, because
// retryable is not among them. A lookup in the index forge_river_job_due for each priority
// finds the due jobs. By the time alone, the planner could expect that most jobs are due, and
// read the whole table. A job that another transaction has locked is left for later, so that it
// delays no other.
const releaseDueSQL = `
WITH jobs_to_schedule AS (
    SELECT id, unique_key, unique_states IS NOT NULL OR metadata ? 'forge:unique_states' AS has_states, priority, scheduled_at
    FROM river_job
    WHERE ` + isDue + `
      AND scheduled_at <= coalesce($1::timestamptz, now())
      AND id = ANY (ARRAY (
          SELECT j.id
          FROM generate_series(1, 4) AS p (priority),
               LATERAL (SELECT id, scheduled_at FROM river_job
                        WHERE ` + isDue + ` AND priority = p.priority AND scheduled_at <= coalesce($1::timestamptz, now())
                        ORDER BY scheduled_at, id LIMIT $2::bigint) AS j
          ORDER BY p.priority, j.scheduled_at, j.id
          LIMIT $2::bigint))
    FOR UPDATE SKIP LOCKED
), jobs_with_rownum AS (
    SELECT *, CASE WHEN unique_key IS NOT NULL AND has_states
                   THEN row_number() OVER (PARTITION BY unique_key ORDER BY priority, scheduled_at, id)
              END AS row_num
    FROM jobs_to_schedule
), unique_conflicts AS (
    SELECT river_job.unique_key
    FROM river_job
    JOIN jobs_with_rownum
      ON river_job.unique_key = jobs_with_rownum.unique_key AND river_job.id != jobs_with_rownum.id
    WHERE river_job.unique_key IS NOT NULL
      AND river_job.unique_states IS NOT NULL
      AND river_job_state_in_bitmask(river_job.unique_states, river_job.state)
), job_updates AS (
    SELECT job.id, job.row_num IS NOT NULL AND (uc.unique_key IS NOT NULL OR job.row_num > 1) AS conflict
    FROM jobs_with_rownum AS job
    LEFT JOIN unique_conflicts AS uc ON job.unique_key = uc.unique_key
)
UPDATE river_job
SET state = CASE WHEN job_updates.conflict THEN 'discarded' ELSE 'available' END::river_job_state,
    finalized_at = CASE WHEN job_updates.conflict THEN coalesce($1::timestamptz, now()) ELSE river_job.finalized_at END,
    metadata = CASE WHEN job_updates.conflict
        THEN river_job.metadata || '{"unique_key_conflict": "scheduler_discarded"}' ELSE river_job.metadata END
FROM job_updates
WHERE river_job.id = job_updates.id
RETURNING river_job.queue, river_job.scheduled_at, job_updates.conflict`

// NoDueJob is longer than any wait.
const NoDueJob = 24 * time.Hour

// NextDue returns the time until the next scheduled or retryable job is due, or the next pause
// of a queue ends. It is negative if that is overdue, and NoDueJob if there is none.
func (s *Store) NextDue(ctx context.Context) (time.Duration, error) {
	return scanDue(s.db.QueryRow(ctx, nextDueSQL))
}

// BatchNextDue adds the statement of NextDue to a batch.
func BatchNextDue(batch *pgx.Batch, found func(next time.Duration)) {
	batch.Queue(nextDueSQL).QueryRow(func(row pgx.Row) error {
		next, err := scanDue(row)
		if err == nil {
			found(next)
		}
		return err
	})
}

func scanDue(row pgx.Row) (time.Duration, error) {
	var seconds *float64
	if err := row.Scan(&seconds); err != nil {
		return 0, fmt.Errorf("find due jobs: %w", err)
	}
	if seconds == nil || *seconds > NoDueJob.Seconds() {
		return NoDueJob, nil
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

// ReleaseDue makes at most limit scheduled and retryable jobs available that are due at
// now, and notifies the leader of them. It returns how many it changed.
func (s *Store) ReleaseDue(ctx context.Context, now time.Time, limit int) (int, error) {
	type released struct {
		queue     string
		dueAt     time.Time
		discarded bool
	}
	all, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (r released, err error) {
		return r, row.Scan(&r.queue, &r.dueAt, &r.discarded)
	}, releaseDueSQL, now, limit)
	if err != nil {
		return 0, fmt.Errorf("make due jobs available: %w", err)
	}
	dueAt := map[string]time.Time{}
	for _, r := range all {
		if first, ok := dueAt[r.queue]; !r.discarded && (!ok || r.dueAt.Before(first)) {
			dueAt[r.queue] = r.dueAt
		}
	}
	return len(all), s.notifyReleased(ctx, dueAt, now)
}
