package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/scheduler/crons"
)

// withManual runs work that runs ticks by hand.
func (a *app) withManual(ctx context.Context, work func(context.Context, *pgxpool.Pool, crons.Manual) error) error {
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		inserter, err := jobs.NewInserter(pool, a.cfg.Database.Schema)
		if err != nil {
			return err
		}
		return work(callersTrace().Into(ctx), pool, crons.Manual{DB: pool, Inserter: inserter})
	})
}

func (a *app) cronTriggerCommand() *cobra.Command {
	var at, args string
	cmd := &cobra.Command{
		Use: "trigger NAME", Short: "Run a cron now, or a tick that has no job", Args: cobra.ExactArgs(1),
		Long: "Runs a cron now, regardless of its schedule and overlap policy, even while it is paused.\n" +
			"With --at it runs a due tick without a job: a skipped one, or one that was not recorded.\n" +
			"A tick that has a job never runs again (exit code 6).",
		Example: "  forge cron trigger nightly-report\n" +
			"  forge cron trigger nightly-report --at 2026-11-20T01:30:00Z --args '{\"full\":true}'",
		RunE: func(cmd *cobra.Command, positional []string) error {
			trigger := cronstore.Trigger{Cron: positional[0], By: whoAmI()}
			var err error
			if at != "" {
				if trigger.At, err = parseInstant("--at", at); err != nil {
					return err
				}
			}
			if trigger.Args, err = parseArgs(args); err != nil {
				return err
			}
			return a.withManual(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, manual crons.Manual) error {
				row, err := manual.Trigger(ctx, trigger)
				if err != nil {
					return explainTrigger(ctx, pool, trigger, row, err)
				}
				return a.result(row, "triggered the tick %s of %s: job %d; see forge job show %[3]d", explain.Instant(row.Tick), row.Cron, row.JobID)
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the tick to run, RFC 3339 (default now)")
	cmd.Flags().StringVar(&args, "args", "", "arguments, a JSON object (default the cron's own)")
	return cmd
}

func parseArgs(args string) (json.RawMessage, error) {
	if args == "" {
		return nil, nil
	}
	if err := config.CheckArgs(json.RawMessage(args)); err != nil {
		return nil, usageError(fmt.Errorf("--%w", err))
	}
	return json.RawMessage(args), nil
}

func explainTrigger(ctx context.Context, pool *pgxpool.Pool, trigger cronstore.Trigger, row cronstore.Tick, err error) error {
	at := explain.Instant(trigger.At)
	switch {
	case errors.Is(err, cronstore.ErrTaken) && row.JobID == 0:
		return conflictError(fmt.Errorf("the tick %s of %s is already queued", at, trigger.Cron))
	case errors.Is(err, cronstore.ErrTaken):
		return conflictError(fmt.Errorf("the tick %s of %s has job %d (%s); a tick runs once, so trigger the cron without --at or see forge job show %d",
			at, trigger.Cron, row.JobID, row.Verdict, row.JobID))
	case errors.Is(err, cronstore.ErrFuture):
		return usageError(fmt.Errorf("--at %s lies in the future, where the cron fires by itself", at))
	case errors.Is(err, cronstore.ErrNotDue):
		answer, gathering := explain.New(pool).Why(ctx, trigger.Cron, trigger.At)
		if gathering != nil {
			return gathering
		}
		return notFound("%s", answer.Sentence)
	default:
		return explainArgs(explainCron(ctx, pool, trigger.Cron, err))
	}
}

// noTime formats an instant like stamp, but returns an empty string for the zero time.
func noTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return stamp(at)
}
