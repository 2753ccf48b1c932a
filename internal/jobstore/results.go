package jobstore

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/postgres"
)

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

// completeSQL is setStateSQL for the most frequent result: success without other changes.
// It returns nothing for rows that it does not change; setStateSQL handles those. For
// CASE, see attemptFence.
const completeSQL = `
WITH fence AS MATERIALIZED (
    SELECT FROM forge_nodes WHERE node_id = @node AND incarnation = @incarnation AND fenced_at IS NULL
)
UPDATE river_job
SET state = 'completed', finalized_at = input.finalized_at
FROM unnest(@ids::bigint[], @finalized_ats::timestamptz[], @claimed_ats::timestamptz[]) AS input (id, finalized_at, claimed_at)
WHERE river_job.id = input.id
  AND CASE WHEN river_job.state = 'running' THEN true ELSE false END
  ` + attemptFence + `
RETURNING river_job.id`

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

// Complete writes that jobs have succeeded. ends are when, and claimedAts when they were
// claimed, nil if unknown. It returns the ids of the jobs that it changed.
func (c *Client) Complete(ctx context.Context, ids []int64, ends, claimedAts []*time.Time) ([]int64, error) {
	return postgres.Collect(ctx, c.pool, pgx.RowTo[int64], fenced(completeSQL), c.completeArgs(Successes{ids, ends, claimedAts}))
}

func (c *Client) completeArgs(s Successes) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"client": c.of.ClientID, "node": c.of.NodeID, "incarnation": c.of.Incarnation, "ids": s.IDs, "finalized_ats": s.Ends,
		"claimed_ats": s.ClaimedAts,
	}
}

// Results are the results of attempts, by column. An element is nil if the column keeps
// its value.
type Results struct {
	IDs          []int64
	Attempts     []*int
	Errors       [][]byte
	FinalizedAts []*time.Time
	Metadata     [][]byte
	ScheduledAts []*time.Time
	States       []string
	// ClaimedAts are when the attempts were claimed; nil if unknown.
	ClaimedAts []*time.Time
}

// ResultRow is the current row of a result.
type ResultRow struct {
	Row
	// Mine is false for a rejected result.
	Mine bool
}

// SetState writes results and returns the current rows. It runs on the pool, or on db if
// that is not nil: the transaction in which a worker completes its job. If a row is not
// written, because an earlier request has written its result, or is not there, SetState waits for
// the synchronous replicas as it does for a written row: a primary that was replaced while it
// was frozen does not have the newest jobs, and has no replicas any more.
func (c *Client) SetState(ctx context.Context, db postgres.DB, r Results) ([]ResultRow, error) {
	if db == nil {
		conn, err := c.pool.Acquire(ctx) // so that the server that was read confirms it
		if err != nil {
			return nil, err
		}
		defer conn.Release()
		db = conn
	}
	rows, err := db.Query(ctx, fenced(c.setStateSQL), c.resultArgs(r))
	if err != nil {
		return nil, err
	}
	results, onlyRead, err := collectResults(rows, len(r.IDs))
	if err == nil && onlyRead {
		err = postgres.Confirm(ctx, db)
	}
	return results, err
}

func (c *Client) resultArgs(r Results) pgx.StrictNamedArgs {
	return pgx.StrictNamedArgs{
		"client": c.of.ClientID, "node": c.of.NodeID, "incarnation": c.of.Incarnation,
		"ids": r.IDs, "attempts": r.Attempts, "errors": r.Errors, "finalized_ats": r.FinalizedAts,
		"metadata": r.Metadata, "scheduled_ats": r.ScheduledAts, "states": r.States, "claimed_ats": r.ClaimedAts,
	}
}

// collectResults reads the rows of setStateSQL for a number of results. onlyRead reports whether
// any of them was not written.
func collectResults(rows pgx.Rows, n int) (results []ResultRow, onlyRead bool, err error) {
	results, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r ResultRow, err error) {
		var written bool
		err = row.Scan(append(r.targets(), &r.Mine, &written)...)
		onlyRead = onlyRead || !written
		return r, err
	})
	return results, onlyRead || len(results) < n, err
}
