// Package nodestore owns forge_nodes: who is in the cluster and who is alive.
//
// A node is a process: a node id that the operator chose and an incarnation
// that the process drew. One row per node id; a new process takes the row over
// once its predecessor is gone. Two signs speak for a process: the advisory
// lock that its election session holds (SessionLock), which PostgreSQL frees
// the moment that the process is gone, and its heartbeat. Liveness.Dead weighs
// them. A process that was found dead is fenced: its row says so, committed,
// before anyone touches its jobs, and its next heartbeat tells it (ErrFenced).
//
// Every time and every age here is read from the database's clock.
package nodestore
