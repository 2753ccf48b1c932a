package compactor

// Statements of the retention. Each deletes at most $2 rows that ended before $1
// and locks the rows before it decides, so that a row that changes concurrently is
// evaluated after the change. In large tables the rows are found again by ctid, so
// that no plan reads the whole table; rows that are never updated need no lock.
const (
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

// job $1, skipping from one to the next through the primary keys, and returns the
// last one that it checked, or none at the end.
