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
	return &cobra.Command{
		Use: "apply", Short: "Put this file's crons in force now, also to go back to an earlier file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return connected(cmd.Context(), cfg, a.audited(func(ctx context.Context, pool *pgxpool.Pool) error {
				outcome, err := forge.Apply(ctx, pool, cfg, true)
				if err != nil {
					return err
				}
				if err := a.showOutcome(outcome); err != nil {
					return err
				}
				return a.warnUnheld(ctx, pool, cfg)
			}))
		},
	}
}

func (a *app) showOutcome(outcome cronstore.Outcome) error {
	if !a.tabular() {
		return a.document(outcome)
	}
	if outcome.State == cronstore.StateInForce {
		_, err := fmt.Fprintf(a.out, "nothing to do: configuration %s is in force\n", outcome.InForce)
		return err
	}
	for _, change := range []struct {
		what  string
		names []string
	}{{"added", outcome.Added}, {"changed", outcome.Changed}, {"removed", outcome.Removed}} {
		for _, name := range change.names {
			if _, err := fmt.Fprintf(a.out, "%-8s %s\n", change.what, name); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(a.out, "configuration %s is in force\n", outcome.InForce)
	return err
}

// warnUnheld names the jobs that will wait: nodes run, and none has a file that
// defines them so.
func (a *app) warnUnheld(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config) error {
	body, _, err := cfg.ClusterSections()
	if err != nil {
		return err
	}
	wanted, err := config.Definitions(body)
	if err != nil {
		return err
	}
	nodes, err := nodestore.List(ctx, pool)
	if err != nil {
		return err
	}
	nodes = slices.DeleteFunc(nodes, func(n nodestore.Node) bool { return !n.Present() })
	for _, job := range slices.Sorted(maps.Keys(wanted)) {
		held := func(n nodestore.Node) bool { return n.Definitions[job] == wanted[job] }
		if len(nodes) > 0 && !slices.ContainsFunc(nodes, held) {
			_, _ = fmt.Fprintf(a.err, "warning: no node defines job %s as this file does: its runs wait until one has the file\n", job)
		}
	}
	return nil
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
