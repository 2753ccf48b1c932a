// Package rescue is two duties of the scheduler's leader towards jobs that are
// not under way: those whose time has come, and those whose node is gone.
//
// Due jobs (due.go). River's scheduled and retryable jobs become available at
// their time: a timer is set for the next one that is known, and a cheap look
// at the partial index, which goes along with the look at the nodes, finds
// newcomers within a second.
//
// Orphans (orphans.go). Nodes that nodestore's policy finds dead are buried in
// an order that a crash of this leader may cut anywhere, for the next one takes
// up whatever it finds:
//
//	fence the node, committed   -- it can neither claim nor finish from here on
//	end its sessions            -- until none is left, so that nothing it sent is still to come
//	give its running jobs back  -- available, or cancelled or discarded where due
//
// Jobs of a process that left, or whose node id has passed to another process,
// are orphans as well. A job belongs to a node when the last element of its
// attempted_by is a node id that forge_nodes knows with sixteen hex digits
// behind it; the jobs of plain River clients on the same table are never
// touched.
//
// Silence says nothing while the database itself was away: a look that failed,
// or a long pause of this process, gives every node the time of a heartbeat to
// be heard again before anyone is judged (watch.go). When most are silent as a
// new leader begins, it gives them a dead threshold; but those that were last
// heard, and lost their sessions, while its own session stood, have crashed:
// whatever ended theirs was not the database.
//
// Each step that writes is one fenced transaction.
package rescue
