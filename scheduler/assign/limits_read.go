package assign

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// read reads what decides whether those of the jobs have a place for which wanted returns true:
// the values of their keys, the used places and the windows of their rates.
func (l *limits) read(ctx context.Context, db postgres.DB, jobs []job, now time.Time, claimTimeout time.Duration, wanted func(job) bool) error {
	if err := l.readKeys(ctx, db, jobs, wanted); err != nil {
		return err
	}
	if err := l.count(ctx, db, jobs, now, claimTimeout, wanted); err != nil {
		return err
	}
	return l.readWindows(ctx, db, jobs, wanted)
}

// readKeys reads the values of the keys of the limited jobs.
func (l *limits) readKeys(ctx context.Context, db postgres.DB, jobs []job, wanted func(job) bool) error {
	known := map[int64]*jobKeys{} // a job may be in two pages
	var ids []int64
	for i := range jobs {
		if j := &jobs[i]; l.isLimited(*j) && wanted(*j) {
			if known[j.id] == nil {
				known[j.id], ids = &jobKeys{units: 1}, append(ids, j.id)
			}
			j.keys = known[j.id]
		}
	}
	if len(ids) == 0 {
		return nil
	}
	keys, version, err := jobstore.New(db).JobKeys(ctx, ids)
	if err != nil {
		return err
	}
	l.outdated = len(keys) > 0 && version != l.version
	for _, k := range keys {
		of := known[k.ID]
		of.units, of.row = max(of.units, k.Units), k.Row
		for i, id := range limitsOf(job{}) {
			if id.scope == k.Scope && id.class == k.Class {
				of.values[i], of.locks[i] = k.Key, k.Lock
			}
		}
	}
	return nil
}

// count counts the running jobs of the jobs' groups that were not counted since the last reset. A
// reset comes with the first count after recountInterval if they have held a job back, otherwise
// after maxCountAge.
func (l *limits) count(ctx context.Context, db postgres.DB, jobs []job, now time.Time, claimTimeout time.Duration, wanted func(job) bool) error {
	store := jobstore.New(db)
	if age := now.Sub(l.countedAt); age >= maxCountAge || l.refused && age >= recountInterval {
		available, err := store.StillAvailable(ctx, slices.Collect(maps.Keys(l.offered)))
		if err != nil {
			return err
		}
		l.keepOffered(available, now, claimTimeout)
		l.countedAt, l.refused = now, false
		clear(l.running)
		clear(l.windows)
	}
	locked := map[int64]group{}
	missing := l.missing(jobs, func(j job, g group) bool {
		if _, known := l.running[g]; known || g.class == jobstore.ClassRate || !wanted(j) {
			return false
		}
		lock := j.keys.lock(g)
		if lock != 0 {
			locked[lock] = g
		}
		return lock == 0
	})
	if len(locked) > 0 {
		running, err := store.RunningUnder(ctx, slices.Collect(maps.Keys(locked)))
		if err != nil {
			return err
		}
		for lock, g := range locked {
			l.running[g] = running[lock]
		}
	}
	if len(missing) == 0 {
		return nil
	}
	places, err := store.PlacesTaken(ctx, missing)
	if err != nil {
		return err
	}
	for _, p := range places {
		l.running[group{limitID{p.Scope, p.Name, p.Class}, p.Key, p.Client}] = p.Jobs
	}
	return nil
}

// missing lists the groups of the jobs for which the function returns true, each once.
func (l *limits) missing(jobs []job, of func(job, group) bool) []jobstore.Places {
	listed := map[group]bool{}
	var missing []jobstore.Places
	list := func(j job, groups []group) {
		for _, g := range groups {
			if !listed[g] && of(j, g) {
				listed[g], missing = true, append(missing, g.places())
			}
		}
	}
	for _, j := range jobs {
		list(j, l.groupsOf(j))
		for _, client := range l.clients {
			list(j, l.groupsOn(j, client))
		}
	}
	return missing
}

func (g group) places() jobstore.Places {
	return jobstore.Places{Scope: g.scope, Name: g.name, Class: g.class, Key: g.key, Client: g.client}
}

// readWindows reads the windows of the jobs' rates that were not read since the reset. A job
// that is claimed between the two counts twice until the next reset, and never not at all.
func (l *limits) readWindows(ctx context.Context, db postgres.DB, jobs []job, wanted func(job) bool) error {
	missing := l.missing(jobs, func(j job, g group) bool {
		_, known := l.windows[g]
		return !known && g.class == jobstore.ClassRate && wanted(j)
	})
	if len(missing) == 0 {
		return nil
	}
	readAt := time.Now()
	windows, err := jobstore.New(db).RateWindows(ctx, missing)
	if err != nil {
		return err
	}
	for _, w := range windows {
		l.windows[group{limitID: limitID{w.Scope, w.Name, jobstore.ClassRate}, key: w.Key}] = rateWindow{w, readAt}
	}
	return nil
}
