package assign

import (
	"context"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// maxHeavy bounds the jobs of several units that are considered for each rate of a job.
const maxHeavy = 100

// readHolds finds the jobs of several units that hold the job back under one of its rates, as the
// leader does when it reads the queues, and reads the job again with these jobs.
func (l *limits) readHolds(ctx context.Context, db postgres.DB, j job, members []*member, fair definitions, now time.Time) (job, error) {
	jobs, err := l.readHeavy(ctx, db, j)
	if err != nil || len(jobs) == 0 {
		return j, err
	}
	jobs = append(jobs, j)
	if err := readTurns(ctx, db, jobs, fair); err != nil {
		return j, err
	}
	if err := l.read(ctx, db, jobs, now, 0, func(job) bool { return true }); err != nil {
		return j, err
	}
	heavy, j := jobs[:len(jobs)-1], jobs[len(jobs)-1]
	paused, err := jobstore.New(db).PausedJobs(ctx, idsOf(heavy))
	if err != nil {
		return j, err
	}
	for _, ahead := range heavy {
		if ahead.id == j.id || slices.Contains(paused, ahead.id) {
			continue
		}
		groups := l.groupsOf(ahead)
		r, full := l.full(ahead, groups, time.Now())
		if !full || r.class != jobstore.ClassRate || !r.ever {
			continue
		}
		if can, _ := l.canStart(ahead, members); can {
			l.hold(ahead, groups, r, time.Now())
		}
	}
	return j, nil
}

// readHeavy reads the jobs of several units of the job's rates, in the order of the queues.
func (l *limits) readHeavy(ctx context.Context, db postgres.DB, j job) (heavy []job, err error) {
	for _, g := range l.groupsOf(j) {
		if g.class != jobstore.ClassRate {
			continue
		}
		found, err := jobstore.New(db).HeavyJobs(ctx, g.places(), maxHeavy)
		if err != nil {
			return nil, err
		}
		for i := range found {
			heavy = append(heavy, availableJob(&found[i]))
		}
	}
	slices.SortFunc(heavy, func(a, b job) int { return a.compare(b.position) })
	return slices.CompactFunc(heavy, func(a, b job) bool { return a.id == b.id }), nil
}

// readTurns reads the keys of the jobs of queues that are read in turns.
func readTurns(ctx context.Context, db postgres.DB, jobs []job, inForce definitions) error {
	for name, queue := range inForce.fair {
		if !slices.ContainsFunc(jobs, func(j job) bool { return j.queue == name }) {
			continue
		}
		ready, err := jobstore.New(db).FairIndexReady(ctx, queue)
		if err != nil {
			return err
		}
		if !ready { // it is read by position
			continue
		}
		keys, err := jobstore.New(db).FairKeys(ctx, queue, idsOf(jobs))
		if err != nil {
			return err
		}
		for i := range jobs {
			if key, ok := keys[jobs[i].id]; ok {
				jobs[i].inTurn, jobs[i].fairKey = true, key
			}
		}
	}
	return nil
}

func idsOf(jobs []job) []int64 {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.id
	}
	return ids
}
