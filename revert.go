package forge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/redact"
)

// RevertPlan is what putting an earlier configuration in force again would change.
type RevertPlan = cronstore.RevertPlan

// PlanRevert compares the earlier configuration whose hash begins with start with the one in
// force, as MakePlan compares a file. It changes nothing.
func PlanRevert(ctx context.Context, pool *pgxpool.Pool, start string, ahead time.Duration) (RevertPlan, error) {
	stored, err := storedConfig(ctx, pool, start)
	if err != nil {
		return RevertPlan{}, err
	}
	var revert RevertPlan
	if revert.Plan, err = stored.plan(ctx, pool, ahead); err != nil {
		return RevertPlan{}, err
	}
	if revert.Review, _, err = stored.preview(ctx, pool, true); err != nil {
		return RevertPlan{}, err
	}
	revert.Review.Removed = append([]string{}, revert.Review.Removed...) // not null in JSON
	undefined, err := UndefinedJobs(ctx, pool, stored.body)
	revert.Undefined = append([]string{}, undefined...)
	return revert, err
}

// Revert puts the earlier configuration whose hash begins with start in force again, if confirm
// returns nil. Otherwise it is like ApplyConfirmed. The nodes keep their files.
func Revert(ctx context.Context, pool *pgxpool.Pool, start, nodeID, by string, confirm func(Review) error) (cronstore.Outcome, error) {
	return revert(ctx, pool, start, nodeID, by, confirm)
}

func revert(ctx context.Context, db postgres.DB, start, nodeID, by string, confirm func(Review) error) (cronstore.Outcome, error) {
	stored, err := storedConfig(ctx, db, start)
	if err != nil {
		return cronstore.Outcome{}, err
	}
	stored.origin = cronstore.Origin{By: by, Reverts: true}
	stored.node = nodeID
	return stored.apply(ctx, db, true, confirm)
}

// storedConfig returns an earlier configuration.
func storedConfig(ctx context.Context, db postgres.DB, start string) (candidate, error) {
	found, err := cronstore.New(db).FindConfig(ctx, start)
	if err != nil {
		return candidate{}, err
	}
	cfg, err := config.FromSections(found.Body)
	if err != nil {
		return candidate{}, &cronstore.UnrevertableError{Hash: found.Hash, Reason: err.Error()}
	}
	for _, cron := range cfg.Crons {
		args, err := json.Marshal(cron.Args)
		if err != nil || bytes.Contains(args, []byte(redact.Mark)) {
			return candidate{}, &cronstore.UnrevertableError{Hash: found.Hash, Reason: "the args of cron " + cron.Name + " have a password, which is not stored"}
		}
	}
	return candidate{cfg: cfg, body: found.Body, hash: found.Hash, cluster: found.Cluster}, nil
}

// UndefinedJobs returns the jobs of some cluster sections that no present node defines in the
// same way: their runs wait until a node has a file that does. It returns none if no node is
// present.
func UndefinedJobs(ctx context.Context, pool *pgxpool.Pool, sections []byte) ([]string, error) {
	wanted, err := config.Definitions(sections)
	if err != nil {
		return nil, err
	}
	nodes, err := nodestore.New(pool).List(ctx)
	if err != nil {
		return nil, err
	}
	nodes = slices.DeleteFunc(nodes, func(n nodestore.Node) bool { return !n.Present() })
	if len(nodes) == 0 {
		return nil, nil
	}
	var undefined []string
	for _, job := range slices.Sorted(maps.Keys(wanted)) {
		if !slices.ContainsFunc(nodes, func(n nodestore.Node) bool { return n.Definitions[job] == wanted[job] }) {
			undefined = append(undefined, job)
		}
	}
	return undefined, nil
}

// configs gives the dashboard access to the configurations that were in force.
type configs struct {
	*cronstore.Store

	node *Node
}

func (c configs) PlanRevert(ctx context.Context, start string, ahead time.Duration) (RevertPlan, error) {
	return PlanRevert(ctx, c.node.pool, start, ahead)
}

func (c configs) Revert(ctx context.Context, start string, confirm func(Review) error) (cronstore.Outcome, error) {
	return revert(ctx, postgres.RequestDB{Pool: c.node.pool}, start, c.node.cfg.Node.ID, requester(ctx), confirm)
}

// requester names the caller of a request, for the history of configurations.
func requester(ctx context.Context) string { return cmp.Or(auth.CallerOf(ctx).Name, auth.Anonymous) }
