package main

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

func (a *app) eventsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "events", Short: "Show the cluster's diary, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				events, err := eventstore.List(ctx, pool, 0, limit)
				if err != nil {
					return err
				}
				return list(a, events, eventColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many")
	return cmd
}

var eventColumns = []column[eventstore.Event]{
	{title: "at", show: func(e eventstore.Event) string { return stamp(e.At) }},
	{title: "event", show: func(e eventstore.Event) string { return e.Type }},
	{title: "node", show: func(e eventstore.Event) string { return dash(e.NodeID) }},
	{title: "role", show: func(e eventstore.Event) string { return dash(e.Role) }},
	{title: "term", show: func(e eventstore.Event) string {
		if e.Term == 0 {
			return "-"
		}
		return strconv.FormatInt(e.Term, 10)
	}},
	{title: "facts", show: func(e eventstore.Event) string { return string(e.Data) }},
}
