package assign

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/queuestore"
)

const (
	// recountInterval is how old the count of the places taken may be: until then
	// what was placed since is added to it.
	recountInterval = 10 * time.Millisecond
	// chase is how long after the last news a limit that holds jobs back is looked
	// at again every recountInterval: a node reports a free slot before the row of
	// the job that left it says so.
	chase = 300 * time.Millisecond
)

// group are jobs that share a limit: those of one queue or of one kind.
type group struct{ scope, name string }

// limits is the leader's account of the jobs that the cluster runs no more than
// so many of at once. It only spares offers that could not be claimed: the claim
// has the last word.
type limits struct {
	most map[group]int
	// taken are the places of each group: of running jobs, and of offered ones.
	taken     map[group]int
	countedAt time.Time
	// offered are the limited jobs under way since the term began.
	offered map[int64]time.Time
	// holding: a limit held a job back since the last turn.
	holding bool
}

func newLimits() *limits { return &limits{offered: map[int64]time.Time{}, taken: map[group]int{}} }

// set takes over the limits in force.
func (l *limits) set(inForce []queuestore.Limit) {
	l.most, l.countedAt = make(map[group]int, len(inForce)), time.Time{}
	for _, limit := range inForce {
		l.most[group{limit.Scope, limit.Name}] = limit.Most
	}
}

// on returns the groups of a job that have a limit; none for most jobs.
func (l *limits) on(j job) []group {
	if len(l.most) == 0 {
		return nil
	}
	var groups []group
	for _, g := range [...]group{{queuestore.ScopeQueue, j.queue}, {queuestore.ScopeJob, j.kind}} {
		if l.most[g] > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// anyOn says whether a limit is on one of the jobs.
func (l *limits) anyOn(jobs []job) bool {
	if len(l.most) == 0 {
		return false
	}
	for _, j := range jobs {
		if len(l.on(j)) > 0 {
			return true
		}
	}
	return false
}

// full returns the first of the groups without a place left; ok is false when
// all have one.
func (l *limits) full(groups []group) (g group, ok bool) {
	for _, g := range groups {
		if l.taken[g] >= l.most[g] {
			l.holding = true
			return g, true
		}
	}
	return group{}, false
}

// take books a place of each group.
func (l *limits) take(groups []group, id int64, now time.Time) {
	for _, g := range groups {
		l.taken[g]++
	}
	if len(groups) > 0 {
		l.offered[id] = now
	}
}

// split parts the jobs that a limit is on from the others.
func (l *limits) split(jobs jobsByQueue) (free, limited jobsByQueue) {
	if len(l.most) == 0 {
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

// count reads what holds places now, unless that was done a moment ago. An offer
// older than patience holds none any more: its job may be offered again.
func (l *limits) count(ctx context.Context, db queuestore.Queryer, now time.Time, patience time.Duration) error {
	if now.Sub(l.countedAt) < recountInterval {
		return nil
	}
	offered := make([]int64, 0, len(l.offered))
	for id, at := range l.offered {
		if now.Sub(at) >= patience {
			delete(l.offered, id)
			continue
		}
		offered = append(offered, id)
	}
	places, err := queuestore.Held(ctx, db, l.names(queuestore.ScopeQueue), l.names(queuestore.ScopeJob), offered)
	if err != nil {
		return err
	}
	l.countedAt, l.taken = now, map[group]int{}
	for _, p := range places {
		l.taken[group{queuestore.ScopeQueue, p.Queue}] += p.Jobs
		l.taken[group{queuestore.ScopeJob, p.Kind}] += p.Jobs
	}
	return nil
}

func (l *limits) names(scope string) []string {
	names := []string{}
	for g := range l.most {
		if g.scope == scope {
			names = append(names, g.name)
		}
	}
	return names
}
