package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func (a *app) applyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "apply", Short: "Put this file's crons in force now, also to go back to an earlier file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return connected(cmd.Context(), cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
				outcome, err := forge.Apply(ctx, pool, cfg, true)
				if err != nil {
					return err
				}
				return a.showOutcome(outcome)
			})
		},
	}
}

func (a *app) showOutcome(outcome cronstore.Outcome) error {
	if a.format != "table" {
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

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
