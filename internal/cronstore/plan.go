package cronstore

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const definedCronsSQL = `
SELECT ` + cronColumns + `
FROM forge_crons AS c
WHERE c.name = ANY($1)`

// maxPlanned bounds the changed crons whose runs a plan compares.
const maxPlanned = 1000

// maxWalked bounds the ticks of one cron that a plan evaluates: nearly two years of a cron
// that fires each minute, eleven days of one that fires each second. maxWalkedInAll bounds those
// of all crons, which take some seconds.
const (
	maxWalked      = 1_000_000
	maxWalkedInAll = 20_000_000
)

// RunChange is how the runs of one cron would change.
type RunChange struct {
	Cron string `json:"cron"`
	// Appear and Vanish count the runs until Until.
	Appear int `json:"appear"`
	Vanish int `json:"vanish"`
	// FirstAppearing and FirstVanishing are the first of these runs.
	FirstAppearing []time.Time `json:"first_appearing,omitempty"`
	FirstVanishing []time.Time `json:"first_vanishing,omitempty"`
	// Until is the end of the evaluated time: earlier than requested for a cron
	// with very many runs.
	Until time.Time `json:"until"`
}

// Plan is what a configuration would change compared to the one in force.
type Plan struct {
	Hash string `json:"hash"`
	// InForce is the hash in force; empty if none was ever applied.
	InForce string `json:"in_force"`
	// State is what a node that starts with the file would do.
	State State `json:"state"`
	// Held is why a node that starts with the file does not apply it, and why forge
	// apply asks for confirmation; empty: the node applies it.
	Held string `json:"held,omitempty"`
	// Changes holds the changes by section: crons, jobs, queues, alerts.
	Changes config.Diff `json:"changes"`
	// Renamed are pairs of a removed and an added cron that differ only in the
	// name.
	Renamed []Rename `json:"renamed,omitempty"`
	// RemovedQueues are the removed queues in which jobs wait.
	RemovedQueues []RemovedQueue `json:"removed_queues,omitempty"`
	// Limits are the new and changed limits of running jobs that would hold waiting jobs back
	// now.
	Limits []LimitEffect `json:"limits,omitempty"`
	// UncountedLimits is the number of further new and changed limits, for which nothing was
	// counted because there are many or because it took long.
	UncountedLimits int         `json:"uncounted_limits,omitempty"`
	From            time.Time   `json:"from"`
	Until           time.Time   `json:"until"`
	Runs            []RunChange `json:"runs"`
	// Uncompared is the number of changed crons beyond the first ones, whose runs were not
	// compared.
	Uncompared int `json:"uncompared,omitempty"`
}

// LimitEffect is what a limit of a plan would hold back.
type LimitEffect struct {
	// Scope is queue or job, Name the name of the queue or the kind.
	Scope string `json:"scope"`
	Name  string `json:"name"`
	Limit int    `json:"limit"`
	// Key is the key of a limit_per_key; empty: the limit is a global_limit.
	Key string `json:"key,omitempty"`
	// PerNode is whether the limit is a max_workers_per_key. The active nodes that work the queue or
	// kind count, or all active nodes if none does.
	PerNode bool `json:"per_node,omitempty"`
	// Jobs is the number of waiting jobs that would have no place, among the first 10,000 of the
	// queue, or for a kind of at most 100 queues together. Values is how many values of the key they
	// have.
	Jobs   int64 `json:"jobs"`
	Values int64 `json:"values,omitempty"`
}

// String describes the effect.
func (e LimitEffect) String() string {
	of := "global_limit = " + strconv.Itoa(e.Limit)
	values := ""
	if e.Key != "" {
		name := "limit_per_key"
		if e.PerNode {
			name = "max_workers_per_key"
		}
		of = fmt.Sprintf("%s = { key = %q, limit = %d }", name, e.Key, e.Limit)
		values = fmt.Sprintf(", of %d values", e.Values)
	}
	return fmt.Sprintf("%s %s: %s would hold back %d of the waiting jobs now%s", e.Scope, e.Name, of, e.Jobs, values)
}

// RemovedQueue is a queue that a plan removes while jobs wait in it.
type RemovedQueue struct {
	Name string `json:"name"`
	// Jobs is the number of available, scheduled and retryable jobs. More is whether there may be others.
	Jobs int64 `json:"jobs"`
	More bool  `json:"more,omitempty"`
}

// String describes what becomes of the jobs.
func (q RemovedQueue) String() string {
	count := strconv.FormatInt(q.Jobs, 10)
	if q.More {
		count += "+"
	}
	return fmt.Sprintf("queue %s is removed while jobs wait in it (%s): no node with this file takes them", q.Name, count)
}

// Rename is a pair of a removed cron and the cron that replaces it.
type Rename struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Planner predicts what applying crons would change. It only reads.
type Planner struct {
	now    time.Time
	wanted map[string]Spec
	// changed are the names of changed crons, in order, and crons the current rows of these.
	changed []string
	crons   map[string]Cron
	// uncompared is the number of other changed crons.
	uncompared int
	// left is how many ticks of all crons may still be evaluated.
	left int
}

// Planner compares the crons of a file with the current ones, and reads the database's clock.
func (s *Store) Planner(ctx context.Context, wanted map[string]Spec) (*Planner, error) {
	outcome, _, err := s.compare(ctx, wanted, slices.Sorted(maps.Keys(wanted)))
	if err != nil {
		return nil, err
	}
	p := &Planner{wanted: wanted, crons: map[string]Cron{}, left: maxWalkedInAll}
	p.changed = slices.Sorted(slices.Values(slices.Concat(outcome.Added, outcome.Changed, outcome.Removed)))
	if more := len(p.changed) - maxPlanned; more > 0 {
		p.changed, p.uncompared = p.changed[:maxPlanned], more
	}
	if p.now, err = s.Now(ctx); err != nil {
		return nil, err
	}
	crons, err := postgres.Collect(ctx, s.db, scanCron, definedCronsSQL, p.changed)
	if err != nil {
		return nil, fmt.Errorf("read the defined crons: %w", err)
	}
	for _, cron := range crons {
		p.crons[cron.Name] = cron
	}
	return p, nil
}

// Now returns the instant at which the plan starts.
func (p *Planner) Now() time.Time { return p.now }

// Uncompared returns the number of changed crons that Runs has left out.
func (p *Planner) Uncompared() int { return p.uncompared }

// Runs returns the crons whose runs within ahead would change if the crons of the
// file were put in force now, by name, each with at most keep of the first runs
// that appear and vanish. Skipped ticks are no runs.
func (p *Planner) Runs(ctx context.Context, ahead time.Duration, keep int) ([]RunChange, error) {
	changes := []RunChange{}
	for i, name := range p.changed {
		if p.left <= 0 {
			p.uncompared += len(p.changed) - i
			break
		}
		now, then, err := p.timelines(name)
		if err != nil {
			return nil, err
		}
		change := p.compare(name, now, then, p.now.Add(ahead), keep)
		if change.Appear+change.Vanish > 0 {
			changes = append(changes, change)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// timelines returns a cron's current and future timelines; nil if it is not
// configured or nothing changes.
func (p *Planner) timelines(name string) (now, then *Timeline, err error) {
	old, exists := p.crons[name]
	spec, stays := p.wanted[name]
	configured := exists && old.RemovedAt.IsZero()
	if configured && stays && (old.SpecHash == specHash(spec) || old.Spec.sameTiming(spec)) {
		return nil, nil, nil // Apply would not change the timing
	}
	if configured {
		if now, err = old.Timeline(); err != nil {
			return nil, nil, err
		}
	}
	if stays {
		edited := begin(name, spec, p.now)
		if exists {
			edited = revise(old, spec, p.now)
		}
		then, err = edited.Timeline()
	}
	return now, then, err
}

// compare walks both timelines in parallel.
func (p *Planner) compare(name string, now, then *Timeline, until time.Time, keep int) RunChange {
	change := RunChange{Cron: name, Until: until}
	old, stopOld := iter.Pull(now.ticksOrNone(p.now, until))
	defer stopOld()
	edited, stopEdited := iter.Pull(then.ticksOrNone(p.now, until))
	defer stopEdited()
	a, hasA := old()
	b, hasB := edited()
	for walked := 0; hasA || hasB; walked++ {
		if walked == maxWalked {
			change.Until = earlier(a.At, hasA, b.At, hasB)
			break
		}
		p.left--
		at := earlier(a.At, hasA, b.At, hasB)
		vanishes, appears := false, false
		if hasA && a.At.Equal(at) {
			vanishes = a.mayFire()
			a, hasA = old()
		}
		if hasB && b.At.Equal(at) {
			appears = b.mayFire()
			b, hasB = edited()
		}
		switch {
		case vanishes == appears:
		case vanishes:
			change.Vanish++
			if len(change.FirstVanishing) < keep {
				change.FirstVanishing = append(change.FirstVanishing, at)
			}
		default:
			change.Appear++
			if len(change.FirstAppearing) < keep {
				change.FirstAppearing = append(change.FirstAppearing, at)
			}
		}
	}
	return change
}

// ticksOrNone is Ticks. A nil timeline has none.
func (t *Timeline) ticksOrNone(after, until time.Time) iter.Seq[Due] {
	if t == nil {
		return func(func(Due) bool) {}
	}
	return t.Ticks(after, until)
}

func earlier(a time.Time, hasA bool, b time.Time, hasB bool) time.Time {
	if !hasB || hasA && a.Before(b) {
		return a
	}
	return b
}

// RevertPlan is what putting an earlier configuration in force again would change.
type RevertPlan struct {
	Plan

	Review Review `json:"review"`
	// Undefined are the jobs that no present node defines as the configuration does: their
	// runs wait until a node has a file that does.
	Undefined []string `json:"undefined_jobs"`
}
