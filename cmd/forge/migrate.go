package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "Apply, list, print and roll back the schema's migrations",
		a.migrateUpCommand(), a.migrateDownCommand(), a.watchable(a.migrateStatusCommand()), a.migratePrintCommand())
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Apply missing migrations; safe while nodes run and start", Args: cobra.NoArgs,
		Example: "  forge migrate up",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return connected(cmd.Context(), cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.migrateUp(ctx, pool, cfg.Database.Schema)
			})
		},
	}
}

func (a *app) migrateUp(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	if err := postgres.EnsureSchema(ctx, pool, schema); err != nil {
		return err
	}
	m := migrations.New(pool, discard())
	before, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if err := m.Up(ctx); err != nil {
		return err
	}
	applied := []migrations.Step{}
	for _, step := range before {
		if !step.Applied {
			step.Applied = true
			applied = append(applied, step)
		}
	}
	if !a.tabular() {
		return a.document(applied)
	}
	for _, step := range applied {
		a.printf("applied %s %d %s\n", step.Source, step.Version, step.Name)
	}
	a.printf("the schema is up to date\n")
	return nil
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the migrations", Args: cobra.NoArgs,
		Example: "  forge migrate status",
		RunE: listed(a, stepColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]migrations.Step, error) {
			return migrations.New(pool, discard()).Status(ctx)
		}),
	}
}

var stepColumns = []column[migrations.Step]{
	{title: "source", show: func(s migrations.Step) string { return s.Source }},
	{title: "version", show: func(s migrations.Step) string { return strconv.FormatInt(s.Version, 10) }},
	{title: "name", show: func(s migrations.Step) string { return s.Name }},
	{title: "applied", show: func(s migrations.Step) string {
		if s.Applied {
			return "yes"
		}
		return "no"
	}},
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
		return a.result(rollback{}, "no migration of forge is applied")
	}
	running, err := nodestore.New(pool).Running(ctx, policy)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return conflictError(fmt.Errorf("these need the schema as it is: %s; stop them first", strings.Join(running, ", ")))
	}
	answer := rollback{Version: newest.Version, Name: newest.Name, Losses: names(losses, migrations.Loss.String)}
	if a.tabular() {
		lost := "loses nothing that was stored"
		if len(losses) > 0 {
			lost = "loses:"
		}
		a.printf("%s: rolling it back %s\n", newest.Name, lost)
		for _, loss := range losses {
			a.printf("  %s\n", loss)
		}
	}
	if !yes {
		refusal := usageError(errors.New("nothing was changed; use --yes to confirm"))
		if a.tabular() {
			return refusal
		}
		return cmp.Or(a.document(answer), refusal)
	}
	if err := m.Down(ctx); err != nil {
		return err
	}
	answer.RolledBack = true
	return a.result(answer, "rolled back forge %d %s", newest.Version, newest.Name)
}

// rollback is the JSON output of forge migrate down. Version is 0 if there is nothing to roll back.
type rollback struct {
	Version    int64    `json:"version"`
	Name       string   `json:"name,omitempty"`
	Losses     []string `json:"losses,omitempty"`
	RolledBack bool     `json:"rolled_back"`
}
