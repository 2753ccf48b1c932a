package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// breakdownFlags are the flags of forge metrics.
type breakdownFlags struct {
	by, since, from, to, sort string
	limit                     int

	width        time.Duration // of since
	begins, ends time.Time     // from and to; zero if they are not given
}

func (a *app) metricsCommand() *cobra.Command {
	var f breakdownFlags
	cmd := &cobra.Command{
		Use: "metrics", Short: "Divide the attempts of a time by cron, kind, node or queue", Args: cobra.NoArgs,
		Long: "metrics shows the crons, kinds, nodes or queues with the most attempts: how many finished and\n" +
			"failed, and the percentiles p50, p95 and p99 of how long jobs waited and attempts took. The\n" +
			"row _other is for all others. The percentiles are estimates from histograms.",
		Example: "  forge metrics --by kind\n" +
			"  forge metrics --by cron --since 24h --sort failures\n" +
			"  forge metrics --by node --from 2026-11-20T00:00:00Z --to 2026-11-20T06:00:00Z -o json",
		PreRunE: f.parse,
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, _ []string) error {
			now, err := postgres.Now(ctx, pool)
			if err != nil {
				return err
			}
			from, to, err := f.stretch(now)
			if err != nil {
				return err
			}
			found, err := aggregator.NewStore(pool).Breakdown(ctx, f.by, from, to, f.limit, f.sort)
			if err != nil {
				return err
			}
			if !a.tabular() {
				return a.document(found)
			}
			return list(a, found.Items, breakdownColumns(f.by))
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.by, "by", "", "what to divide by: "+strings.Join(metrics.Dimensions, ", "))
	flags.StringVar(&f.since, "since", "1h", "the time until now or --to, such as 24h")
	flags.StringVar(&f.from, "from", "", "from this instant (RFC 3339) instead of --since")
	flags.StringVar(&f.to, "to", "", "up to this instant (RFC 3339), by default now")
	flags.StringVar(&f.sort, "sort", aggregator.BreakdownOrders[0], "the order: "+strings.Join(aggregator.BreakdownOrders, ", ")+"; wait and took by their p99")
	flags.IntVarP(&f.limit, "limit", "n", aggregator.UsualKeys, fmt.Sprintf("at most this many, up to %d", aggregator.MostKeys))
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(metrics.Dimensions, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(aggregator.BreakdownOrders, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// parse checks the flags.
func (f *breakdownFlags) parse(*cobra.Command, []string) error {
	switch {
	case !slices.Contains(metrics.Dimensions, f.by):
		return usageError(fmt.Errorf("--by: found %q, want one of %s", f.by, strings.Join(metrics.Dimensions, ", ")))
	case !slices.Contains(aggregator.BreakdownOrders, f.sort):
		return usageError(fmt.Errorf("--sort: found %q, want one of %s", f.sort, strings.Join(aggregator.BreakdownOrders, ", ")))
	case f.limit < 1 || f.limit > aggregator.MostKeys:
		return usageError(fmt.Errorf("--limit: found %d, want 1 to %d", f.limit, aggregator.MostKeys))
	}
	width, err := config.ParseDuration(f.since)
	if err != nil || width <= 0 {
		return usageError(fmt.Errorf("--since: found %q, want a duration such as 24h", f.since))
	}
	f.width = width.Std()
	if f.to != "" {
		if f.ends, err = parseInstant("--to", f.to); err != nil {
			return err
		}
	}
	if f.from != "" {
		f.begins, err = parseInstant("--from", f.from)
	}
	return err
}

// stretch returns the time of the flags.
func (f *breakdownFlags) stretch(now time.Time) (from, to time.Time, err error) {
	from, to = f.begins, f.ends
	if to.IsZero() {
		to = now
	}
	if from.IsZero() {
		from = to.Add(-f.width)
	}
	if !from.Before(to) {
		return from, to, usageError(errors.New("--from must be before --to"))
	}
	return from, to, nil
}

func breakdownColumns(by string) []column[aggregator.BreakdownItem] {
	columns := []column[aggregator.BreakdownItem]{
		{title: by, show: func(i aggregator.BreakdownItem) string { return i.Key }},
		{title: "attempts", show: func(i aggregator.BreakdownItem) string { return strconv.FormatInt(i.Attempts, 10) }},
		{title: "failures", show: func(i aggregator.BreakdownItem) string { return strconv.FormatInt(i.Failures, 10) }},
	}
	for _, p := range []struct {
		name string
		of   func(aggregator.BreakdownItem) aggregator.Percentiles
	}{
		{"wait", func(i aggregator.BreakdownItem) aggregator.Percentiles { return i.Wait }},
		{"took", func(i aggregator.BreakdownItem) aggregator.Percentiles { return i.Took }},
	} {
		columns = append(columns,
			column[aggregator.BreakdownItem]{title: p.name + " p50", show: func(i aggregator.BreakdownItem) string { return seconds(p.of(i).P50) }},
			column[aggregator.BreakdownItem]{title: p.name + " p95", show: func(i aggregator.BreakdownItem) string { return seconds(p.of(i).P95) }},
			column[aggregator.BreakdownItem]{title: p.name + " p99", show: func(i aggregator.BreakdownItem) string { return seconds(p.of(i).P99) }})
	}
	return columns
}

// seconds formats a number of seconds with its unit; nil means that there is none.
func seconds(s *float64) string {
	if s == nil {
		return "-"
	}
	return span(time.Duration(*s * float64(time.Second)))
}
