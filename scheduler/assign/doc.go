// Package assign is the scheduler's leader at its main work: it decides which
// node runs which available job, and offers the jobs' ids to the nodes.
//
// One connection does everything, in turns. It listens for inserted jobs, for
// the nodes' credit and for changes of membership; whatever arrives starts a
// turn, but for credit while no job is known to wait for any:
//
//	roster --> sweep --> place --> offer --> wait for news, or for a time
//
// The sweep reads available jobs in River's order (priority, scheduled_at, id),
// queue by queue (lane). It reads on where it stopped, so that jobs that nobody
// can take do not fill the window for ever, and every 200 ms from the top as
// well, so that urgent newcomers and lost offers are seen. Placement (place.go)
// is pure: kind, capability, tags, credit, load. The strategy Spread also counts
// what runs of each kind, ten times a second at most (running.go).
//
// A limit of the cluster (limits.go) is on a group of jobs: those of a queue, or
// of a kind. The leader counts the places that are taken, by what runs in the
// database and by its own offers under way, and offers no more; what it knows may
// be wrong, so an offer of such jobs says that it is limited, and the node's claim
// counts again with the rows of the limits locked (jobs/internal/pilot). That
// claim is what makes a limit strict. Jobs without one never see any of it.
//
// What is to come has its place already:
//
//   - A limit per key is a group more for a job, named by the queue and the key's
//     value: limits.on returns it, the sweep reads the value, and the claim locks a
//     row of its own for it.
//   - A rate is a group whose places come back with time and not with the end of a
//     job: its row keeps what is left and since when, limits.full asks it, and the
//     claim takes from it under the same lock.
//   - Fairness between tenants is lanes: one per queue and tenant in place of one
//     per queue, each with its cursor, merged in turns and not by position alone.
//     One tenant's backlog then cannot fill the window; the sweep wants a partial
//     index with the tenant before the priority.
//
// Nothing here is authoritative. A job stays available until a node claims it,
// and the claim checks the term; an offer that is lost, refused or overtaken
// only costs the half second after which the job is offered again. What the
// leader remembers (credit, offers under way, cursors) belongs to its term and
// is gathered anew by the next one, by asking every node for its credit.
//
// When nothing happens the loop costs one sweep every two seconds and one look
// at the roster every ten.
package assign
