package compactor

// Statements of the retention. Each deletes at most $2 rows that ended before $1
// and locks the rows before it decides, so that a row that changes concurrently is
// evaluated after the change. In large tables the rows are found again by ctid, so
// that no plan reads the whole table; rows that are never updated need no lock.
const (
	// The order is that of River's index on (state, finalized_at). The job's output
	// is deleted with it.
	jobsSQL = `
WITH due AS (
    SELECT id
    FROM river_job
    WHERE state = $3::river_job_state AND finalized_at < $1
    ORDER BY finalized_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), output AS (
    DELETE FROM forge_job_logs WHERE job_id IN (SELECT id FROM due)
), packed AS (
    DELETE FROM forge_job_log_packs WHERE job_id IN (SELECT id FROM due)
)
DELETE FROM river_job WHERE id IN (SELECT id FROM due)`

	logsSQL = `
DELETE FROM forge_job_logs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_logs
    WHERE at < $1 AND keep_until IS NULL
    ORDER BY at
    LIMIT $2))`

	// Output of jobs with their own retention of output.
	ownLogsSQL = `
DELETE FROM forge_job_logs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_logs
    WHERE keep_until < $1
    ORDER BY keep_until
    LIMIT $2))`

	// A pack is as old as its newest chunk.
	packedLogsSQL = `
DELETE FROM forge_job_log_packs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_log_packs
    WHERE at < $1 AND keep_until IS NULL
    ORDER BY at
    LIMIT $2))`

	ownPackedLogsSQL = `
DELETE FROM forge_job_log_packs
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM forge_job_log_packs
    WHERE keep_until < $1
    ORDER BY keep_until
    LIMIT $2))`

	// A tenure without an end ended when the next one began.
	historySQL = `
DELETE FROM forge_leader_history
WHERE (role, term) IN (
    SELECT role, term
    FROM forge_leader_history h
    WHERE acquired_at < $1
      AND term < (SELECT max(term) FROM forge_leader_history WHERE role = h.role)
      AND coalesce(ended_at,
          (SELECT min(acquired_at) FROM forge_leader_history WHERE role = h.role AND term > h.term)) < $1
    ORDER BY acquired_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

	queuesSQL = `
DELETE FROM river_queue
WHERE name IN (
    SELECT name
    FROM river_queue q
    WHERE updated_at < $1 AND paused_at IS NULL
      AND NOT EXISTS (SELECT FROM forge_nodes WHERE queues ? q.name AND state NOT IN ('left', 'dead'))
      AND NOT EXISTS (
          SELECT FROM river_job
          WHERE queue = q.name AND state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

	nodesSQL = `
DELETE FROM forge_nodes
WHERE node_id IN (
    SELECT node_id
    FROM forge_nodes n
    WHERE state IN ('left', 'dead') AND last_heartbeat_at < $1
      AND NOT EXISTS (
          SELECT FROM river_job
          WHERE state = 'running'
            AND attempted_by[array_upper(attempted_by, 1)] = n.node_id || '-' || n.incarnation)
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`
)

// Output whose job was deleted by any program: the statement checks $2 jobs after
// job $1, skipping from one to the next through the primary keys, and returns the
// last one that it checked, or none at the end.
const strayLogsSQL = `
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
