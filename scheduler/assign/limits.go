package assign

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// recountInterval is the maximum age of the count of used places. Between two counts,
	// the leader adds the jobs that it places.
	recountInterval = 10 * time.Millisecond
	// limitChaseTime is how long after a notification a limit that holds jobs back is
	// checked every recountInterval. A node reports a free slot before the row of the
	// ended job has changed.
	limitChaseTime = 300 * time.Millisecond
)

// group is a set of jobs that share a limit: the jobs of one queue or of one kind.
type group struct{ scope, name string }

// limits tracks the cluster limits for the leader. It only avoids offers that could not
// be claimed: the claim enforces a limit.
type limits struct {
	maxJobs map[group]int
	// used is the number of used places in each group, by running and by offered jobs.
	used      map[group]int
	countedAt time.Time
	// offered contains the limited jobs with pending offers in this term.
	offered map[int64]time.Time
	// blocking reports whether a limit has held a job back since the last step.
	blocking bool
}

func newLimits() *limits { return &limits{offered: map[int64]time.Time{}, used: map[group]int{}} }

// set replaces the limits.
func (l *limits) set(inForce []jobstore.Limit) {
	l.maxJobs, l.countedAt = make(map[group]int, len(inForce)), time.Time{}
	for _, limit := range inForce {
		l.maxJobs[group{limit.Scope, limit.Name}] = limit.Most
	}
}

// groupsOf returns the groups of a job that have a limit. Most jobs have none.
func (l *limits) groupsOf(j job) []group {
	if len(l.maxJobs) == 0 {
		return nil
	}
	var groups []group
	for _, g := range [...]group{{jobstore.ScopeQueue, j.queue}, {jobstore.ScopeJob, j.kind}} {
		if l.maxJobs[g] > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// anyLimited reports whether a limit applies to any of the jobs.
func (l *limits) anyLimited(jobs []job) bool {
	if len(l.maxJobs) == 0 {
		return false
	}
	for _, j := range jobs {
		if len(l.groupsOf(j)) > 0 {
			return true
		}
	}
	return false
}

// full returns the first group without a free place. ok is false if all groups have one.
func (l *limits) full(groups []group) (g group, ok bool) {
	for _, g := range groups {
		if l.used[g] >= l.maxJobs[g] {
			l.blocking = true
			return g, true
		}
	}
	return group{}, false
}

// reserve takes a place in each group.
func (l *limits) reserve(groups []group, id int64, now time.Time) {
	for _, g := range groups {
		l.used[g]++
	}
	if len(groups) > 0 {
		l.offered[id] = now
	}
}

// split separates jobs without a limit from limited jobs.
func (l *limits) split(jobs jobsByQueue) (free, limited jobsByQueue) {
	if len(l.maxJobs) == 0 {
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

// count reads the used places, unless the last count is recent. An offer older than
// claimTimeout uses no place, because its job may be offered again.
func (l *limits) count(ctx context.Context, db postgres.DB, now time.Time, claimTimeout time.Duration) error {
	if now.Sub(l.countedAt) < recountInterval {
		return nil
	}
	offered := make([]int64, 0, len(l.offered))
	for id, at := range l.offered {
		if now.Sub(at) >= claimTimeout {
			delete(l.offered, id)
			continue
		}
		offered = append(offered, id)
	}
	places, err := jobstore.New(db).PlacesTaken(ctx, l.names(jobstore.ScopeQueue), l.names(jobstore.ScopeJob), offered)
	if err != nil {
		return err
	}
	l.countedAt, l.used = now, map[group]int{}
	for _, p := range places {
		l.used[group{jobstore.ScopeQueue, p.Queue}] += p.Jobs
		l.used[group{jobstore.ScopeJob, p.Kind}] += p.Jobs
	}
	return nil
}

func (l *limits) names(scope string) []string {
	names := []string{}
	for g := range l.maxJobs {
		if g.scope == scope {
			names = append(names, g.name)
		}
	}
	return names
}
