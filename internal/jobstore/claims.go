package jobstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Which jobs run. No index of river_job can say it: an index that names the state would cost
// every claim an entry in every index. Instead, each claim inserts a row with the ids of its
// jobs in forge_claims, in its own transaction. Triggers do it for other programs. So the
// running jobs are those among these ids whose row has the state.
const (
	// isRunning is true for running jobs. The array makes the planner read the primary key,
	// with any statistics.
	isRunning = `id = ANY (ARRAY (SELECT unnest(ids) FROM forge_claims)) AND state = 'running'`

	// isOpen is true for available and running jobs, and isDue for scheduled and retryable
	// ones, in the words of the partial indexes of these jobs.
	isOpen = `finalized_at IS NULL AND forge_state IS NULL`
	isDue  = `forge_state IN ('scheduled', 'retryable')`

	// noteClaimSQL notes the jobs of the CTE claimed and returns them. The claim sets
	// forge.claims for its transaction, which keeps the trigger from noting them again.
	noteClaimSQL = `, noted AS (
    INSERT INTO forge_claims (client_id, ids)
    SELECT @client::text, array_agg(id) FROM claimed HAVING count(*) > 0
)
SELECT ` + jobColumns + `
FROM claimed AS river_job`
)

// The statement deletes the claims none of whose jobs run, and shortens those of which at most
// half run. A claim and its jobs are visible at once, so a job that does not run now runs again
// only after another claim. Rows that another transaction has locked are left for the next call.
// The commit waits neither for the disk nor for replicas: the check of the nodes, which the
// statement is part of, must not wait for them.
const forgetClaimsSQL = `
WITH claims AS MATERIALIZED (
    SELECT c.ctid AS at, cardinality(c.ids) AS claimed, ARRAY (
        SELECT id FROM river_job WHERE id = ANY (c.ids) AND state = 'running') AS running
    FROM forge_claims AS c
    WHERE (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
), shortened AS (
    UPDATE forge_claims
    SET ids = claims.running
    FROM claims
    WHERE forge_claims.ctid = claims.at AND cardinality(claims.running) BETWEEN 1 AND claims.claimed / 2
)
DELETE FROM forge_claims
WHERE ctid = ANY (ARRAY (
    SELECT c.ctid
    FROM forge_claims AS c
    WHERE c.ctid = ANY (ARRAY (SELECT at FROM claims WHERE running = '{}'))
    FOR UPDATE SKIP LOCKED))`

// BatchForgetClaims adds a statement to a batch that deletes the claims whose jobs have ended.
// It needs no fence: what it deletes has no meaning any more.
func BatchForgetClaims(batch *pgx.Batch) {
	batch.Queue(forgetClaimsSQL).Exec(func(pgconn.CommandTag) error { return nil })
}
