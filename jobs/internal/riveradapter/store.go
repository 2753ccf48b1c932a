package riveradapter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/uniquestates"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// queryer is the pool, or the transaction in which a worker completes its job.
type queryer interface {
	postgres.Execer
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const jobColumns = `
river_job.id, river_job.args, river_job.attempt, river_job.attempted_at, river_job.attempted_by,
river_job.created_at, river_job.errors, river_job.finalized_at, river_job.kind, river_job.max_attempts,
river_job.metadata, river_job.priority, river_job.queue, river_job.state::text, river_job.scheduled_at,
river_job.tags, river_job.unique_key, river_job.unique_states`

// attemptFence is true if the result belongs to the row's newest attempt and the node is
// not fenced. The client and the time of the claim (null if unknown) identify the
// attempt. So a result that is executed late, when the next attempt already runs here, is
// rejected. A statement with attemptFence has a CTE fence. CASE changes the planner's
// estimate: without it, the planner expects a single row and compares every running row
// with every result.
const attemptFence = `AND CASE WHEN ` + thisAttempt + ` THEN true ELSE false END AND EXISTS (SELECT FROM fence)`

// fenced returns the statement to execute. A failpoint can remove the attempt fence.
func fenced(sql string) string {
	if failpoint.Off("jobs/attempt-fence") {
		return strings.ReplaceAll(sql, attemptFence, "AND @client::text IS NOT NULL")
	}
	return sql
}

const thisAttempt = lastClient + ` = @client::text AND coalesce(river_job.attempted_at = claimed_at, true)`

// lastClient is the client that claimed the row's newest attempt.
const lastClient = `river_job.attempted_by[array_upper(river_job.attempted_by, 1)]`

// claimSQL is River's claim for the offered ids, with four additional conditions. The job
// is still available. Its queue is not paused, which this node may not have been notified
// of. No term newer than the offer's was acquired; the row keeps its term while there is
// no leader, so offered jobs can still be claimed. This incarnation is not fenced. The
// cast keeps the planner from scanning the whole backlog with the index of available jobs
// when its statistics are outdated.
const claimSQL = startSQL + `
WHERE id = ANY (@ids::bigint[])` + claimableSQL

const startSQL = `
UPDATE river_job
SET state = 'running',
    attempt = attempt + 1,
    attempted_at = now(),
    attempted_by = array_append(
        CASE WHEN array_length(attempted_by, 1) >= @max_attempted_by::int
        THEN attempted_by[array_length(attempted_by, 1) + 2 - @max_attempted_by::int:]
        ELSE attempted_by END,
        @client::text)`

const claimableSQL = `
  AND state::text = 'available'
  AND queue = @queue
  AND scheduled_at <= now()
  AND NOT EXISTS (SELECT FROM river_queue WHERE name = @queue AND paused_at IS NOT NULL)
  AND EXISTS (SELECT FROM forge_leaders WHERE role = 'scheduler' AND term = @term)
  AND EXISTS (SELECT FROM forge_nodes WHERE node_id = @node AND incarnation = @incarnation AND fenced_at IS NULL)
RETURNING ` + jobColumns

// mayBeOurs is true for a job that this client holds, or that its claim may be changing:
// the change of a claim is not visible until it commits.
const mayBeOurs = `(state::text = 'available' OR state::text = 'running' AND ` + lastClient + ` = @client::text)`

// adoptSQL finds the jobs that unanswered claims have claimed. It locks the rows first
// and uses their state after that. It skips rows that another transaction has locked:
// that may be the claim, which is still running or waits for a replica.
const adoptSQL = `
WITH locked AS MATERIALIZED (
    SELECT river_job.*
    FROM river_job
    WHERE id = ANY (@ids::bigint[]) AND ` + mayBeOurs + `
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT ` + jobColumns + `
FROM locked AS river_job`

// undecidedSQL finds which rows that adoptSQL skipped may still become this client's.
const undecidedSQL = `
SELECT id
FROM river_job
WHERE id = ANY (@ids::bigint[]) AND ` + mayBeOurs

// setStateSQL is River's statement with the attempt fence: a row is changed only if this
// client holds its newest attempt and the node is not fenced. mine is false for a
// rejected row. written is false for a row that was only read. NOT IN is hashed. With NOT
// EXISTS, the planner, which estimates ten rows for an array, compares every row with
// every other.
const setStateSQL = `
WITH fence AS MATERIALIZED (
    SELECT FROM forge_nodes WHERE node_id = @node AND incarnation = @incarnation AND fenced_at IS NULL
),
input AS (
    SELECT *
    FROM unnest(@ids::bigint[], @attempts::int[], @errors::jsonb[], @finalized_ats::timestamptz[],
                @metadata::jsonb[], @scheduled_ats::timestamptz[], @states::text[], @claimed_ats::timestamptz[])
         AS input (id, attempt, error, finalized_at, metadata, scheduled_at, state, claimed_at)
),
decided AS (
    SELECT input.*, input.state IN ('available', 'retryable', 'scheduled') AS again FROM input
),
updated AS (
    UPDATE river_job
    SET attempt = CASE
            WHEN river_job.state = 'running' AND NOT (again AND river_job.metadata ? 'cancel_attempted_at')
            THEN coalesce(decided.attempt, river_job.attempt)
            ELSE river_job.attempt END,
        errors = CASE
            WHEN river_job.state = 'running' AND decided.error IS NOT NULL
            THEN array_append(river_job.errors, decided.error)
            ELSE river_job.errors END,
        finalized_at = CASE
            WHEN river_job.state = 'running' AND again AND river_job.metadata ? 'cancel_attempted_at' THEN now()
            WHEN river_job.state = 'running' THEN coalesce(decided.finalized_at, river_job.finalized_at)
            ELSE river_job.finalized_at END,
        metadata = river_job.metadata || coalesce(decided.metadata, '{}'),
        scheduled_at = CASE
            WHEN river_job.state = 'running' AND NOT (again AND river_job.metadata ? 'cancel_attempted_at')
            THEN coalesce(decided.scheduled_at, river_job.scheduled_at)
            ELSE river_job.scheduled_at END,
        state = CASE
            WHEN river_job.state = 'running' AND again AND river_job.metadata ? 'cancel_attempted_at'
            THEN 'cancelled'::river_job_state
            WHEN river_job.state = 'running' THEN decided.state::river_job_state
            ELSE river_job.state END
    FROM decided
    WHERE river_job.id = decided.id
      AND (river_job.state = 'running' OR decided.metadata IS NOT NULL)
      ` + attemptFence + `
    RETURNING ` + jobColumns + `
)
SELECT ` + jobColumns + `,
       coalesce(` + thisAttempt + `, false) AND EXISTS (SELECT FROM fence) AS mine, false AS written
FROM river_job
JOIN input ON river_job.id = input.id
WHERE input.id NOT IN (SELECT id FROM updated)
UNION ALL
SELECT updated.*, true, true FROM updated
ORDER BY 1`

// inSchema adds the schema to the names in setStateSQL. It may run in a transaction of a
// Go program whose search_path lacks the schema.
func inSchema(schema, sql string) string {
	prefix := pgx.Identifier{schema}.Sanitize() + "."
	return strings.NewReplacer(
		"FROM forge_nodes", "FROM "+prefix+"forge_nodes",
		"UPDATE river_job\n", "UPDATE "+prefix+"river_job\n",
		"FROM river_job\n", "FROM "+prefix+"river_job\n",
		"::river_job_state", "::"+prefix+"river_job_state",
	).Replace(sql)
}

func (p *Pilot) claim(ctx context.Context, queue string, ids []int64, term int64, maxAttemptedBy int) (*riverdriver.JobGetAvailableResult, error) {
	return collectJobs(p.pool.Query(ctx, claimSQL, pgx.StrictNamedArgs{
		"max_attempted_by": maxAttemptedBy, "client": p.clientID, "ids": ids, "queue": queue, "term": term,
		"node": p.nodeID, "incarnation": p.incarnation,
	}))
}

// claimLimited claims limited jobs in one round trip and one transaction: the claim
// counts the running jobs in a snapshot that is taken after the rows of the limits were
// locked. The server executes the whole batch without the client, so a node that freezes
// does not hold the locks.
func (p *Pilot) claimLimited(ctx context.Context, queue string, ids []int64, term int64, maxAttemptedBy int) (*riverdriver.JobGetAvailableResult, error) {
	batch := &pgx.Batch{}
	batch.Queue(beginSQL)
	batch.Queue(lockTimeoutSQL)
	batch.Queue(lockLimitsSQL, pgx.StrictNamedArgs{"ids": ids, "queue": queue})
	batch.Queue(claimLimitedSQL, pgx.StrictNamedArgs{
		"max_attempted_by": maxAttemptedBy, "client": p.clientID, "ids": ids, "queue": queue, "term": term,
		"node": p.nodeID, "incarnation": p.incarnation,
	})
	batch.Queue(commitSQL)
	sent := p.pool.SendBatch(ctx, batch)
	result, err := readClaim(sent)
	return result, errors.Join(err, sent.Close())
}

func readClaim(sent pgx.BatchResults) (*riverdriver.JobGetAvailableResult, error) {
	for range 3 { // begin, timeout, lock
		if _, err := sent.Exec(); err != nil {
			return nil, err
		}
	}
	result, err := collectJobs(sent.Query())
	if err != nil {
		return nil, err
	}
	_, err = sent.Exec() // commit
	return result, err
}

// adopt returns the jobs that unanswered claims have claimed for this client, and the ids
// that are still undecided.
func (p *Pilot) adopt(ctx context.Context, ids []int64) (result *riverdriver.JobGetAvailableResult, undecided []int64, err error) {
	args := pgx.StrictNamedArgs{"ids": ids, "client": p.clientID}
	result, err = collectJobs(p.pool.Query(ctx, adoptSQL, args))
	if err != nil {
		return nil, nil, err
	}
	left := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		return slices.ContainsFunc(result.Jobs, func(job *rivertype.JobRow) bool { return job.ID == id })
	})
	result.Jobs = slices.DeleteFunc(result.Jobs, func(job *rivertype.JobRow) bool { return job.State != rivertype.JobStateRunning })
	if len(left) == 0 {
		return result, nil, nil
	}
	rows, err := p.pool.Query(ctx, undecidedSQL, pgx.StrictNamedArgs{"ids": left, "client": p.clientID})
	if err != nil {
		return nil, nil, err
	}
	undecided, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return result, undecided, err
}

// setState returns the current rows, split into accepted and rejected ones. If a row is
// not written, because an earlier request has written its result, setState waits for the
// synchronous replicas as it does for a written row.
func (p *Pilot) setState(ctx context.Context, db queryer, params *riverdriver.JobSetStateIfRunningManyParams) (jobs, refused []*rivertype.JobRow, err error) {
	states := make([]string, len(params.State))
	metadata := make([][]byte, len(params.ID))
	for i, state := range params.State {
		states[i] = string(state)
		if params.MetadataDoMerge[i] {
			metadata[i] = storable(params.MetadataUpdates[i])
		}
	}
	rows, err := db.Query(ctx, fenced(p.setStateSQL), pgx.StrictNamedArgs{
		"client": p.clientID, "node": p.nodeID, "incarnation": p.incarnation,
		"ids": params.ID, "attempts": params.Attempt, "errors": p.storableErrors(params.ID, params.ErrData), "finalized_ats": params.FinalizedAt,
		"metadata": metadata, "scheduled_ats": params.ScheduledAt, "states": states,
		"claimed_ats": claimedAts(p.buffer.rows(params.ID)),
	})
	if err != nil {
		return nil, nil, err
	}
	jobs, refused, onlyRead, err := collectResults(rows)
	if err == nil && onlyRead {
		err = postgres.Confirm(ctx, db)
	}
	return jobs, refused, err
}

// collectResults reads the result of setStateSQL. onlyRead reports whether any row was
// not written.
func collectResults(rows pgx.Rows) (jobs, refused []*rivertype.JobRow, onlyRead bool, err error) {
	defer rows.Close()
	for rows.Next() {
		var (
			raw           jobRow
			mine, written bool
		)
		if err := rows.Scan(append(raw.targets(), &mine, &written)...); err != nil {
			return nil, nil, false, err
		}
		onlyRead = onlyRead || !written
		job, _ := raw.decode() // as in River: one bad row must not affect the others
		if mine {
			jobs = append(jobs, job)
		} else {
			refused = append(refused, job)
		}
	}
	return jobs, refused, onlyRead, rows.Err()
}

func collectJobs(rows pgx.Rows, err error) (*riverdriver.JobGetAvailableResult, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	result := &riverdriver.JobGetAvailableResult{}
	for rows.Next() {
		var raw jobRow
		if err := rows.Scan(raw.targets()...); err != nil {
			return nil, err
		}
		job, err := raw.decode()
		if err != nil {
			if result.DecodeErrors == nil {
				result.DecodeErrors = map[int64]error{}
			}
			result.DecodeErrors[job.ID] = err
		}
		result.Jobs = append(result.Jobs, job)
	}
	return result, rows.Err()
}

// jobRow is a row of river_job; decode converts it to River's type.
type jobRow struct {
	rivertype.JobRow
	errors       [][]byte
	state        string
	uniqueStates pgtype.Bits
}

func (r *jobRow) targets() []any {
	return []any{
		&r.ID, &r.EncodedArgs, &r.Attempt, &r.AttemptedAt, &r.AttemptedBy,
		&r.CreatedAt, &r.errors, &r.FinalizedAt, &r.Kind, &r.MaxAttempts,
		&r.Metadata, &r.Priority, &r.Queue, &r.state, &r.ScheduledAt,
		&r.Tags, &r.UniqueKey, &r.uniqueStates,
	}
}

// decode always returns a row. If it returns an error, the fields that could not be
// decoded are empty.
func (r *jobRow) decode() (*rivertype.JobRow, error) {
	job := r.JobRow
	job.State = rivertype.JobState(r.state)
	job.CreatedAt, job.ScheduledAt = job.CreatedAt.UTC(), job.ScheduledAt.UTC()
	job.AttemptedAt, job.FinalizedAt = utc(job.AttemptedAt), utc(job.FinalizedAt)
	if r.uniqueStates.Valid && len(r.uniqueStates.Bytes) > 0 {
		job.UniqueStates = uniquestates.UniqueBitmaskToStates(r.uniqueStates.Bytes[0])
	}
	job.Errors = make([]rivertype.AttemptError, len(r.errors))
	var firstErr error
	for i, raw := range r.errors {
		firstErr = cmp.Or(firstErr, riverdriver.UnmarshalAttemptError(raw, &job.Errors[i]))
	}
	if firstErr != nil {
		job.Errors = nil
	}
	return &job, firstErr
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
