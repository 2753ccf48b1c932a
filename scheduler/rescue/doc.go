// Package rescue makes due jobs available, and rescues the running jobs of lost nodes,
// for the scheduler's leader.
//
// Due jobs (due.go). River's scheduled and retryable jobs become available at their
// scheduled time. A timer is set for the next known one. A cheap query of the partial
// index is part of each check of the nodes, and finds new jobs within a second. Pauses of
// queues with an end are part of both, and end in the transaction that makes jobs available.
// If the unique key of a due job is taken by a transaction that is still open, the job is
// postponed by half a second, and the other jobs are released without it.
//
// Claims (claims.go). The rows of forge_claims whose jobs have ended are deleted once a second,
// some blocks of the table in each transaction.
//
// Orphans (nodemonitor.go, orphan.go). Nodes that are dead by nodestore's policy are
// fenced in the order below. If this leader crashes at any point, the next one continues:
//
//	fence the node, committed   -- from now on it can neither claim nor complete jobs
//	end its sessions            -- wait for the end, so that no statement of it can follow
//	release its running jobs    -- as available, cancelled or discarded
//
// Jobs of a process that left, or whose node id another process has taken over, are
// orphans too. A job belongs to a node if the last element of its attempted_by is a node
// id from forge_nodes and an incarnation of sixteen hex digits. Jobs of plain River
// clients on the same table are never touched.
//
// A crash ends the session of a node, but so does a proxy that restarts. A node is dead if it
// remains without session and heartbeat for one and a half heartbeat intervals.
//
// Silence means nothing if the database was unavailable. After a failed check, or a long
// pause of this process, every node gets the time of a heartbeat before any node is fenced
// (silence.go), and one that holds its session lock, or has just joined, the whole dead threshold. If most nodes are
// silent when a new leader starts, it waits for that with all of them. The exception are nodes
// that sent a heartbeat and then lost their sessions while the leader's own session lasted: they
// crashed, because an outage of the database would have ended the leader's session too.
//
// Each step that writes is one fenced transaction.
package rescue
