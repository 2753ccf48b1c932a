package assign

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// recountInterval is the maximum age of the counts of used places. Between two counts of a
	// group, the leader adds the jobs that it places.
	recountInterval = 10 * time.Millisecond
	// limitChaseTime is how long after a notification a limit that holds jobs back is
	// checked every recountInterval. A node reports a free slot before the row of the
	// ended job has changed.
	limitChaseTime = 300 * time.Millisecond
	// offeredWait is when a rate is checked again that would allow a job if those that are
	// offered were not claimed.
	offeredWait = 100 * time.Millisecond
)

// limitID identifies a limit: of the jobs of one queue or of one kind, of one class.
type limitID struct{ scope, name, class string }

// group is a set of jobs that share the places of a limit. In a limit by key, they have the
// same value of the key.
type group struct {
	limitID

	key string
	// client is the name under which the node of a limit per node claims jobs, otherwise empty.
	client string
}

// maxLimits is how many limits may apply to one job.
const maxLimits = 8

// jobKeys is what a job's limits by key and its rates need to know of it: the values of the
// keys, in the order of limitsOf, and the units of the job.
type jobKeys struct {
	values [maxLimits]string
	units  int
}

// limits tracks the cluster limits for the leader. It only avoids offers that could not
// be claimed: the claim enforces a limit.
type limits struct {
	inForce map[limitID]jobstore.Limit
	// keyed reports that a limit has a key or is a rate.
	keyed bool
	// clients are the names of the nodes if there is a limit per node.
	clients []string
	// running is the number of running jobs of the groups that were asked for since the last
	// reset, at countedAt, and windows what has started of such rates.
	running   map[group]int
	countedAt time.Time
	windows   map[group]rateWindow
	// holds are the jobs that wait for several units of a rate, in the order in which they hold back
	// those behind them.
	holds map[group][]hold
	// offered contains the limited jobs with pending offers in this term, and pending their
	// units in each group. Those that were claimed since the last reset count twice.
	offered map[int64]offeredJob
	pending map[group]int
	// waits are the waits for the limits.
	waits limitWaits
	// blocking reports whether a limit of running jobs has held a job back since the last step.
	// freeAt is when a rate next has the units for a job that it has held back, or zero.
	blocking bool
	freeAt   time.Time
}

// offeredJob is a limited job that was offered at a time.
type offeredJob struct {
	at     time.Time
	units  int
	groups []group
}

// rateWindow is what has started of a rate as the database had it at the leader's time readAt.
type rateWindow struct {
	jobstore.RateWindow

	readAt time.Time
}

// refusal is a group that holds a job back, and when to check it again; ever is false if it
// always does.
type refusal struct {
	group

	wait time.Duration
	ever bool
	// lasts is how long a rate refuses the job if no other starts. behind reports that a hold
	// refuses it.
	lasts  time.Duration
	behind bool
}

// outlasts reports whether a job waits longer for r than for another rate.
func (r refusal) outlasts(other refusal) bool {
	switch {
	case r.ever != other.ever:
		return !r.ever
	case r.behind != other.behind:
		return r.behind
	}
	return r.lasts > other.lasts
}

func newLimits() *limits {
	return &limits{
		offered: map[int64]offeredJob{}, pending: map[group]int{}, running: map[group]int{}, windows: map[group]rateWindow{},
		holds: map[group][]hold{}, waits: limitWaits{starvation: newStarvation()},
	}
}

// set replaces the limits and the nodes to which they apply.
func (l *limits) set(inForce []jobstore.Limit, members []*member) {
	before := l.inForce
	l.inForce, l.keyed, l.countedAt = make(map[limitID]jobstore.Limit, len(inForce)), false, time.Time{}
	l.clients = nil
	if slices.ContainsFunc(inForce, func(limit jobstore.Limit) bool { return limit.PerNode }) {
		for _, m := range members {
			l.clients = append(l.clients, m.clientID)
		}
	}
	for _, limit := range inForce {
		if limit.Scope == jobstore.ScopeWeight {
			continue
		}
		class := limit.Class()
		l.inForce[limitID{limit.Scope, limit.Name, class}] = limit
		l.keyed = l.keyed || class != jobstore.ClassAll
	}
	l.keepHolds(before)
}

// limitsOf returns the limits that may apply to a job.
func limitsOf(j job) [maxLimits]limitID {
	return [maxLimits]limitID{
		{jobstore.ScopeQueue, j.queue, jobstore.ClassAll},
		{jobstore.ScopeJob, j.kind, jobstore.ClassAll},
		{jobstore.ScopeQueue, j.queue, jobstore.ClassKey},
		{jobstore.ScopeJob, j.kind, jobstore.ClassKey},
		{jobstore.ScopeQueue, j.queue, jobstore.ClassRate},
		{jobstore.ScopeJob, j.kind, jobstore.ClassRate},
		{jobstore.ScopeQueue, j.queue, jobstore.ClassNode},
		{jobstore.ScopeJob, j.kind, jobstore.ClassNode},
	}
}

// groupsOf returns the groups of a job that have a limit in the whole cluster. Most jobs have
// none.
func (l *limits) groupsOf(j job) []group { return l.groupsOn(j, "") }

// groupsOn returns the groups of a job that have a limit on the node with the name, or in the
// whole cluster if the name is empty.
func (l *limits) groupsOn(j job, client string) []group {
	if len(l.inForce) == 0 {
		return nil
	}
	var groups []group
	for i, id := range limitsOf(j) {
		if _, ok := l.inForce[id]; !ok || (id.class == jobstore.ClassNode) != (client != "") {
			continue
		}
		g := group{limitID: id, client: client}
		if j.keys != nil {
			g.key = j.keys.values[i]
		}
		groups = append(groups, g)
	}
	return groups
}

// anyLimited reports whether a limit applies to any of the jobs.
func (l *limits) anyLimited(jobs []job) bool {
	if len(l.inForce) == 0 {
		return false
	}
	return slices.ContainsFunc(jobs, l.isLimited)
}

// isLimited reports whether a limit applies to the job.
func (l *limits) isLimited(j job) bool {
	if len(l.inForce) == 0 {
		return false
	}
	for _, id := range limitsOf(j) {
		if _, ok := l.inForce[id]; ok {
			return true
		}
	}
	return false
}

// hasKeys reports whether the job has a limit by key or a rate.
func (l *limits) hasKeys(j job) bool {
	if !l.keyed {
		return false
	}
	for _, id := range limitsOf(j) {
		if id.class != jobstore.ClassAll {
			if _, ok := l.inForce[id]; ok {
				return true
			}
		}
	}
	return false
}

// full returns the first group without a place for the job at a time. For a job of several units
// whose limits of running jobs have places, it returns the rate with the longest wait. ok is false
// if all groups have a place.
func (l *limits) full(j job, groups []group, now time.Time) (r refusal, ok bool) {
	for _, g := range groups {
		if g.class != jobstore.ClassRate {
			if l.used(g) >= l.inForce[g.limitID].Most {
				l.blocking = true
				return refusal{group: g, wait: recountInterval, ever: true}, true
			}
			continue
		}
		next, full := l.rateFull(g, j, j.units(), now)
		switch {
		case !full:
		case j.units() == 1:
			return next, true
		case !ok || next.outlasts(r):
			r, ok = next, true
		}
	}
	return r, ok
}

// fullOn returns the first group without a place for the job on a node. ok is false if all groups
// have one.
func (l *limits) fullOn(m *member, j job) (r refusal, ok bool) {
	if len(l.clients) == 0 {
		return refusal{}, false
	}
	return l.full(j, l.groupsOn(j, m.clientID), time.Time{})
}

// rateFull reports whether a rate has no units for a job now, because of the window or of a hold.
func (l *limits) rateFull(g group, j job, units int, now time.Time) (r refusal, full bool) {
	window, known := l.windows[g]
	if !known {
		return refusal{group: g, wait: recountInterval, ever: true}, true
	}
	there := window.Now.Add(now.Sub(window.readAt)) // by the database's clock
	lasts, ever := window.Wait(l.inForce[g.limitID], l.pending[g], units, there)
	if !ever {
		return refusal{group: g}, true
	}
	wait := lasts
	if l.pending[g] > 0 {
		wait = min(wait, offeredWait)
	}
	h, behind := l.holdOn(g, j)
	if behind {
		wait = max(wait, h.until.Sub(now))
	}
	if wait <= 0 && !behind {
		return refusal{}, false
	}
	return refusal{group: g, wait: max(min(wait, nodesInterval), recountInterval), ever: true, lasts: lasts, behind: behind}, true
}

// note records that a group holds back a job that was due at a time.
func (l *limits) note(r refusal, due, now time.Time) {
	l.waits.note(r.group, due)
	if r.class == jobstore.ClassRate && r.ever {
		l.freeAt = earliest(l.freeAt, now.Add(r.wait))
	}
}

// holdsQueue reports whether a full group contains all jobs of a queue.
func (l *limits) holdsQueue(g group) bool {
	return g.scope == jobstore.ScopeQueue && l.inForce[g.limitID].Key == ""
}

// later returns freeAt if it has not come, else zero: a step may leave out the queue of the job
// that waits for it.
func (l *limits) later(now time.Time) time.Time {
	if l.freeAt.After(now) {
		return l.freeAt
	}
	return time.Time{}
}

// used is the number of places of a group that running and offered jobs use. In a rate, it is
// the number of units of offered jobs.
func (l *limits) used(g group) int { return l.running[g] + l.pending[g] }

// reserve takes a place in each group.
func (l *limits) reserve(j job, groups []group, now time.Time) {
	if len(groups) == 0 {
		return
	}
	l.release(j.id) // it may have been offered before
	l.offered[j.id] = offeredJob{now, j.units(), groups}
	for _, g := range groups {
		l.pending[g] += l.offered[j.id].in(g)
	}
}

// release gives the places of an offered job back.
func (l *limits) release(id int64) {
	job, ok := l.offered[id]
	if !ok {
		return
	}
	delete(l.offered, id)
	for _, g := range job.groups {
		if l.pending[g] -= job.in(g); l.pending[g] <= 0 {
			delete(l.pending, g)
		}
	}
}

// in is how much of a group's limit the job needs.
func (o offeredJob) in(g group) int {
	if g.class == jobstore.ClassRate {
		return o.units
	}
	return 1
}

// keepOffered releases the offered jobs that are not available any more, and those whose offer
// is older than claimTimeout, because they may be offered again.
func (l *limits) keepOffered(available []int64, now time.Time, claimTimeout time.Duration) {
	still := make(map[int64]bool, len(available))
	for _, id := range available {
		still[id] = true
	}
	for id, o := range l.offered {
		if !still[id] {
			l.endHolds(id, o.groups)
		}
		if !still[id] || now.Sub(o.at) >= claimTimeout {
			l.release(id)
		}
	}
}

// units returns how many units of a rate a job needs.
func (j job) units() int {
	if j.keys == nil {
		return 1
	}
	return j.keys.units
}

// split separates jobs without a limit from limited jobs.
func (l *limits) split(jobs jobsByQueue) (free, limited jobsByQueue) {
	if len(l.inForce) == 0 {
		return jobs, nil
	}
	free, limited = jobsByQueue{}, jobsByQueue{}
	for queue, ids := range jobs {
		for _, id := range ids {
			into := free
			if _, ok := l.offered[id]; ok {
				into = limited
			}
			into[queue] = append(into[queue], id)
		}
	}
	return free, limited
}
