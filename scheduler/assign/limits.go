package assign

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// recountInterval is the maximum age of the counts of used places once they have held a job back.
	// Between two counts of a group, the leader adds the jobs that it places.
	recountInterval = 10 * time.Millisecond
	// maxCountAge is the maximum age of counts that have held no job back.
	maxCountAge = 100 * time.Millisecond
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

// jobKeys is what a job's limits need to know of it: the values of the keys, in the order of
// limitsOf, the locks of the limits, the units of the job, and the transaction that wrote the row
// with these values, zero if the row was not found.
type jobKeys struct {
	values [maxLimits]string
	locks  [maxLimits]int64 // zero for a rate and for a limit of each node
	units  int
	row    int64
}

// lock returns the number of the lock of a group of the job; zero if it is unknown.
func (k *jobKeys) lock(of group) int64 {
	if k == nil {
		return 0
	}
	for i, id := range limitsOf(job{}) {
		if id.scope == of.scope && id.class == of.class {
			return k.locks[i]
		}
	}
	return 0
}

// counted returns the locks of the limits under which the job counts.
func (k *jobKeys) counted() (locks []int64) {
	for _, lock := range k.locks {
		if lock != 0 {
			locks = append(locks, lock)
		}
	}
	return locks
}

// limits tracks the cluster limits for the leader. A place that it has given to a job that it
// counts stays taken until the job is claimed or cannot be claimed any more. For the other
// limited jobs, it only avoids offers that could not be claimed.
type limits struct {
	inForce map[limitID]jobstore.Limit
	// ofQueue and ofKind have a bit for each limit in force of a queue or of a kind, in the order of
	// limitsOf.
	ofQueue, ofKind map[string]uint8
	// version is that of inForce, which the offers name; zero until the offers of earlier loops
	// were recalled.
	version int64
	// outdated reports that another version is in force.
	outdated bool
	// recallDue reports that offers were not claimed in time, so that they must be recalled before
	// their places go to other jobs.
	recallDue bool
	// counting reports whether all nodes claim counted jobs without counting again.
	counting bool
	// clients are the names of the nodes if there is a limit per node.
	clients []string
	// running is the number of running jobs of the groups that were asked for since the last
	// reset, at countedAt, and windows what has started of such rates.
	running   map[group]int
	countedAt time.Time
	refused   bool // the counts have held a job back
	windows   map[group]rateWindow
	// holds are the jobs that wait for several units of a rate, in the order in which they hold back
	// those behind them.
	holds map[group][]hold
	// offered contains the limited jobs with pending offers in this term, and pending their
	// units in each group. Those that were claimed since the last reset count twice.
	offered map[int64]offeredJob
	pending map[group]int
	// recalled are offered jobs of which the offers cannot be claimed any more.
	recalled map[int64]bool
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
	// row is the transaction that wrote the row of which the keys were read; zero if unknown.
	row int64
	// locks are those of its limits if the claim need not count, otherwise nil.
	locks []int64
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
		offered: map[int64]offeredJob{}, recalled: map[int64]bool{}, pending: map[group]int{}, running: map[group]int{}, windows: map[group]rateWindow{},
		holds: map[group][]hold{}, waits: limitWaits{starvation: newStarvation()},
	}
}

// set replaces the limits and the nodes to which they apply. What was offered under another version
// of the limits is not claimed any more.
func (l *limits) set(inForce []jobstore.Limit, version int64, members []*member) {
	if version != l.version {
		for id := range l.offered {
			l.recall(id)
		}
	}
	l.version, l.outdated, l.recallDue = version, false, false
	before := l.inForce
	l.inForce, l.countedAt = make(map[limitID]jobstore.Limit, len(inForce)), time.Time{}
	l.ofQueue, l.ofKind = map[string]uint8{}, map[string]uint8{}
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
		l.add(limit)
	}
	l.keepHolds(before)
}

// add puts a limit in force.
func (l *limits) add(limit jobstore.Limit) {
	id := limitID{limit.Scope, limit.Name, limit.Class()}
	l.inForce[id] = limit
	applying := l.ofQueue
	if limit.Scope == jobstore.ScopeJob {
		applying = l.ofKind
	}
	order := limitsOf(job{queue: limit.Name, kind: limit.Name})
	applying[limit.Name] |= 1 << slices.Index(order[:], id)
}

// setCounting sets whether the leader counts for all claims. Offers of before must be recalled then.
func (l *limits) setCounting(counting bool) {
	if counting != l.counting {
		l.counting, l.version = counting, 0
	}
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
	applying := l.applying(j)
	if applying == 0 {
		return nil
	}
	var groups []group
	for i, id := range limitsOf(j) {
		if applying>>i&1 == 0 || (id.class == jobstore.ClassNode) != (client != "") {
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
	return slices.ContainsFunc(jobs, l.isLimited)
}

// isLimited reports whether a limit applies to the job.
func (l *limits) isLimited(j job) bool { return l.applying(j) != 0 }

// applying has a bit for each limit that applies to the job, in the order of limitsOf.
func (l *limits) applying(j job) uint8 { return l.ofQueue[j.queue] | l.ofKind[j.kind] }

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
	offered := offeredJob{at: now, units: j.units(), groups: groups}
	if j.keys != nil {
		offered.row = j.keys.row
	}
	if l.counts(j, groups) {
		offered.locks = j.keys.counted()
	}
	l.offered[j.id] = offered
	delete(l.recalled, j.id)
	for _, g := range groups {
		l.pending[g] += l.offered[j.id].in(g)
	}
}

// counts reports whether the claim of a job need not count.
func (l *limits) counts(j job, groups []group) bool {
	return l.counting && j.keys != nil && j.keys.row != 0 && !slices.ContainsFunc(groups, func(g group) bool { return !g.isCounted() })
}

// isCounted reports whether the leader's count of the group is exact: not that of a rate, which the
// claim records, nor that of a limit of each node.
func (g group) isCounted() bool { return g.class == jobstore.ClassAll || g.class == jobstore.ClassKey }

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

// recall gives the places of an offered job back that cannot be claimed by its offer any more.
func (l *limits) recall(id int64) {
	l.release(id)
	l.recalled[id] = true
}

// in is how much of a group's limit the job needs.
func (o offeredJob) in(g group) int {
	if g.class == jobstore.ClassRate {
		return o.units
	}
	return 1
}

// keepOffered releases the offered jobs that are not available any more, whose rows have changed, or
// whose offer is older than claimTimeout, because they may be offered again. A claim may be late, so
// a counted place of an offer that is too old stays taken until the offers were recalled. available
// has the transactions that wrote the rows of the available jobs.
func (l *limits) keepOffered(available map[int64]int64, now time.Time, claimTimeout time.Duration) {
	for id, o := range l.offered {
		row, still := available[id]
		switch {
		case !still:
			l.endHolds(id, o.groups)
			l.release(id)
		case o.row != 0 && row != o.row:
			l.recall(id)
		case now.Sub(o.at) < claimTimeout:
		case l.counting && slices.ContainsFunc(o.groups, group.isCounted):
			l.recallDue = true
		default:
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
