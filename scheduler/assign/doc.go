// Package assign is the scheduler's leader at its main work: it decides which
// node runs which available job, and offers the jobs' ids to the nodes.
//
// One connection does everything, in turns. It listens for inserted jobs, for
// the nodes' credit and for changes of membership; whatever arrives starts a
// turn:
//
//	roster --> sweep --> place --> offer --> wait for news, or for a time
//
// The sweep reads available jobs in River's order (priority, scheduled_at, id),
// queue by queue (lane). It reads on where it stopped, so that jobs that nobody
// can take do not fill the window for ever, and every 200 ms from the top as
// well, so that urgent newcomers and lost offers are seen. Placement (place.go)
// is pure: kind, capability, tags, credit, load.
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
