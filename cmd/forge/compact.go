package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/compactor"
)

func (a *app) compactCommand() *cobra.Command {
	return group("compact", "Show retention and compaction", a.watchable(a.compactStatusCommand()))
}

func (a *app) compactStatusCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "status", Short: "Show the log compactor's last passes, when the next is due, and how large the tables are", Args: cobra.NoArgs,
		Example: "  forge compact status -n 1",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, _ []string) error {
			status, err := compactor.NewStore(pool).Status(ctx, limit)
			if err != nil {
				return err
			}
			return a.printCompaction(status)
		}),
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 5, "at most this many passes")
	return cmd
}

func (a *app) printCompaction(status compactor.Status) error {
	if !a.tabular() {
		return a.document(status)
	}
	if len(status.Passes) == 0 {
		a.note("no pass has run yet")
	}
	if err := list(a, status.Passes, passColumns); err != nil {
		return err
	}
	a.printf("\n")
	return list(a, status.Tables, tableColumns)
}

var passColumns = []column[compactor.Pass]{
	{title: "ended", show: func(p compactor.Pass) string { return stamp(p.EndedAt) }},
	{title: "took", show: func(p compactor.Pass) string { return span(p.EndedAt.Sub(p.StartedAt)) }},
	{title: "node", show: func(p compactor.Pass) string { return p.NodeID }},
	{title: "term", wide: true, show: func(p compactor.Pass) string { return humanize.Comma(p.Term) }},
	{title: "removed", show: func(p compactor.Pass) string {
		var removed []string
		for _, what := range slices.Sorted(maps.Keys(p.Removed)) {
			removed = append(removed, fmt.Sprintf("%s %s", humanize.Comma(p.Removed[what]), what))
		}
		return dash(strings.Join(removed, ", "))
	}},
	{title: "merged", show: func(p compactor.Pass) string {
		if p.Chunks == 0 {
			return "-"
		}
		return fmt.Sprintf("%s chunks, %s to %s", humanize.Comma(p.Chunks), humanBytes(p.TextBytes), humanBytes(p.PackBytes))
	}},
	{title: "failed", show: func(p compactor.Pass) string {
		return dash(strings.Join(slices.Sorted(maps.Keys(p.Failed)), ", "))
	}},
	{title: "next due", show: func(p compactor.Pass) string { return stamp(p.NextAt) }},
}

var tableColumns = []column[compactor.Table]{
	{title: "table", show: func(t compactor.Table) string { return t.Name }},
	{title: "size", show: func(t compactor.Table) string { return humanBytes(t.Bytes) }},
	{title: "indexes", show: func(t compactor.Table) string { return humanBytes(t.IndexBytes) }},
	{title: "rows (estimate)", show: func(t compactor.Table) string { return humanize.Comma(t.Rows) }},
	{title: "partitions", show: func(t compactor.Table) string {
		if t.Partitions == 0 {
			return "-"
		}
		return humanize.Comma(t.Partitions)
	}},
	{title: "dead rows", wide: true, show: func(t compactor.Table) string { return humanize.Comma(t.DeadRows) }},
}

func humanBytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
