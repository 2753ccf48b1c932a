package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func (a *app) eventsCommand() *cobra.Command {
	var limit int
	var types []string
	var from, to string
	var follow bool
	cmd := &cobra.Command{
		Use: "events", Short: "Show the cluster's event log, newest first, or follow it", Args: cobra.NoArgs,
		Example: "  forge events --type leader_elected,leader_lost\n  forge events --follow\n" +
			"  forge events --from 2026-11-20T02:00:00Z --to 2026-11-20T02:05:00Z",
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := eventsBetween(from, to, follow)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				err := eventstore.New(pool).CheckTypes(ctx, types)
				if _, unknown := errors.AsType[*eventstore.UnknownTypeError](err); unknown {
					return usageError(fmt.Errorf("--type %w", err))
				}
				if err != nil {
					return err
				}
				log := postgres.Tail[eventstore.Event]{
					Read: func(ctx context.Context, of postgres.TailRange) ([]eventstore.Event, error) {
						filter.Types, filter.After, filter.Before, filter.Oldest, filter.Limit = types, of.After, of.Before, of.Oldest, of.Limit
						return eventstore.New(pool).Find(ctx, filter)
					},
					ID: func(e eventstore.Event) int64 { return e.ID }, At: func(e eventstore.Event) time.Time { return e.At },
				}
				if follow && from != "" {
					limit = postgres.TailAll
				}
				return logged(ctx, a, log, follow, limit, eventColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many; with --follow: how many earlier events to print first; with --from too, all since then")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only events of this type; may be repeated, or a list with commas")
	cmd.Flags().StringVar(&from, "from", "", "only events from this instant on, RFC 3339")
	cmd.Flags().StringVar(&to, "to", "", "only events before this instant, RFC 3339")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they are added, until interrupted (-o json: one object each)")
	return cmd
}

// eventsBetween returns the filter of the flags --from and --to.
func eventsBetween(from, to string, follow bool) (filter eventstore.Filter, err error) {
	if follow && to != "" {
		return filter, usageError(errors.New("--to ends the list, and --follow does not end: give one of them"))
	}
	if filter.From, err = optionalInstant("--from", from); err != nil {
		return filter, err
	}
	filter.To, err = optionalInstant("--to", to)
	if err == nil && from != "" && to != "" && !filter.From.Before(filter.To) {
		err = usageError(errors.New("--to must be after --from"))
	}
	return filter, err
}

var eventColumns = []column[eventstore.Event]{
	{title: "at", show: func(e eventstore.Event) string { return stamp(e.At) }},
	{title: "event", show: func(e eventstore.Event) string { return e.Type }},
	{title: "node", show: func(e eventstore.Event) string { return dash(e.NodeID) }},
	{title: "role", named: true, show: func(e eventstore.Event) string { return dash(e.Role) }},
	{title: "term", named: true, show: func(e eventstore.Event) string { return number(e.Term) }},
	{title: "facts", show: func(e eventstore.Event) string { return string(e.Data) }},
}
