package jobstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ownerSQL is the client id that runs a job. It is empty if somebody has set the state of a row to
// running by hand. River rescues each job an hour after its attempt began, whoever runs it; forge
// only one without an owner.
const (
	ownerSQL     = `coalesce(attempted_by[array_upper(attempted_by, 1)], '')`
	ownerLateSQL = `coalesce(attempted_at, created_at) < clock_timestamp() - interval '1 hour'`
)

const runningOwnersSQL = `
SELECT DISTINCT ` + ownerSQL + `
FROM river_job
WHERE ` + isRunning + ` AND (` + ownerSQL + ` <> '' OR ` + ownerLateSQL + `)`

// The running jobs of one node. A row that another transaction has locked is left for the
// next check.
const orphansSQL = `
SELECT id, kind, queue, coalesce(metadata ->> 'forge:cron', ''), attempt, max_attempts, ` + boundTime + `coalesce(attempted_at, created_at)` + inYears + `,
       metadata ? 'cancel_attempted_at'
FROM river_job
WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE client_id = $1))
  AND state = 'running' AND ` + ownerSQL + ` = $1 AND ($1 <> '' OR ` + ownerLateSQL + `)
LIMIT $2
FOR UPDATE SKIP LOCKED`

// The same jobs, whether locked or not.
const countOrphansSQL = `
SELECT count(*)
FROM river_job
WHERE id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims WHERE client_id = $1))
  AND state = 'running' AND ` + ownerSQL + ` = $1`

const releaseSQL = `
UPDATE river_job
SET state = r.state::river_job_state,
    finalized_at = CASE WHEN r.state = 'available' THEN NULL ELSE $2::timestamptz END,
    scheduled_at = CASE WHEN r.state = 'available' THEN $2::timestamptz ELSE river_job.scheduled_at END,
    errors = array_append(river_job.errors, r.error),
    metadata = river_job.metadata || r.metadata
FROM unnest($1::bigint[], $3::text[], $4::jsonb[], $5::jsonb[]) AS r (id, state, error, metadata)
WHERE river_job.id = r.id`

// Orphan is a running job whose node is lost.
type Orphan struct {
	ID          int64
	Kind        string
	Queue       string
	Cron        string // empty for a job of no cron
	Attempt     int
	MaxAttempts int
	AttemptedAt time.Time
	// CancelRequested reports whether the job's cancellation was requested.
	CancelRequested bool
}

// Verdict is the new state of an orphan.
type Verdict struct {
	ID       int64
	State    string
	Error    []byte // River's AttemptError
	Metadata []byte // to merge
}

// RunningOwners returns the client ids that own running jobs. An empty one stands for jobs that
// have had no owner for an hour.
func (s *Store) RunningOwners(ctx context.Context) ([]string, error) {
	found, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], runningOwnersSQL)
	if err != nil {
		return nil, fmt.Errorf("find running jobs: %w", err)
	}
	return found, nil
}

// LockOrphans returns at most limit running jobs of an owner, with their rows locked.
func (s *Store) LockOrphans(ctx context.Context, owner string, limit int) ([]Orphan, error) {
	orphans, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Orphan], orphansSQL, owner, limit)
	if err != nil {
		return nil, fmt.Errorf("find the jobs of %s: %w", owner, err)
	}
	return orphans, nil
}

// CountOrphans returns how many jobs of an owner are running.
func (s *Store) CountOrphans(ctx context.Context, owner string) (jobs int, err error) {
	if err := s.db.QueryRow(ctx, countOrphansSQL, owner).Scan(&jobs); err != nil {
		return 0, fmt.Errorf("count the jobs of %s: %w", owner, err)
	}
	return jobs, nil
}

// ReleaseOrphans writes the verdicts on locked orphans.
func (s *Store) ReleaseOrphans(ctx context.Context, now time.Time, verdicts []Verdict) error {
	var (
		ids            = make([]int64, len(verdicts))
		states         = make([]string, len(verdicts))
		errs, metadata = make([][]byte, len(verdicts)), make([][]byte, len(verdicts))
	)
	for i, v := range verdicts {
		ids[i], states[i], errs[i], metadata[i] = v.ID, v.State, v.Error, v.Metadata
	}
	if _, err := s.db.Exec(ctx, releaseSQL, ids, now, states, errs, metadata); err != nil {
		return fmt.Errorf("release orphans: %w", err)
	}
	return nil
}
