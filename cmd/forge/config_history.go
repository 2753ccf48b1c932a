package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func (a *app) configHistoryCommand() *cobra.Command {
	var limit int
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "history", Short: "List the configurations that were in force", Args: cobra.NoArgs,
		Example: "  forge config history -n 5\n  forge config history --filter 'by:ada* since:7d' --sort oldest",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				history, err := cronstore.New(pool).SearchHistory(ctx, cronstore.HistoryQuery{Where: where.Filter, Oldest: sort.name == activity.Oldest, Limit: limit})
				if err != nil {
					return err
				}
				return list(a, history, applicationColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many")
	where.addTo(cmd.Flags(), cronstore.HistoryTable.Keys(), "configurations", "by:ada* since:7d", "operations.md")
	sort.addTo(cmd.Flags(), activity.Orders)
	return cmd
}

var applicationColumns = []column[cronstore.Application]{
	{title: "at", show: func(c cronstore.Application) string { return stamp(c.At) }},
	{title: "hash", show: func(c cronstore.Application) string {
		if c.InForce {
			return shortHash(c.Hash) + " (in force)"
		}
		return shortHash(c.Hash)
	}},
	{title: "by", show: func(c cronstore.Application) string { return cmp.Or(c.By, "node "+c.NodeID) }},
	{title: "from", show: func(c cronstore.Application) string {
		if c.Reverted {
			return "revert"
		}
		return dash(c.File)
	}},
	{title: "node", wide: true, show: func(c cronstore.Application) string { return c.NodeID }},
	{title: "crons", show: func(c cronstore.Application) string {
		if c.Added == nil || c.Changed == nil || c.Removed == nil {
			return "-"
		}
		return fmt.Sprintf("+%d ~%d -%d", *c.Added, *c.Changed, *c.Removed)
	}},
}

// shortHash shortens a hash to what identifies it in practice.
func shortHash(hash string) string { return hash[:min(len(hash), 12)] }

func (a *app) configDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff [[FROM] HASH]", Short: "Show what a configuration has changed", Args: cobra.MaximumNArgs(2),
		Long: "diff compares a configuration that was in force with the one before it, or with FROM.\n" +
			"Without arguments it shows the last change. A hash may be given by its first digits.",
		Example: "  forge config diff                    # the last change\n" +
			"  forge config diff 3f9a2c81           # what this configuration has changed\n" +
			"  forge config diff 3f9a2c81 77be01d4  # from the first to the second",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := "", ""
			switch len(args) {
			case 1:
				to = args[0]
			case 2:
				from, to = args[0], args[1]
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				diff, err := cronstore.New(pool).DiffConfigs(ctx, from, to)
				if err != nil {
					return configurationError(err)
				}
				if !a.tabular() {
					return a.document(diff)
				}
				a.printf("from %s to %s\n", cmp.Or(shortHash(diff.From), "no configuration"), shortHash(diff.To))
				if diff.Changes.Empty() {
					a.printf("\nNo cron, job, queue or alert differs.\n")
				}
				for _, section := range planSections(diff.Changes) {
					a.planSection(section, diff.Changes[section])
				}
				return nil
			})
		},
	}
}

func (a *app) configRevertCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "revert HASH", Short: "Put an earlier configuration in force again, without its file", Args: cobra.ExactArgs(1),
		Long: "revert puts an earlier configuration in force again for the whole cluster. forge config\n" +
			"history lists them; a hash may be given by its first digits.\n\n" +
			"The nodes keep their files, and show drift until these agree. No node puts its file in\n" +
			"force again by itself, unless the file is edited. What a job runs comes from the nodes'\n" +
			"files: runs of a job that no running node defines as the configuration does wait.\n\n" +
			"If crons would be removed, revert asks for confirmation, as forge apply does.",
		Example: "  forge config revert 3f9a2c81\n  forge config revert 3f9a2c81 --yes   # in scripts: removes crons without asking",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return connected(cmd.Context(), cfg, a.audited(func(ctx context.Context, pool *pgxpool.Pool) error {
				plan, err := forge.PlanRevert(ctx, pool, args[0], 0)
				if err != nil {
					return configurationError(err)
				}
				if !yes && !plan.Review.Harmless() {
					for _, name := range plan.Review.Removed {
						a.note("would remove " + name)
					}
					if err := a.confirm(fmt.Sprintf("Revert although %s?", plan.Review), "use --yes to confirm; forge config diff shows the changes"); err != nil {
						return err
					}
				}
				outcome, err := forge.Revert(ctx, pool, plan.Hash, cfg.Node.ID, "cli:"+whoAmI(), confirmed(plan.Review, yes))
				if err != nil {
					return configurationError(err)
				}
				for _, job := range plan.Undefined {
					a.note("warning: no node defines job " + job + " as this configuration does: its runs wait until one has its file")
				}
				return a.showOutcome(outcome)
			}))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// configurationError gives the errors of a hash their exit codes.
func configurationError(err error) error {
	switch {
	case errors.Is(err, cronstore.ErrNoHash):
		return usageError(err)
	case errors.Is(err, cronstore.ErrNoConfig):
		return notFound("%s; see forge config history", strings.TrimSuffix(err.Error(), "."))
	case errors.Is(err, cronstore.ErrAmbiguous):
		return conflictError(err)
	}
	if _, ok := errors.AsType[*cronstore.UnrevertableError](err); ok {
		return conflictError(err)
	}
	return err
}
