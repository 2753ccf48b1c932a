package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

func (a *app) cronCommand() *cobra.Command {
	return group("cron", "Show crons, their next ticks and their ledger; trigger, backfill and pause them",
		a.watchable(a.cronListCommand()), a.watchable(a.cronShowCommand()), a.cronNextCommand(), a.watchable(a.cronHistoryCommand()), a.cronWhyCommand(),
		a.cronTriggerCommand(), a.cronBackfillCommand(), a.cronPauseCommand(), a.cronResumeCommand(), a.cronUndoCommand())
}

func (a *app) cronListCommand() *cobra.Command {
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the crons in force", Args: cobra.NoArgs,
		Example: "  forge cron list -o wide\n  forge cron list --filter 'cron:nightly* is:overdue'",
		RunE: listed(a, cronColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]listedCron, error) {
			crons, err := cronstore.New(pool).List(ctx)
			if err != nil {
				return nil, err
			}
			now, err := cronstore.New(pool).Now(ctx)
			if err != nil {
				return nil, err
			}
			found := cronstore.Select(where.Filter, sort.name, now, crons)
			rows := make([]listedCron, len(found))
			for i := range found {
				rows[i] = listedCron{found[i], found[i].Describe()}
			}
			return rows, nil
		}),
	}
	where.addTo(cmd.Flags(), cronstore.FilterTable.Keys(), "crons", "cron:nightly* is:overdue next:<1h", "crons.md")
	sort.addTo(cmd.Flags(), cronstore.Orders.Names())
	return cmd
}

// listedCron is a cron with its schedule in words, as in the API.
type listedCron struct {
	cronstore.Cron
	Description string `json:"description,omitempty"`
}

var cronColumns = []column[listedCron]{
	{title: "cron", show: func(c listedCron) string { return c.Name }},
	{title: "schedule", show: func(c listedCron) string { return c.Spec.Schedule }},
	{title: "timezone", show: func(c listedCron) string { return c.Spec.Timezone }},
	{title: "job", show: func(c listedCron) string { return c.Spec.Job }},
	{title: "last", show: func(c listedCron) string {
		if c.Last == nil {
			return "-"
		}
		return string(c.Last.Verdict) + " " + ago(c.Last.Tick, time.Now())
	}},
	{title: "late", show: func(c listedCron) string {
		if c.Last == nil || c.Last.JobID == 0 {
			return "-"
		}
		return milliseconds(c.Last.LatenessMS)
	}},
	{title: "next", show: func(c listedCron) string {
		if c.Paused() {
			return "paused"
		}
		return ago(c.NextTick, time.Now())
	}},
	{title: "blocked by", show: func(c listedCron) string { return blockedBy(c.Cron) }},
	{title: "overlap", wide: true, show: func(c listedCron) string { return c.Spec.Overlap }},
	{title: "catch up", wide: true, show: func(c listedCron) string { return c.Spec.CatchUp }},
	{title: "queue", wide: true, show: func(c listedCron) string { return c.Spec.Queue }},
	{title: "next at", wide: true, show: func(c listedCron) string { return tickStamp(c.NextTick) }},
}

// blockedBy names the earlier run that made the newest tick skip.
func blockedBy(c cronstore.Cron) string {
	if c.Blocked.By == 0 {
		return "-"
	}
	return fmt.Sprintf("job %d", c.Blocked.By)
}

func (a *app) cronNextCommand() *cobra.Command {
	var zone, from string
	var count int
	cmd := &cobra.Command{
		Use:   "next NAME|EXPRESSION",
		Short: "Print the next ticks of a cron, or of an expression such as '*/5 * * * *'",
		Example: "  forge cron next nightly-report -n 3\n" +
			"  forge cron next '30 2 * * *' --timezone Europe/Berlin --from 2026-03-28T00:00:00Z",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			if from != "" {
				var err error
				if start, err = parseInstant("--from", from); err != nil {
					return err
				}
			}
			if count < 1 || count > 10_000 {
				return usageError(fmt.Errorf("-n %d: want 1 to 10000", count))
			}
			ticks, err := a.upcomingOf(cmd.Context(), args[0], zone, cmd.Flags().Changed("timezone"), start, count)
			if err != nil {
				return err
			}
			return list(a, ticks, upcomingColumns)
		},
	}
	cmd.Flags().StringVar(&zone, "timezone", "UTC", "zone of a bare expression")
	cmd.Flags().IntVarP(&count, "count", "n", 10, "how many")
	cmd.Flags().StringVar(&from, "from", "", "ticks after this instant, RFC 3339 (default now)")
	return cmd
}

var upcomingColumns = []column[explain.Coming]{
	{title: "tick", show: func(c explain.Coming) string { return c.Tick.Format("Mon 2006-01-02 15:04:05 -07:00") }},
	{title: "utc", show: func(c explain.Coming) string { return c.UTC.Format(time.RFC3339) }},
	{title: "in", show: func(c explain.Coming) string { return ago(c.UTC, time.Now()) }},
	{title: "note", show: func(c explain.Coming) string {
		switch {
		case c.Excluded != "":
			return "excluded by " + c.Excluded
		case !c.FiresAt.IsZero():
			return "fires " + span(c.FiresAt.Sub(c.UTC)) + " later"
		default:
			return "-"
		}
	}},
}

// upcomingOf returns the next ticks of an expression or a cron, and prints the schedule in words. An
// argument with a space or a leading @ is an expression; any other is the name of a cron in force.
func (a *app) upcomingOf(ctx context.Context, argument, zone string, zoneGiven bool, start time.Time, count int) ([]explain.Coming, error) {
	if strings.ContainsAny(argument, " \t") || strings.HasPrefix(argument, "@") {
		spec := cronstore.Spec{Schedule: argument, Timezone: zone}
		if _, err := spec.Parse(""); err != nil {
			return nil, usageError(err)
		}
		return a.upcomingOfSpec("", spec, start, count)
	}
	if zoneGiven {
		return nil, usageError(errors.New("--timezone goes with an expression; a cron has a zone of its own"))
	}
	var cron cronstore.Cron
	err := a.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		cron, err = findCron(ctx, pool, argument)
		return err
	})
	if err != nil {
		return nil, err
	}
	if held := heldBack(cron); held != "" {
		a.note(held)
	}
	return a.upcomingOfSpec(argument, cron.Spec, start, count)
}

// heldBack says why the next ticks of a cron do not fire as they stand.
func heldBack(cron cronstore.Cron) string {
	switch {
	case !cron.RemovedAt.IsZero():
		return fmt.Sprintf("warning: %s was removed at %s; none of these ticks is due", cron.Name, stamp(cron.RemovedAt))
	case cron.Paused():
		return fmt.Sprintf("warning: %s is paused; until forge cron resume %s its ticks are skipped", cron.Name, cron.Name)
	default:
		return ""
	}
}

func (a *app) upcomingOfSpec(name string, spec cronstore.Spec, start time.Time, count int) ([]explain.Coming, error) {
	schedule, err := spec.Parse(name)
	if err != nil {
		return nil, err
	}
	if a.tabular() {
		a.note(schedule.Describe())
	}
	return explain.Next(name, spec, start, count)
}

func findCron(ctx context.Context, pool *pgxpool.Pool, name string) (cronstore.Cron, error) {
	cron, err := cronstore.New(pool).Get(ctx, name)
	return cron, explainCron(ctx, pool, name, err)
}

// explainCron turns the store's error for an unknown cron into one that suggests names.
func explainCron(ctx context.Context, pool *pgxpool.Pool, name string, err error) error {
	if !errors.Is(err, cronstore.ErrNotFound) {
		return err
	}
	known, err := cronstore.New(pool).Names(ctx)
	if err != nil {
		return err
	}
	return unknown("cron", name, known, "forge cron list")
}

func (a *app) cronHistoryCommand() *cobra.Command {
	var limit int
	var from, to string
	cmd := &cobra.Command{
		Use: "history NAME", Short: "Print the ledger of a cron: each due tick and its verdict", Args: cobra.ExactArgs(1),
		Example: "  forge cron history nightly-report -n 7\n" +
			"  forge cron history nightly-report --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z",
		RunE: listed(a, tickColumns, func(ctx context.Context, pool *pgxpool.Pool, args []string) ([]cronstore.Tick, error) {
			first, err := optionalInstant("--from", from)
			if err != nil {
				return nil, err
			}
			last, err := optionalInstant("--to", to)
			if err != nil {
				return nil, err
			}
			if _, err := findCron(ctx, pool, args[0]); err != nil {
				return nil, err
			}
			return cronstore.New(pool).TicksBetween(ctx, args[0], first, last, limit)
		}),
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many, newest first")
	cmd.Flags().StringVar(&from, "from", "", "only ticks from this instant on, RFC 3339")
	cmd.Flags().StringVar(&to, "to", "", "only ticks before this instant, RFC 3339")
	return cmd
}

// optionalInstant parses a flag that may be empty.
func optionalInstant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return parseInstant(flag, text)
}

var tickColumns = []column[cronstore.Tick]{
	{title: "tick", show: func(t cronstore.Tick) string { return tickStamp(t.Tick) }},
	{title: "verdict", show: func(t cronstore.Tick) string { return string(t.Verdict) }},
	{title: "ticks", show: func(t cronstore.Tick) string { return strconv.FormatInt(t.Count, 10) }},
	{title: "late", show: func(t cronstore.Tick) string { return milliseconds(t.LatenessMS) }},
	{title: "job", show: func(t cronstore.Tick) string { return number(t.JobID) }},
	{title: "term", show: func(t cronstore.Tick) string { return number(t.Term) }}, // none for a tick by hand
	{title: "by", show: func(t cronstore.Tick) string { return dash(t.NodeID) }},
	{title: "reason", show: func(t cronstore.Tick) string { return dash(t.Reason) }},
}
