package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "Apply, list, print and roll back the schema's migrations",
		a.migrateUpCommand(), a.migrateDownCommand(), a.watchable(a.migrateStatusCommand()), a.migratePrintCommand())
}

// withMigrator connects and creates the configured schema if it does not exist.
func (a *app) withMigrator(ctx context.Context, work func(context.Context, *migrations.Migrator) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	return connected(ctx, cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
		if err := postgres.EnsureSchema(ctx, pool, cfg.Database.Schema); err != nil {
			return err
		}
		return work(ctx, migrations.New(pool, discard()))
	})
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Apply missing migrations; safe while nodes run and start", Args: cobra.NoArgs,
		Example: "  forge migrate up",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withMigrator(cmd.Context(), func(ctx context.Context, m *migrations.Migrator) error {
				before, err := m.Status(ctx)
				if err != nil {
					return err
				}
				if err := m.Up(ctx); err != nil {
					return err
				}
				for _, step := range before {
					if !step.Applied {
						_, _ = fmt.Fprintf(a.out, "applied %s %d %s\n", step.Source, step.Version, step.Name)
					}
				}
				_, err = fmt.Fprintln(a.out, "the schema is up to date")
				return err
			})
		},
	}
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the migrations", Args: cobra.NoArgs,
		Example: "  forge migrate status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				steps, err := migrations.New(pool, discard()).Status(ctx)
				if err != nil {
					return err
				}
				return list(a, steps, []column[migrations.Step]{
					{title: "source", show: func(s migrations.Step) string { return s.Source }},
					{title: "version", show: func(s migrations.Step) string { return strconv.FormatInt(s.Version, 10) }},
					{title: "name", show: func(s migrations.Step) string { return s.Name }},
					{title: "applied", show: func(s migrations.Step) string {
						if s.Applied {
							return "yes"
						}
						return "no"
					}},
				})
			})
		},
	}
}

func (a *app) migratePrintCommand() *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "Print River's and forge's migrations as SQL for psql", Args: cobra.NoArgs,
		Long: "Print all migrations as one script for psql: River's first, then forge's, each with the\n" +
			"row that marks it as applied. On an empty database or schema the script does what\n" +
			"forge migrate up does; nodes then start with a role that may not create tables.",
		Example: "  forge migrate print > forge.sql\n  psql -v ON_ERROR_STOP=1 -f forge.sql",
		RunE:    func(*cobra.Command, []string) error { return migrations.Print(a.out) },
	}
}
