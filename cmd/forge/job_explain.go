package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

func (a *app) jobExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Explain where a job will run, why it waits, or which node ran it", Args: cobra.ExactArgs(1),
		Long: "Places the job as the scheduler's leader does, from the state in the database: it lists every\n" +
			"node that has not left, the reasons against it, and the choice. No node needs to run.",
		Example: "  forge job explain 42",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := jobID(args[0])
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				placement, err := assign.NewExplainer(pool, placementRules(a.cfg)).Placement(ctx, id)
				if errors.Is(err, jobstore.ErrNotFound) {
					return noJob(id)
				}
				if err != nil {
					return err
				}
				return a.showPlacement(placement)
			})
		},
	}
}

func placementRules(cfg *config.Config) assign.Rules {
	return assign.Rules{Strategy: cfg.Scheduler.Assignment, Policy: nodestore.Policy{
		HeartbeatInterval: cfg.Cluster.HeartbeatInterval.Std(),
		DeadThreshold:     cfg.Cluster.DeadThreshold.Std(),
		NoSessionLocks:    cfg.Cluster.LeaderElection.ByLease(),
	}}
}

func (a *app) showPlacement(p explain.Placement) error {
	if err := a.result(p, "%s", p.Sentence); err != nil || !a.tabular() {
		return err
	}
	if len(p.Candidates) > 0 {
		a.printf("\n")
		if err := list(a, p.Candidates, candidateColumns); err != nil {
			return err
		}
	}
	if len(p.Attempts) > 0 {
		a.printf("\n")
		return list(a, p.Attempts, attemptColumns)
	}
	return nil
}

var candidateColumns = []column[explain.Candidate]{
	{title: "node", show: func(c explain.Candidate) string { return c.NodeID }},
	{title: "running", show: func(c explain.Candidate) string { return fmt.Sprintf("%d of %d", c.Running, c.Slots) }},
	{title: "verdict", show: func(c explain.Candidate) string {
		switch {
		case c.Chosen:
			return "chosen"
		case len(c.Rejected) == 0:
			return "could take it"
		default:
			return "rejected"
		}
	}},
	{title: "why", show: func(c explain.Candidate) string {
		reasons := make([]string, len(c.Rejected))
		for i, r := range c.Rejected {
			reasons[i] = r.Detail
		}
		return dash(strings.Join(reasons, "; "))
	}},
	{title: "of kind", wide: true, show: func(c explain.Candidate) string { return strconv.Itoa(c.OfKind) }},
	{title: "capabilities", wide: true, show: func(c explain.Candidate) string { return dash(strings.Join(c.Capabilities, ", ")) }},
}
