package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
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
			cfg, err := a.loadFile(cmd.Context(), "apply")
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
	from := forge.Origin{By: "cli:" + whoAmI(), File: a.filePath()}
	return forge.ApplyFrom(ctx, pool, cfg, from, confirmed(preview, yes))
}

// confirmed returns the confirmation of what was previewed.
func confirmed(preview forge.Review, yes bool) func(forge.Review) error {
	return func(found forge.Review) error {
		if yes || found.Foreign() == preview.Foreign() && slices.Equal(found.Removed, preview.Removed) {
			return nil
		}
		return conflictError(fmt.Errorf("the cluster's crons have changed since, and nothing was applied: now %s", found))
	}
}

// filePath returns the absolute path of the file that a.load reads.
func (a *app) filePath() string {
	path := cmp.Or(a.configPath, os.Getenv("FORGE_CONFIG"), config.DefaultPath)
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

func (a *app) confirmApply(review forge.Review) error {
	for _, name := range review.Removed[:min(len(review.Removed), shownChanges)] {
		a.note("would remove " + name)
	}
	if more := len(review.Removed) - shownChanges; more > 0 {
		a.note(fmt.Sprintf("would remove %d more", more))
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
		for _, name := range change.names[:min(len(change.names), shownChanges)] {
			a.printf("%-8s %s\n", change.what, name)
		}
		a.moreChanges(fmt.Sprintf("%-8s ", change.what), len(change.names)-shownChanges, "")
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
	undefined, err := forge.UndefinedJobs(ctx, pool, body)
	if err != nil {
		return err
	}
	for _, job := range undefined {
		a.note("warning: no node defines job " + job + " as this file does: its runs wait until one has the file")
	}
	return nil
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
