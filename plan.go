package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// shownRuns is how many runs of each cron a plan lists; the others are counted.
const shownRuns = 3

// Plan lists the differences between a configuration and the one in force.
type Plan = cronstore.Plan

// Rename pairs a removed cron with the added one that replaces it.
type Rename = cronstore.Rename

// MakePlan compares a configuration with the one in force, and computes its runs from now
// until ahead. It changes nothing.
func MakePlan(ctx context.Context, pool *pgxpool.Pool, cfg *Config, ahead time.Duration) (Plan, error) {
	c, err := candidateOf(cfg)
	if err != nil {
		return Plan{}, err
	}
	return c.plan(ctx, pool, ahead)
}

func (c candidate) plan(ctx context.Context, pool *pgxpool.Pool, ahead time.Duration) (Plan, error) {
	inForce, err := cronstore.New(pool).ConfigInForce(ctx)
	if err != nil && !errors.Is(err, cronstore.ErrNotFound) {
		return Plan{}, err
	}
	plan := Plan{Hash: c.hash, InForce: inForce.Hash}
	if plan.Changes, err = config.Compare(inForce.Body, c.body); err != nil {
		return Plan{}, err
	}
	review, state, err := c.preview(ctx, pool, false)
	if err != nil {
		return Plan{}, err
	}
	plan.State = state
	if err := cronstore.Unattended(review); err != nil {
		plan.Held = err.Error()
	} else if state == cronstore.StateApplied && !c.cfg.HasClusterSections() {
		plan.Held = "it has no crons, jobs, queues or alerts"
	}
	if plan.Renamed, err = renames(plan.Changes["crons"], inForce.Body, c.body); err != nil {
		return Plan{}, err
	}
	if plan.RemovedQueues, err = removedQueues(ctx, pool, plan.Changes["queues"].Removed); err != nil {
		return Plan{}, err
	}
	if plan.Limits, plan.UncountedLimits, err = effects(ctx, pool, limitsOf(c.cfg)); err != nil {
		return Plan{}, err
	}
	return plan, computeRuns(ctx, pool, c.cfg, ahead, &plan)
}

// removedQueues returns those of the removed queues in which jobs wait, by name.
func removedQueues(ctx context.Context, pool *pgxpool.Pool, removed []string) (found []cronstore.RemovedQueue, err error) {
	if len(removed) == 0 {
		return nil, nil
	}
	queues, err := jobstore.New(pool).Queues(ctx)
	for _, q := range queues {
		if waiting := q.Available + q.Scheduled + q.Retryable; waiting > 0 && slices.Contains(removed, q.Name) {
			found = append(found, cronstore.RemovedQueue{Name: q.Name, Jobs: waiting, More: q.MoreAvailable || q.MoreScheduled || q.MoreRetryable})
		}
	}
	return found, err
}

// maxEffects bounds the limits of which a plan reads the effect, and effectsTime the time after
// which it begins with no other one.
const (
	maxEffects  = 100
	effectsTime = 5 * time.Second
)

// effects returns what those of the limits would hold back that are not in force, by name, and how
// many of them were left out.
func effects(ctx context.Context, pool *pgxpool.Pool, limits []jobstore.Limit) (found []cronstore.LimitEffect, uncounted int, err error) {
	store := jobstore.New(pool)
	inForce, err := store.Limits(ctx)
	if err != nil {
		return nil, 0, err
	}
	limits = slices.DeleteFunc(limits, func(l jobstore.Limit) bool {
		return l.Scope == jobstore.ScopeWeight || l.Class() == jobstore.ClassRate || slices.Contains(inForce, l)
	})
	slices.SortFunc(limits, func(a, b jobstore.Limit) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	nodes, err := nodestore.New(pool).List(ctx)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	for i, l := range limits {
		if i == maxEffects || time.Since(began) > effectsTime {
			return found, len(limits) - i, nil
		}
		backlog, err := store.Backlog(ctx, l, clientsOf(nodes, l))
		if err != nil {
			return nil, 0, err
		}
		if backlog.Jobs == 0 {
			continue
		}
		effect := cronstore.LimitEffect{Scope: l.Scope, Name: l.Name, Limit: l.Most, Key: l.Key, PerNode: l.PerNode, Jobs: backlog.Jobs}
		if l.Key != "" {
			effect.Values = backlog.Values
		}
		found = append(found, effect)
	}
	return found, 0, nil
}

// clientsOf returns the names under which the active nodes claim jobs that work the queue or kind of a
// limit. If none does, as before the file is applied, it returns those of all active nodes, and of an
// unknown node if there is none.
func clientsOf(nodes []nodestore.Node, l jobstore.Limit) []string {
	var working, active []string
	for _, n := range nodes {
		if n.State != nodestore.Active {
			continue
		}
		active = append(active, n.ClientID())
		if l.Scope == jobstore.ScopeQueue && n.Queues[l.Name] > 0 || l.Scope == jobstore.ScopeJob && slices.Contains(n.Kinds, l.Name) {
			working = append(working, n.ClientID())
		}
	}
	switch {
	case len(working) > 0:
		return working
	case len(active) > 0:
		return active
	}
	return []string{""}
}

// computeRuns adds the runs to a plan.
func computeRuns(ctx context.Context, pool *pgxpool.Pool, cfg *Config, ahead time.Duration, p *Plan) error {
	specs, err := specsOf(cfg)
	if err != nil {
		return err
	}
	planner, err := cronstore.New(pool).Planner(ctx, specs)
	if err != nil {
		return err
	}
	p.From, p.Until = planner.Now(), planner.Now().Add(ahead)
	if p.Runs, err = planner.Runs(ctx, ahead, shownRuns); err != nil {
		return fmt.Errorf("compute the runs: %w", err)
	}
	p.Uncompared = planner.Uncompared()
	return nil
}

// renames pairs each removed cron with an added one that is otherwise the same.
func renames(crons config.SectionDiff, before, after []byte) ([]Rename, error) {
	if len(crons.Removed) == 0 || len(crons.Added) == 0 {
		return nil, nil
	}
	old, err := config.Section(before, "crons")
	if err != nil {
		return nil, err
	}
	edited, err := config.Section(after, "crons")
	if err != nil {
		return nil, err
	}
	added := map[string][]string{} // names by what else the cron is
	for _, to := range crons.Added {
		same, err := json.Marshal(withoutName(edited[to]))
		if err != nil {
			return nil, err
		}
		added[string(same)] = append(added[string(same)], to)
	}
	var found []Rename
	for _, from := range crons.Removed {
		same, err := json.Marshal(withoutName(old[from]))
		if err != nil {
			return nil, err
		}
		if names := added[string(same)]; len(names) > 0 {
			found = append(found, Rename{From: from, To: names[0]})
			added[string(same)] = names[1:]
		}
	}
	return found, nil
}

// withoutName returns a cron without its name. In the short form, its job has the same name
// and is removed as well.
func withoutName(cron any) map[string]any {
	table, _ := cron.(map[string]any)
	bare := maps.Clone(table)
	if bare["job"] == bare["name"] {
		delete(bare, "job")
	}
	delete(bare, "name")
	return bare
}
