package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func (a *app) eventsCommand() *cobra.Command {
	var limit int
	var types []string
	var follow bool
	cmd := &cobra.Command{
		Use: "events", Short: "Show the cluster's event log, newest first, or follow it", Args: cobra.NoArgs,
		Example: "  forge events --type leader_elected,leader_lost\n  forge events --follow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				err := eventstore.New(pool).CheckTypes(ctx, types)
				if _, unknown := errors.AsType[*eventstore.UnknownTypeError](err); unknown {
					return usageError(fmt.Errorf("--type %w", err))
				}
				if err != nil {
					return err
				}
				log := postgres.Tail[eventstore.Event]{
					Find: func(ctx context.Context, after int64, limit int) ([]eventstore.Event, error) {
						return eventstore.New(pool).Find(ctx, eventstore.Filter{Types: types, After: after, Limit: limit})
					},
					ID: func(e eventstore.Event) int64 { return e.ID },
				}
				return logged(ctx, a, log, follow, limit, eventColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many; with --follow: how many earlier events to print first")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only events of this type; may be repeated, or a list with commas")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they are added, until interrupted (-o json: one object each)")
	return cmd
}

var eventColumns = []column[eventstore.Event]{
	{title: "at", show: func(e eventstore.Event) string { return stamp(e.At) }},
	{title: "event", show: func(e eventstore.Event) string { return e.Type }},
	{title: "node", show: func(e eventstore.Event) string { return dash(e.NodeID) }},
	{title: "role", named: true, show: func(e eventstore.Event) string { return dash(e.Role) }},
	{title: "term", named: true, show: func(e eventstore.Event) string { return number(e.Term) }},
	{title: "facts", show: func(e eventstore.Event) string { return string(e.Data) }},
}
