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
// such a job waits for up to 8 seconds. A late release names its time in the notification, as does a
// statement that inserts jobs late in a transaction, and these jobs wait for nothing. The next leader
// begins without marks. A mark does not pass a job that waits, even if no node can take it.
//
// Placement (place.go) is pure: kind, capability, tags, credit, load. The strategy Spread also
// counts the running jobs of each kind, at most ten times a second (running.go).
//
// A cluster limit (limits.go) applies to a group of jobs: the jobs of one queue or of one
// kind, or those of them with one value of a key, such as an argument. The leader counts the
// used places from the running jobs in the database and from its own pending offers, and
// offers no more jobs than there are places. Jobs without a limit skip all of this.
//
// A limit is strict because a place is given to another job only if the offer of the first cannot
// be claimed any more. Each offer of limited jobs names the version of the limits, and the row of
// each job whose key was read; the claim compares both (ClaimCounted in internal/jobstore). The
// version changes with the limits, and when the leader recalls its offers: when it begins, because
// offers of an earlier leader may be in flight, and before it gives away the place of an offer that
// was not claimed in time. A recall waits for running claims, so the count that follows sees what
// they have taken.
//
// Jobs with a rate or with a limit of each node are counted by the claim as well, with the limits
// locked (ClaimLimited), and so are all limited jobs while a node of an earlier version works,
// because it would count without regard to such offers.
//
// The leader reads the keys of the jobs of a page only if their queue or kind has a limit. A job
// whose key has no place counts as one that no node can take: the cursor moves past it, and jobs of
// other keys behind it are offered. While there are such jobs at the top of a queue, the top is
// read more often, because they are the next ones that get a place. What is between the top and the
// cursor is read again page by page, because a place may become free for any of them.
//
// A limit by key may also hold on each node: then there is a group for each node, and a node
// without a place is not picked. The lock of such a group has the name under which the node claims.
//
// A queue may reserve slots of each node. A node reports with its credit how many reserved slots
// are unused, and offers of jobs of other queues leave these free.
//
// A rate (limits_read.go, and RateWindow in internal/jobstore) is a limit whose places return
// with time. What has started is in a row for each rate and value of its key, which the claim
// reads and changes under its lock, in the transaction of the start. The leader reads the rows of
// a page's jobs and knows when the next job may start; the loop wakes up then.
//
// A job that needs several units of a rate holds back those behind it until it can start (hold.go),
// unless it could not start with the units either: no node suits it, or another limit is full. Pages
// behind the cursor do not contain the job, so the hold does not end with time. The job is read by
// its position when its units may be there, at least every ten seconds; if it is gone, paused or
// cannot start, the hold ends.
//
// A fair queue (fair.go) is not read by position but in turns: jobstore.ScanFair reads the next
// jobs of each key, by an index with the key before the priority, and the leader remembers which
// key it served last. So the cost of a page does not depend on the backlogs of the keys. The loop
// builds the index of each fair queue beside its steps, and drops those that no queue needs.
// Until the index is ready, the queue is read by position. Jobs that cannot be placed are passed: a
// pass remembers for each key and priority how far it has read.
//
// Nothing here is authoritative. A job stays available until a node claims it, and the
// claim checks the term. If an offer is lost, rejected or outdated, the job is offered
// again half a second later. The leader's memory (credit, pending offers, cursors)
// belongs to one term. The next leader rebuilds it by requesting credit from every node.
//
// An idle loop costs one sweep every two seconds and one read of the node list every ten.
package assign
