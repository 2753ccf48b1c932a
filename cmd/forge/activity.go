package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/activity"
)

func (a *app) activityCommand() *cobra.Command {
	var limit int
	var where whereFlag
	var sort sortFlag
	var follow bool
	cmd := &cobra.Command{
		Use: "activity", Short: "Show events and audit entries in one stream, or follow it", Args: cobra.NoArgs,
		Long: "activity shows what has happened in the cluster and who did it: the entries of the event\n" +
			"log and of the audit log. forge events and forge audit show one of them with all fields.",
		Example: "  forge activity --filter 'type:config_* since:1d'\n" +
			"  forge activity --filter 'until:2026-11-20T02:00:00Z'   # what happened before\n" +
			"  forge activity --filter by:ada --follow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if follow && sort.name == activity.Oldest {
				return usageError(errors.New("--follow prints new entries after the newest ones: it cannot be combined with --sort oldest"))
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				q, store := activity.Query{Where: where.Filter, Oldest: sort.name == activity.Oldest, Limit: limit}, activity.New(pool)
				if follow {
					return store.Follow(ctx, q, func(entries []activity.Entry) error {
						for _, e := range entries {
							if err := printLine(a, e, activityColumns); err != nil {
								return err
							}
						}
						return nil
					})
				}
				entries, err := findActivity(ctx, store, q)
				if err != nil {
					return err
				}
				return list(a, entries, activityColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many; with --follow: how many earlier entries to print first; if the filter has since, all since then")
	where.addTo(cmd.Flags(), activity.Keys, "entries", "type:config_* node:node-2 by:ada since:2h", "operations.md")
	sort.addTo(cmd.Flags(), activity.Orders)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new entries as they are added, until interrupted (-o json: one object each)")
	return cmd
}

// findActivity returns the first entries that match a query, at most its limit.
func findActivity(ctx context.Context, store *activity.Store, q activity.Query) (entries []activity.Entry, err error) {
	for limit := q.Limit; ; {
		page, err := store.Find(ctx, q)
		if err != nil {
			return nil, err
		}
		entries = append(entries, page.Entries...)
		if page.Next.IsZero() || len(entries) >= limit {
			return entries, nil
		}
		q.Before, q.Limit = page.Next, limit-len(entries)
	}
}

var activityColumns = []column[activity.Entry]{
	{title: "at", show: func(e activity.Entry) string { return stamp(e.At) }},
	{title: "what", show: func(e activity.Entry) string { return e.Type }},
	{title: "node", show: func(e activity.Entry) string { return dash(e.NodeID) }},
	{title: "role", named: true, show: func(e activity.Entry) string { return dash(e.Role) }},
	{title: "by", named: true, show: func(e activity.Entry) string { return dash(e.By) }},
	{title: "object", show: func(e activity.Entry) string { return dash(e.Object) }},
	{title: "outcome", show: func(e activity.Entry) string { return dash(e.Outcome) }},
	{title: "more", show: func(e activity.Entry) string {
		if e.Log == activity.Audit {
			return dash(e.Detail)
		}
		return string(e.Data)
	}},
}
