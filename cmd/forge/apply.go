package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

func (a *app) applyCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "apply", Short: "Put this file in force now, even if a newer file has superseded it", Args: cobra.NoArgs,
		Long: "apply puts the crons, jobs, queues and alerts of the file in force for the whole cluster,\n" +
			"even if a newer file has superseded it. It needs a file: --config, $FORGE_CONFIG or\n" +
			"./forge.toml.\n\n" +
			"If the file would remove crons or belongs to another cluster, apply asks for confirmation.\n" +
			"Without a terminal it then changes nothing and exits with 2; --yes confirms. A removed\n" +
			"cron keeps its history, and resumes where it stopped when a file adds it again.",
		Example: "  forge plan            # what would change\n" +
			"  forge apply           # asks before it removes crons\n" +
			"  forge apply --yes     # in scripts: removes crons without asking\n" +
			"  forge apply --config /etc/forge/forge.toml.before",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadFile("apply")
			if err != nil {
				return err
			}
			return connected(cmd.Context(), cfg, a.audited(func(ctx context.Context, pool *pgxpool.Pool) error {
				outcome, err := a.apply(ctx, pool, cfg, yes)
				if err != nil {
					return err
				}
				if err := a.showOutcome(outcome); err != nil {
					return err
				}
				return a.warnUndefined(ctx, pool, cfg)
			}))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// apply asks for confirmation, if needed, before it takes any lock, and applies only what was
// confirmed.
func (a *app) apply(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config, yes bool) (cronstore.Outcome, error) {
	preview, err := forge.PreviewApply(ctx, pool, cfg)
	if err != nil {
		return cronstore.Outcome{}, err
	}
	if !yes && !preview.Harmless() {
		if err := a.confirmApply(preview); err != nil {
			return cronstore.Outcome{}, err
		}
	}
	return forge.ApplyConfirmed(ctx, pool, cfg, func(found forge.Review) error {
		if yes || found.Foreign() == preview.Foreign() && slices.Equal(found.Removed, preview.Removed) {
			return nil
		}
		return conflictError(fmt.Errorf("the cluster's crons have changed since, and nothing was applied: now %s", found))
	})
}

func (a *app) confirmApply(review forge.Review) error {
	for _, name := range review.Removed {
		a.note("would remove " + name)
	}
	return a.confirm(fmt.Sprintf("Apply this file although %s?", review),
		"use --yes to confirm; forge plan shows all changes")
}

func (a *app) showOutcome(outcome cronstore.Outcome) error {
	if !a.tabular() {
		return a.document(outcome)
	}
	if outcome.State == cronstore.StateInForce && len(outcome.Added) == 0 {
		a.printf("nothing to do: configuration %s is in force\n", outcome.InForce)
		return nil
	}
	for _, change := range []struct {
		what  string
		names []string
	}{{"added", outcome.Added}, {"changed", outcome.Changed}, {"removed", outcome.Removed}} {
		for _, name := range change.names {
			a.printf("%-8s %s\n", change.what, name)
		}
	}
	a.printf("configuration %s is in force\n", outcome.InForce)
	return nil
}

// warnUndefined warns of jobs that will wait because no running node's file defines them as cfg
// does. It does not warn when no node runs.
func (a *app) warnUndefined(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config) error {
	body, _, err := cfg.ClusterSections()
	if err != nil {
		return err
	}
	wanted, err := config.Definitions(body)
	if err != nil {
		return err
	}
	nodes, err := nodestore.New(pool).List(ctx)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n nodestore.Node) bool { return !n.Present() })
	for _, job := range slices.Sorted(maps.Keys(wanted)) {
		defined := func(n nodestore.Node) bool { return n.Definitions[job] == wanted[job] }
		if len(nodes) > 0 && !slices.ContainsFunc(nodes, defined) {
			a.note("warning: no node defines job " + job + " as this file does: its runs wait until one has the file")
		}
	}
	return nil
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
