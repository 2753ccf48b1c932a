package rescue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/wire"
)

// Time until the next due job, from the partial index forge_river_job_due.
const nextDueSQL = `
SELECT extract(epoch FROM min(scheduled_at) - clock_timestamp())::float8
FROM river_job
WHERE state IN ('scheduled', 'retryable')`

const runningOwnersSQL = `
SELECT DISTINCT attempted_by[array_upper(attempted_by, 1)]
FROM river_job
WHERE state = 'running' AND attempted_by[array_upper(attempted_by, 1)] IS NOT NULL`

// The running jobs of one node. A row that another transaction has locked is left for the
// next check.
const orphansSQL = `
SELECT id, kind, queue, attempt, max_attempts, coalesce(attempted_at, created_at), metadata ? 'cancel_attempted_at'
FROM river_job
WHERE state = 'running' AND attempted_by[array_upper(attempted_by, 1)] = $1
LIMIT $2
FOR UPDATE SKIP LOCKED`

const releaseSQL = `
UPDATE river_job
SET state = r.state::river_job_state,
    finalized_at = CASE WHEN r.state = 'available' THEN NULL ELSE $2::timestamptz END,
    scheduled_at = CASE WHEN r.state = 'available' THEN $2::timestamptz ELSE river_job.scheduled_at END,
    errors = array_append(river_job.errors, r.error),
    metadata = river_job.metadata || r.metadata
FROM unnest($1::bigint[], $3::text[], $4::jsonb[], $5::jsonb[]) AS r (id, state, error, metadata)
WHERE river_job.id = r.id`

// Every connection of a node has this name, cut to PostgreSQL's 63 bytes. The incarnation
// comes first, so it is never cut.
const endSessionsSQL = `
SELECT count(*), count(*) FILTER (WHERE pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND starts_with(application_name, 'forge:' || $1 || ':')`

// Age of the leader's election session; 0 if it is not visible.
const sessionAgeSQL = `
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - backend_start)), 0)::float8
FROM forge_leaders JOIN pg_stat_activity ON pid = backend_pid
WHERE role = $1 AND term = $2 AND starts_with(application_name, 'forge:' || incarnation || ':')`

const notifySQL = `
SELECT pg_notify(current_schema() || '.' || $1, json_build_object('queue', queue)::text)
FROM unnest($2::text[]) AS queue`

// insufficientPrivilege is PostgreSQL's SQLSTATE for a missing privilege.
const insufficientPrivilege = "42501"

// noDueJob is longer than any wait.
const noDueJob = 24 * time.Hour

// nextDue returns the time until the next scheduled or retryable job is due. It is
// negative for an overdue job, and noDueJob if there is none.
func nextDue(ctx context.Context, pool *pgxpool.Pool) (time.Duration, error) {
	return scanDue(pool.QueryRow(ctx, nextDueSQL))
}

func scanDue(row pgx.Row) (time.Duration, error) {
	var seconds *float64
	if err := row.Scan(&seconds); err != nil {
		return 0, fmt.Errorf("find due jobs: %w", err)
	}
	if seconds == nil || *seconds > noDueJob.Seconds() {
		return noDueJob, nil
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

// runningOwners returns the owners of the running jobs.
func runningOwners(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, runningOwnersSQL)
	if err != nil {
		return nil, fmt.Errorf("find running jobs: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("find running jobs: %w", err)
	}
	return found, nil
}

func orphansOf(ctx context.Context, tx pgx.Tx, owner string, limit int) ([]orphan, error) {
	rows, err := tx.Query(ctx, orphansSQL, owner, limit)
	if err != nil {
		return nil, fmt.Errorf("find the jobs of %s: %w", owner, err)
	}
	orphans, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (orphan, error) {
		var o orphan
		err := row.Scan(&o.id, &o.kind, &o.queue, &o.attempt, &o.maxAttempts, &o.attemptedAt, &o.cancelRequested)
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("find the jobs of %s: %w", owner, err)
	}
	return orphans, nil
}

// release writes the verdicts on orphans.
func release(ctx context.Context, tx pgx.Tx, now time.Time, verdicts []verdict) error {
	var (
		ids            = make([]int64, len(verdicts))
		states         = make([]string, len(verdicts))
		errs, metadata = make([][]byte, len(verdicts)), make([][]byte, len(verdicts))
	)
	for i, v := range verdicts {
		ids[i], states[i], errs[i], metadata[i] = v.id, v.state, v.err, v.metadata
	}
	if _, err := tx.Exec(ctx, releaseSQL, ids, now, states, errs, metadata); err != nil {
		return fmt.Errorf("release orphans: %w", err)
	}
	return nil
}

func notifyQueues(ctx context.Context, tx pgx.Tx, queues []string) error {
	if len(queues) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, notifySQL, wire.RiverInsertChannel, queues); err != nil {
		return fmt.Errorf("notify of available jobs: %w", err)
	}
	return nil
}

// endSessions ends an incarnation's sessions, and returns how many there were. It returns
// permitted as false if the privilege is missing.
func endSessions(ctx context.Context, pool *pgxpool.Pool, incarnation string) (found int, permitted bool, err error) {
	var ended int
	err = pool.QueryRow(ctx, endSessionsSQL, incarnation).Scan(&found, &ended)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("end the sessions of incarnation %s: %w", incarnation, err)
	}
	return found, true, nil
}
