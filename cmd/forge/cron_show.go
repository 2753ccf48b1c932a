package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// shownTicks is how many past and how many future ticks forge cron show prints.
const shownTicks = 5

// shownCron is the JSON output of forge cron show.
type shownCron struct {
	cronstore.Cron
	Description string           `json:"description"`
	Recent      []cronstore.Tick `json:"recent"`
	Coming      []explain.Coming `json:"coming"`
}

func (a *app) cronShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a cron: its definition, its last and its next ticks", Args: cobra.ExactArgs(1),
		Example: "  forge cron show nightly-report",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			shown, err := readCron(ctx, pool, args[0])
			if err != nil {
				return err
			}
			return a.printCron(shown)
		}),
	}
}

func readCron(ctx context.Context, pool *pgxpool.Pool, name string) (shownCron, error) {
	cron, err := findCron(ctx, pool, name)
	if err != nil {
		return shownCron{}, err
	}
	shown := shownCron{Cron: cron}
	if shown.Recent, err = cronstore.New(pool).Ticks(ctx, name, time.Time{}, shownTicks); err != nil {
		return shown, err
	}
	schedule, err := cron.Spec.Parse(name)
	if err != nil {
		return shown, err
	}
	shown.Description = schedule.Describe()
	if cron.Paused() || !cron.RemovedAt.IsZero() {
		return shown, nil
	}
	now, err := cronstore.New(pool).Now(ctx)
	if err != nil {
		return shown, err
	}
	shown.Coming, err = explain.Next(name, cron.Spec, now, shownTicks)
	return shown, err
}

func (a *app) printCron(shown shownCron) error {
	if err := one(a, shown, cronProperties); err != nil || !a.tabular() {
		return err
	}
	if len(shown.Recent) > 0 {
		a.printf("\nlast ticks:\n")
		if err := list(a, shown.Recent, tickColumns); err != nil {
			return err
		}
	}
	if len(shown.Coming) > 0 {
		a.printf("\nnext ticks:\n")
		return list(a, shown.Coming, upcomingColumns)
	}
	return nil
}

var cronProperties = []column[shownCron]{
	{title: "cron", show: func(c shownCron) string { return c.Name }},
	{title: "schedule", show: func(c shownCron) string { return c.Spec.Schedule }},
	{title: "in words", show: func(c shownCron) string { return c.Description }},
	{title: "description", show: func(c shownCron) string { return c.Spec.Description }},
	{title: "owner", show: func(c shownCron) string { return c.Spec.Owner }},
	{title: "runbook", show: func(c shownCron) string { return c.Spec.Runbook }},
	{title: "timezone", show: func(c shownCron) string { return c.Spec.Timezone }},
	{title: "job", show: func(c shownCron) string {
		return fmt.Sprintf("%s, queue %s, priority %d, at most %d attempts", c.Spec.Job, c.Spec.Queue, c.Spec.Priority, c.Spec.MaxAttempts)
	}},
	{title: "args", show: func(c shownCron) string { return string(c.Spec.Args) }},
	{title: "overlap", show: func(c shownCron) string { return c.Spec.Overlap }},
	{title: "catch up", show: func(c shownCron) string {
		return fmt.Sprintf("%s, window %s, limit %d", c.Spec.CatchUp, c.Spec.CatchUpSpan, c.Spec.CatchUpMax)
	}},
	{title: "daylight saving", show: func(c shownCron) string {
		return fmt.Sprintf("missing %s, repeated %s", c.Spec.DSTMissing, c.Spec.DSTRepeated)
	}},
	{title: "from", show: func(c shownCron) string { return noTime(c.Spec.StartAt) }},
	{title: "until", show: func(c shownCron) string { return noTime(c.Spec.EndAt) }},
	{title: "not at", show: func(c shownCron) string { return strings.Join(c.Spec.Exclude, "; ") }},
	{title: "jitter", show: func(c shownCron) string {
		if c.Spec.Jitter == 0 {
			return ""
		}
		return "up to " + c.Spec.Jitter.String()
	}},
	{title: "needs", show: needs},
	{title: "on failure", show: func(c shownCron) string { return strings.Join(c.Spec.OnFailure, ", ") }},
	{title: "paused", show: func(c shownCron) string {
		switch {
		case !c.PausedAt.IsZero():
			return "since " + stamp(c.PausedAt)
		case c.Spec.Paused:
			return "by the configuration"
		default:
			return "no"
		}
	}},
	{title: "blocked by", show: func(c shownCron) string {
		if c.Blocked.By == 0 {
			return ""
		}
		return blockedBy(c.Cron) + ", ticks skipped since " + stamp(c.Blocked.Since)
	}},
	{title: "first seen", show: func(c shownCron) string { return stamp(c.CreatedAt) }},
	{title: "changed", show: func(c shownCron) string { return stamp(c.UpdatedAt) }},
	{title: "removed", show: func(c shownCron) string { return noTime(c.RemovedAt) }},
	{title: "recorded up to", show: func(c shownCron) string { return stamp(c.Watermark) }},
}

// needs describes which nodes may run the cron's job.
func needs(c shownCron) string {
	var all []string
	if c.Spec.Capability != "" {
		all = append(all, "capability "+c.Spec.Capability)
	}
	if len(c.Spec.Tags) > 0 {
		all = append(all, fmt.Sprintf("tags %v", c.Spec.Tags))
	}
	return strings.Join(all, ", ")
}

func (a *app) cronWhyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why NAME TICK", Short: "Explain in one sentence the verdict of a tick",
		Example: "  forge cron why nightly-report 2026-11-20T01:30:00Z",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick, err := parseInstant("TICK", args[1])
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				answer, err := explain.New(pool).Why(ctx, args[0], tick)
				if err != nil {
					return explainCron(ctx, pool, args[0], err)
				}
				return a.answer(answer)
			})
		},
	}
}

// printedInstants are the formats in which tables print instants, besides RFC 3339.
var printedInstants = []string{"2006-01-02 15:04:05 MST", "2006-01-02 15:04:05 -07:00", "Mon 2006-01-02 15:04:05 -07:00"}

// parseInstant parses an argument or flag, named by what: RFC 3339, or an instant as a table prints it.
// An abbreviation of a zone counts only if it is this machine's, or UTC: others are ambiguous.
func parseInstant(what, text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, layout := range printedInstants {
		at, err := time.ParseInLocation(layout, text, time.Local)
		if zone := at.Location(); err == nil && (!strings.HasSuffix(layout, "MST") || zone == time.Local || zone == time.UTC) {
			return at, nil
		}
	}
	return time.Time{}, usageError(fmt.Errorf("%s %q: want RFC 3339, such as 2026-03-28T00:00:00Z", what, text))
}

// answer prints an explanation. A tick without a row in the ledger is a not-found error that has the
// explanation as its text.
func (a *app) answer(e explain.Explanation) error {
	if e.Standing == explain.Recorded {
		return a.result(e, "%s", e.Sentence)
	}
	if !a.tabular() {
		if err := a.document(e); err != nil {
			return err
		}
	}
	return notFound("%s", e.Sentence)
}
