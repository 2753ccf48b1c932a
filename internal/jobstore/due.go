package jobstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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

// A retryable job whose unique states lack retryable has given up its unique key, and its unique
// states are in its metadata. The trigger forge_job_unique moves them back when the job is
// released. If a transaction that is still open has inserted a job with the same key, the release
// waits for it.
const takesKeySQL = `(unique_key IS NOT NULL AND unique_states IS NULL AND metadata ? 'forge:unique_states')`

// The first due jobs. A lookup in the index forge_river_job_due for each priority finds them. By
// the time alone, the planner could expect that most jobs are due, and read the whole table.
const firstDueSQL = isDue + `
      AND scheduled_at <= coalesce($1::timestamptz, now())
      AND id = ANY (ARRAY (
          SELECT j.id
          FROM generate_series(1, 4) AS p (priority),
               LATERAL (SELECT id, scheduled_at FROM river_job
                        WHERE ` + isDue + ` AND priority = p.priority AND scheduled_at <= coalesce($1::timestamptz, now())
                        ORDER BY scheduled_at, id LIMIT $2::bigint) AS j
          ORDER BY p.priority, j.scheduled_at, j.id
          LIMIT $2::bigint))`

// River's statement, without reading the whole rows again. A job that has given up its unique key
// is discarded if another job holds the key, or will hold it first. If the job is unique while it
// is discarded, it loses the key. A job that another transaction has locked is left for later, so
// that it delays no other.
const (
	lockDueSQL = `
WITH jobs_to_schedule AS (
    SELECT id, unique_key, ` + takesKeySQL + ` AS takes_key, priority, scheduled_at
    FROM river_job
    WHERE `

	releaseLockedSQL = `
    FOR UPDATE SKIP LOCKED
), jobs_with_rownum AS (
    SELECT *, row_number() OVER (PARTITION BY takes_key, unique_key ORDER BY priority, scheduled_at, id) AS row_num
    FROM jobs_to_schedule
), job_updates AS (
    SELECT id, takes_key AND (row_num > 1 OR (
        SELECT true FROM river_job AS holder
        WHERE holder.unique_key = job.unique_key AND holder.unique_states IS NOT NULL
          AND river_job_state_in_bitmask(holder.unique_states, holder.state)
        LIMIT 1) IS NOT NULL) AS conflict
    FROM jobs_with_rownum AS job
)
UPDATE river_job
SET state = CASE WHEN job_updates.conflict THEN 'discarded' ELSE 'available' END::river_job_state,
    finalized_at = CASE WHEN job_updates.conflict THEN coalesce($1::timestamptz, now()) ELSE river_job.finalized_at END,
    metadata = CASE WHEN job_updates.conflict
        THEN river_job.metadata || '{"unique_key_conflict": "scheduler_discarded"}' ELSE river_job.metadata END,
    unique_key = CASE WHEN job_updates.conflict AND river_job.metadata ->> 'forge:unique_states' ~ '^[01]{4}1[01]{3}$'
        THEN NULL ELSE river_job.unique_key END
FROM job_updates
WHERE river_job.id = job_updates.id
RETURNING river_job.queue, ` + scheduledAtSQL + `, job_updates.conflict`

	// The condition sets the timeout before the statement locks anything.
	releaseDueSQL = lockDueSQL + firstDueSQL + `
      AND (SELECT set_config('lock_timeout', '` + allKeysTimeout + `', true)) IS NOT NULL` + releaseLockedSQL
	releaseKeepingKeysSQL = lockDueSQL + firstDueSQL + ` AND NOT ` + takesKeySQL + releaseLockedSQL
	releaseOneSQL         = lockDueSQL + isDue + ` AND id = $2` + releaseLockedSQL

	lockTakingKeysSQL = `
SELECT id
FROM river_job
WHERE ` + firstDueSQL + ` AND ` + takesKeySQL + `
ORDER BY priority, scheduled_at, id
FOR UPDATE SKIP LOCKED`
	lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`
	// The commit of a notification can wait for a lock, too.
	noLockTimeoutSQL = `SELECT set_config('lock_timeout', NULL, true)`
	// The microseconds keep the order of the jobs.
	postponeSQL = `
UPDATE river_job
SET scheduled_at = $1::timestamptz + p.n * interval '1 microsecond'
FROM unnest($2::bigint[]) WITH ORDINALITY AS p (id, n)
WHERE river_job.id = p.id`
)

const (
	// allKeysTimeout bounds the wait for the unique keys of a batch, and oneKeyTimeout that for the
	// key of one job after the batch has failed.
	allKeysTimeout = "50ms"
	oneKeyTimeout  = "5ms"
	// takingKeys is how long such jobs are tried one by one.
	takingKeys = 100 * time.Millisecond
	// keyWait is how long a job whose unique key is not free is postponed.
	keyWait = time.Second / 2
)

// uniqueViolation is the SQLSTATE of a statement that adds a key to a unique index twice.
const uniqueViolation = "23505"

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
	return time.Duration(max(*seconds, -NoDueJob.Seconds()) * float64(time.Second)), nil
}

// ReleaseDue makes at most limit scheduled and retryable jobs available that are due at
// now, and notifies the leader of them. It returns how many it changed. In a transaction it does
// not wait long for another one that has inserted a job with the unique key of a due job: the error
// is then IsKeyBusy.
func (s *Store) ReleaseDue(ctx context.Context, now time.Time, limit int) (int, error) {
	released, err := s.releaseDue(ctx, releaseDueSQL, now, limit)
	if err != nil {
		return 0, err
	}
	if _, err := s.db.Exec(ctx, noLockTimeoutSQL); err != nil {
		return 0, fmt.Errorf("end the lock timeout: %w", err)
	}
	return len(released), s.notifyDue(ctx, released, now)
}

// IsKeyBusy reports whether ReleaseDue has failed because another transaction has taken the unique
// key of a due job. ReleaseKeepingKeys releases the other jobs.
func IsKeyBusy(err error) bool {
	rejected, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (rejected.Code == lockNotAvailable || rejected.Code == uniqueViolation)
}

// ReleaseKeepingKeys is like ReleaseDue, but leaves the jobs that take a unique key when they are
// released. So it waits for no other transaction.
func (s *Store) ReleaseKeepingKeys(ctx context.Context, now time.Time, limit int) (int, error) {
	released, err := s.releaseDue(ctx, releaseKeepingKeysSQL, now, limit)
	if err != nil {
		return 0, err
	}
	return len(released), s.notifyDue(ctx, released, now)
}

// ReleaseTakingKeys is like ReleaseDue for the jobs that ReleaseKeepingKeys leaves, in a transaction
// of its own. It releases them one by one, for a short time, and postpones those that remain by half a
// second, so that they do not delay the due jobs after them. Jobs that it has not tried come first
// the next time.
func (s *Store) ReleaseTakingKeys(ctx context.Context, now time.Time, limit int) (int, error) {
	ids, err := postgres.Select(ctx, s.db, "find due jobs that take a unique key", pgx.RowTo[int64], lockTakingKeysSQL, now, limit)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if _, err := s.db.Exec(ctx, lockTimeoutSQL, oneKeyTimeout); err != nil {
		return 0, fmt.Errorf("set the lock timeout: %w", err)
	}
	var released []releasedJob
	left, err := tryKeys(ids, takingKeys, func(id int64) error {
		return pgx.BeginFunc(ctx, s.db, func(savepoint pgx.Tx) error {
			one, err := New(savepoint).releaseDue(ctx, releaseOneSQL, now, id)
			released = append(released, one...)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	if _, err := s.db.Exec(ctx, noLockTimeoutSQL); err != nil {
		return 0, fmt.Errorf("end the lock timeout: %w", err)
	}
	if _, err := s.db.Exec(ctx, postponeSQL, now.Add(keyWait), left); err != nil {
		return 0, fmt.Errorf("postpone due jobs: %w", err)
	}
	return len(released), s.notifyDue(ctx, released, now)
}

// tryKeys calls try with one job after another for a time. It returns the jobs that it has not tried,
// and after them those whose unique keys are busy.
func tryKeys(ids []int64, lasts time.Duration, try func(id int64) error) (left []int64, err error) {
	var busy []int64
	for began := time.Now(); len(ids) > 0 && time.Since(began) < lasts; ids = ids[1:] {
		if err := try(ids[0]); IsKeyBusy(err) {
			busy = append(busy, ids[0])
		} else if err != nil {
			return nil, err
		}
	}
	return slices.Concat(ids, busy), nil
}

// releasedJob is a job that was due and is now available, or discarded.
type releasedJob struct {
	queue     string
	dueAt     time.Time
	discarded bool
}

func (s *Store) releaseDue(ctx context.Context, sql string, args ...any) ([]releasedJob, error) {
	return postgres.Select(ctx, s.db, "make due jobs available", func(row pgx.CollectableRow) (r releasedJob, err error) {
		return r, row.Scan(&r.queue, &r.dueAt, &r.discarded)
	}, sql, args...)
}

// notifyDue notifies the leader of the available jobs.
func (s *Store) notifyDue(ctx context.Context, released []releasedJob, now time.Time) error {
	dueAt := map[string]time.Time{}
	for _, r := range released {
		if first, ok := dueAt[r.queue]; !r.discarded && (!ok || r.dueAt.Before(first)) {
			dueAt[r.queue] = r.dueAt
		}
	}
	return s.notifyReleased(ctx, dueAt, now)
}
