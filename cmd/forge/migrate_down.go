package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/migrations"
)

func (a *app) migrateDownCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "down", Short: "Roll back forge's newest migration; River's tables and jobs stay",
		Long: "Roll back the migration of forge that was applied last, and print what is lost\n" +
			"with it. River's tables and jobs stay. Without --yes it only prints. It fails with\n" +
			"exit code 6 while a node runs or another program leads a role.",
		Args:    cobra.NoArgs,
		Example: "  forge migrate down          # what would be lost\n  forge migrate down --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			policy := placementRules(cfg).Policy
			return connected(cmd.Context(), cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.migrateDown(ctx, pool, policy, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "roll the migration back")
	return cmd
}

func (a *app) migrateDown(ctx context.Context, pool *pgxpool.Pool, policy nodestore.Policy, yes bool) error {
	m := migrations.New(pool, discard())
	if err := m.Check(ctx); err != nil && !errors.Is(err, migrations.ErrPending) {
		return err
	}
	newest, losses, err := m.Newest(ctx)
	if err != nil {
		return err
	}
	if newest.Version == 0 {
		_, err := fmt.Fprintln(a.out, "no migration of forge is applied")
		return err
	}
	running, err := nodestore.New(pool).Running(ctx, policy)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return conflictError(fmt.Errorf("these need the schema as it is: %s; stop them first", strings.Join(running, ", ")))
	}
	lost := "loses nothing that was stored"
	if len(losses) > 0 {
		lost = "loses:"
	}
	if _, err := fmt.Fprintf(a.out, "%s: rolling it back %s\n", newest.Name, lost); err != nil {
		return err
	}
	for _, loss := range losses {
		if _, err := fmt.Fprintf(a.out, "  %s\n", loss); err != nil {
			return err
		}
	}
	if !yes {
		return usageError(errors.New("nothing was changed; use --yes to confirm"))
	}
	if err := m.Down(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "rolled back forge %d %s\n", newest.Version, newest.Name)
	return err
}
