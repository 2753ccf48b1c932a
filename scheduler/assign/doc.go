// Package assign places the available jobs: the scheduler's leader decides which node
// runs which job, and offers the ids of the jobs to the nodes.
//
// One goroutine runs a loop of steps. It receives notifications of inserted jobs, credit
// and membership changes. Each notification triggers a step, except credit that no job
// waits for:
//
//	node list --> sweep --> place --> offer --> wait for a notification or a timer
//
// The sweep reads available jobs in River's order (priority, scheduled_at, id), queue by
// queue (queuescan.go). It continues where it stopped, so jobs that no node can take do
// not fill the window forever. Every 200 ms it also reads from the top, to find new
// urgent jobs and lost offers.
//
// If a snapshot is held for long, PostgreSQL keeps the index entries of all jobs that have ended
// since then, and a read from the beginning of a queue walks over each of them. So each queue
// has a low-water mark for each priority (marks.go): the position of the lowest available job
// that the scans have seen for 0.3 seconds, or the time of a scan that saw none. Scans start
// there as soon as a read of what is below takes more than 5 ms. A job can still appear below a
// mark: another transaction commits late, a program inserts a job with an earlier time, a
// scheduled job is released late, a job is made available again by hand. A check beside the
// loop looks below the marks (below.go), every 200 ms but for at most a twentieth of the time,
// and lowers them. With a million ended jobs under a snapshot it takes some 0.4 seconds, so
// such a job waits for up to 8 seconds. A late release names its time in the notification, and
// waits for nothing. The next leader begins without marks. A mark does not pass a job that
// waits, even if no node can take it.
//
// Placement (place.go) is pure: kind, capability, tags, credit, load. The strategy Spread also
// counts the running jobs of each kind, at most ten times a second (running.go).
//
// A cluster limit (limits.go) applies to a group of jobs: the jobs of one queue or of one
// kind. The leader counts the used places from the running jobs in the database and from
// its own pending offers, and offers no more jobs than there are places. Its count may be
// out of date. So the offer of such a job is marked as limited, and the node's claim
// counts again with the rows of the limits locked (jobs/internal/riveradapter). That
// claim makes a limit strict. Jobs without a limit skip all of this.
//
// Possible extensions fit as follows:
//
//   - A limit per key is one more group for a job, named by the queue and the key's value:
//     limits.groupsOf returns it, the sweep reads the value, and the claim locks a row for it.
//   - A rate is a group whose places return with time, not when a job ends. Its row stores
//     the remaining places and a timestamp, limits.full reads it, and the claim takes a place
//     under the same lock.
//   - Fairness between tenants is one queueScan per queue and tenant. Each has its own cursor,
//     and they are merged in turns, not by position alone, so the backlog of one tenant cannot
//     fill the window. The sweep then needs a partial index with the tenant before the
//     priority.
//
// Nothing here is authoritative. A job stays available until a node claims it, and the
// claim checks the term. If an offer is lost, rejected or outdated, the job is offered
// again half a second later. The leader's memory (credit, pending offers, cursors)
// belongs to one term. The next leader rebuilds it by requesting credit from every node.
//
// An idle loop costs one sweep every two seconds and one read of the node list every ten.
package assign
