// Package nodestore owns forge_nodes: the nodes of the cluster and whether they are
// alive.
//
// A node is a process, identified by a node id that the operator chose and by a
// random incarnation. There is one row per node id; a new process takes the row
// over once its predecessor is dead or has left. Two signals show that a process is
// alive: the advisory lock of its election session (SessionLock), which PostgreSQL
// releases as soon as the process has ended, and its heartbeat. Liveness.Dead
// evaluates both. A dead process is fenced: this is committed in its row before its
// jobs are reassigned, and its next heartbeat returns ErrFenced.
//
// Every time and age in this package is read from the database's clock.
//
// A Member keeps one process in the cluster: it registers the node id, sends
// heartbeats, and marks the node as stopped at the end.
package nodestore
