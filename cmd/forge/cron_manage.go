package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/scheduler/crons"
)

// pausedCron is the JSON output of forge cron pause and forge cron resume.
type pausedCron struct {
	cronstore.Cron
	Changed bool `json:"changed"`
	// now is the database's time.
	now time.Time
}

func (a *app) cronPauseCommand() *cobra.Command {
	return a.pauseOrResumeCommand("pause NAME", "Pause a cron: its ticks are recorded as skipped_paused until it is resumed", (*cronstore.Store).Pause,
		func(name string, t pausedCron) string {
			switch {
			case t.Changed:
				return fmt.Sprintf("%s is paused; resume it with forge cron resume %s", name, name)
			case t.PausedAt.IsZero():
				return name + " is already paused by the configuration"
			default:
				return name + " is already paused, since " + stamp(t.PausedAt)
			}
		})
}

func (a *app) cronResumeCommand() *cobra.Command {
	return a.pauseOrResumeCommand("resume NAME", "Resume a paused cron from now on", (*cronstore.Store).Resume,
		func(name string, t pausedCron) string {
			said := name + " is not paused"
			if t.Changed {
				said = name + " is resumed"
			}
			// NextTick may be a tick of the pause that is not recorded yet.
			coming, err := explain.Next(name, t.Spec, t.now, 1)
			if err != nil || len(coming) == 0 {
				return said + "; no tick is due any more"
			}
			return said + "; next tick " + stamp(coming[0].UTC)
		})
}

// pauseOrResumeCommand returns a command that pauses or resumes a cron. To repeat it is not an error.
func (a *app) pauseOrResumeCommand(use, short string,
	change func(*cronstore.Store, context.Context, string, string) (cronstore.Cron, bool, error), say func(string, pausedCron) string,
) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		Example: "  forge cron " + strings.Replace(use, "NAME", "nightly-report", 1),
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			store := cronstore.New(pool)
			cron, changed, err := change(store, ctx, args[0], whoAmI())
			if err != nil {
				return explainCron(ctx, pool, args[0], err)
			}
			now, err := store.Now(ctx)
			if err != nil {
				return err
			}
			answer := pausedCron{cron, changed, now}
			return a.result(answer, "%s", say(args[0], answer))
		}),
	}
}

// withManual runs work that runs ticks by hand.
func (a *app) withManual(ctx context.Context, work func(context.Context, *pgxpool.Pool, crons.Manual) error) error {
	return a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		inserter, err := jobs.NewInserter(pool, a.cfg.Database.Schema)
		if err != nil {
			return err
		}
		return work(ctx, pool, crons.Manual{DB: pool, Inserter: inserter})
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
