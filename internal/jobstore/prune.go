package jobstore

import (
	"context"
	"fmt"
	"time"
)

// Statements of the retention. Each deletes at most $2 rows that ended before $1
// and locks the rows before it decides, so that a row that changes concurrently is
// evaluated after the change. In large tables the rows are found again by ctid, so
// that no plan reads the whole table; rows that are never updated need no lock.
const (
	// The condition replaces the verb, see stateSQL. The order is that of the indexes of
	// finished jobs. The job's output is deleted with it.
	pruneJobsSQL = `
WITH due AS (
    SELECT id
    FROM river_job
    WHERE %s AND finalized_at < $1
    ORDER BY finalized_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), output AS (
    DELETE FROM forge_job_logs WHERE job_id IN (SELECT id FROM due)
), packed AS (
    DELETE FROM forge_job_log_packs WHERE job_id IN (SELECT id FROM due)
)
DELETE FROM river_job WHERE id IN (SELECT id FROM due)`

	pruneLogsSQL = `
DELETE FROM forge_job_logs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_logs
    WHERE at < $1 AND keep_until IS NULL
    ORDER BY at
    LIMIT $2))`

	// Output of jobs with their own retention of output.
	pruneOwnLogsSQL = `
DELETE FROM forge_job_logs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_logs
    WHERE keep_until < $1
    ORDER BY keep_until
    LIMIT $2))`

	// A pack is as old as its newest chunk.
	prunePacksSQL = `
DELETE FROM forge_job_log_packs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_log_packs
    WHERE at < $1 AND keep_until IS NULL
    ORDER BY at
    LIMIT $2))`

	pruneOwnPacksSQL = `
DELETE FROM forge_job_log_packs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_log_packs
    WHERE keep_until < $1
    ORDER BY keep_until
    LIMIT $2))`

	// A row that an insert has locked is about to be used again.
	pruneThrottlesSQL = `
DELETE FROM forge_throttles
WHERE key IN (
    SELECT key
    FROM forge_throttles
    WHERE until < $1
    ORDER BY until
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

	// EXISTS would drop the order, and then the planner could read the whole table.
	pruneQueuesSQL = `
DELETE FROM river_queue
WHERE name IN (
    SELECT name
    FROM river_queue q
    WHERE updated_at < $1 AND paused_at IS NULL
      AND NOT EXISTS (SELECT FROM forge_nodes WHERE queues ? q.name AND state NOT IN ('left', 'dead'))
      AND (SELECT true FROM river_job WHERE queue = q.name AND ` + isOpen + ` ORDER BY priority, scheduled_at, id LIMIT 1) IS NULL
      AND (SELECT true FROM river_job WHERE queue = q.name AND ` + isDue + ` ORDER BY priority, scheduled_at, id LIMIT 1) IS NULL
      AND (SELECT true FROM river_job WHERE queue = q.name AND forge_state = 'pending' LIMIT 1) IS NULL
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`
)

// Output whose job was deleted by any program: the statement checks $2 jobs after
// job $1, skipping from one to the next through the primary keys, and returns the
// last one that it checked, or none at the end.
const pruneStrayLogsSQL = `
WITH RECURSIVE ids AS (
    SELECT $1::bigint AS job_id, 0 AS n
    UNION ALL
    SELECT least(
        (SELECT min(l.job_id) FROM forge_job_logs l WHERE l.job_id > ids.job_id),
        (SELECT min(k.job_id) FROM forge_job_log_packs k WHERE k.job_id > ids.job_id)), n + 1
    FROM ids
    WHERE ids.job_id IS NOT NULL AND n < $2
), gone AS (
    SELECT job_id
    FROM ids
    WHERE n > 0 AND job_id IS NOT NULL AND NOT EXISTS (SELECT FROM river_job WHERE id = ids.job_id)
), stray AS (
    DELETE FROM forge_job_logs WHERE job_id IN (SELECT job_id FROM gone)
    RETURNING 1
), packed AS (
    DELETE FROM forge_job_log_packs WHERE job_id IN (SELECT job_id FROM gone)
    RETURNING 1
)
SELECT (SELECT job_id FROM ids WHERE n = $2), (SELECT count(*) FROM stray) + (SELECT count(*) FROM packed)`

// PruneJobs deletes at most limit jobs that ended in a state before an instant, with
// their output.
func (s *Store) PruneJobs(ctx context.Context, state string, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "jobs", fmt.Sprintf(pruneJobsSQL, stateSQL(state)), before, limit)
}

// PruneThrottles deletes at most limit records of accepted jobs whose period ended before
// an instant.
func (s *Store) PruneThrottles(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "throttles", pruneThrottlesSQL, before, limit)
}

// PruneLogs deletes at most limit chunks that were written before an instant and have no
// retention of their own.
func (s *Store) PruneLogs(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "output", pruneLogsSQL, before, limit)
}

// PruneOwnLogs deletes at most limit chunks whose own retention ended before an instant.
func (s *Store) PruneOwnLogs(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "output", pruneOwnLogsSQL, before, limit)
}

// PrunePacks is PruneLogs for packs.
func (s *Store) PrunePacks(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "packed output", prunePacksSQL, before, limit)
}

// PruneOwnPacks is PruneOwnLogs for packs.
func (s *Store) PruneOwnPacks(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "packed output", pruneOwnPacksSQL, before, limit)
}

// PruneQueues deletes at most limit rows of queues that no node has worked since an
// instant, that are not paused and that have no unfinished job.
func (s *Store) PruneQueues(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.prune(ctx, "queues", pruneQueuesSQL, before, limit)
}

func (s *Store) prune(ctx context.Context, what, sql string, args ...any) (int64, error) {
	tag, err := s.db.Exec(ctx, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("delete expired %s: %w", what, err)
	}
	return tag.RowsAffected(), nil
}

// PruneStrayLogs deletes the output of deleted jobs among the next limit jobs with output
// after a job. It returns the last job that it checked, nil at the end.
func (s *Store) PruneStrayLogs(ctx context.Context, after int64, limit int) (last *int64, deleted int64, err error) {
	if err := s.db.QueryRow(ctx, pruneStrayLogsSQL, after, limit).Scan(&last, &deleted); err != nil {
		return nil, 0, fmt.Errorf("delete stray output: %w", err)
	}
	return last, deleted, nil
}
