package jobstore

import (
	"context"
	"fmt"
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

	// isAvailable is true for available jobs. The planner believes that few open jobs have the
	// state available, because few of all jobs have; so it would expect to read many of them for
	// one, and compile the statement, which takes longer than to execute it.
	isAvailable = `state <> 'running' AND ` + isOpen

	// noteOfferedSQL notes the offered jobs before their claim, in its transaction, with the locks of
	// their limits. Those that the claim does not get do no harm, because queries also check the
	// client of a running job. The claim sets forge.claims for its transaction, which keeps the
	// trigger from noting its jobs again.
	noteOfferedSQL = `
INSERT INTO forge_claims (client_id, ids, limited_ids, limit_locks)
VALUES (@client::text, @ids::bigint[], @limited_ids::bigint[], @limit_locks::bigint[])
RETURNING ` + rowLockTimeoutSQL + `, ` + planOnceSQL

	// rowLockTimeoutSQL bounds the wait of the following claim for a row that another transaction
	// has locked, because the other jobs wait with it.
	rowLockTimeoutSQL = `set_config('lock_timeout', '100ms', true)`
)

// The statement reads the claims in the blocks of forge_claims from $1 to before $2. It deletes
// those none of whose jobs run, and shortens those of which at most half run. A claim and its
// jobs are visible at once, so a job that does not run now runs again only after another claim.
// Rows that another transaction has locked are left for the next call. The result is the number
// of blocks of the table. The commit waits neither for the disk nor for replicas.
const forgetClaimsSQL = `
WITH claims AS MATERIALIZED (
    SELECT c.ctid AS at, cardinality(c.ids) AS claimed, ARRAY (
        SELECT id FROM river_job WHERE id = ANY (c.ids) AND state = 'running') AS running
    FROM forge_claims AS c
    WHERE c.ctid >= format('(%s,0)', $1::bigint)::tid AND c.ctid < format('(%s,0)', $2::bigint)::tid
      AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
), locked AS MATERIALIZED (
    SELECT c.ctid AS at
    FROM forge_claims AS c
    WHERE c.ctid = ANY (ARRAY (SELECT at FROM claims WHERE cardinality(running) <= claimed / 2))
    FOR UPDATE SKIP LOCKED
), shortened AS (
    UPDATE forge_claims AS c
    SET ids = ARRAY (SELECT id FROM river_job WHERE id = ANY (c.ids) AND state = 'running'),
        (limited_ids, limit_locks) = (
            SELECT CASE WHEN c.limit_locks IS NOT NULL THEN coalesce(array_agg(n.id), '{}') END,
                   CASE WHEN c.limit_locks IS NOT NULL THEN coalesce(array_agg(n.lock), '{}') END
            FROM unnest(c.limited_ids, c.limit_locks) AS n (id, lock)
            JOIN river_job AS j ON j.id = n.id AND j.state = 'running')
    WHERE c.ctid = ANY (ARRAY (SELECT at FROM claims JOIN locked USING (at) WHERE running <> '{}'))
), forgotten AS (
    DELETE FROM forge_claims
    WHERE ctid = ANY (ARRAY (SELECT at FROM claims JOIN locked USING (at) WHERE running = '{}'))
)
SELECT pg_relation_size('forge_claims') / current_setting('block_size')::bigint`

// ForgetClaims deletes the claims whose jobs have ended, in at most limit blocks of the table
// from a block on. It returns the number of blocks of the table. It needs no fence: what it
// deletes has no meaning any more.
func (s *Store) ForgetClaims(ctx context.Context, from int64, limit int) (blocks int64, err error) {
	err = s.db.QueryRow(ctx, forgetClaimsSQL, from, from+int64(limit)).Scan(&blocks)
	if err != nil {
		return 0, fmt.Errorf("forget claims: %w", err)
	}
	return blocks, nil
}

// Without the right to vacuum the table, the server would log a warning each time.
const mayVacuumSQL = `SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'forge_claims'::regclass`

// vacuumClaimsSQL does nothing if autovacuum is at it. It keeps the size of the table: truncating
// it would lock out claims, also on standbys.
const vacuumClaimsSQL = `VACUUM (SKIP_LOCKED, TRUNCATE off) forge_claims`

// VacuumClaims makes room for new claims in the blocks of forge_claims, which each claim reads.
// Autovacuum comes once a minute, in which thousands of blocks may be added. It does nothing if
// this role does not own the table.
func (s *Store) VacuumClaims(ctx context.Context) error {
	var may bool
	err := s.db.QueryRow(ctx, mayVacuumSQL).Scan(&may)
	if err == nil && may {
		_, err = s.db.Exec(ctx, vacuumClaimsSQL)
	}
	if err != nil {
		return fmt.Errorf("vacuum the claims: %w", err)
	}
	return nil
}
