package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
			if follow && a.format == "yaml" {
				return usageError(errNoYAMLStream)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if err := requireTypes(ctx, pool, types); err != nil {
					return err
				}
				filter := eventstore.Filter{Types: types, Limit: limit}
				if follow {
					return a.followEvents(ctx, pool, filter)
				}
				events, err := eventstore.New(pool).Find(ctx, filter)
				if err != nil {
					return err
				}
				return list(a, events, eventColumns)
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 30, "at most this many; with --follow: how many earlier events to print first")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only events of this type; may be repeated, or a list with commas")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new events as they are added, until interrupted (-o json: one object each)")
	return cmd
}

// requireTypes rejects an unknown event type.
func requireTypes(ctx context.Context, pool *pgxpool.Pool, types []string) error {
	err := eventstore.New(pool).CheckTypes(ctx, types)
	if _, unknown := errors.AsType[*eventstore.UnknownTypeError](err); unknown {
		return usageError(fmt.Errorf("--type %w", err))
	}
	return err
}

// followEvents prints events as they are committed.
func (a *app) followEvents(ctx context.Context, pool *pgxpool.Pool, filter eventstore.Filter) error {
	return postgres.Tail[eventstore.Event]{
		Find: func(ctx context.Context, after int64, limit int) ([]eventstore.Event, error) {
			filter.After, filter.Limit = after, limit
			return eventstore.New(pool).Find(ctx, filter)
		},
		ID: func(e eventstore.Event) int64 { return e.ID }, Emit: eachLine(a.printEvent),
	}.Run(ctx, 0, filter.Limit)
}

func (a *app) printEvent(event eventstore.Event) error {
	if a.format == "json" {
		return json.NewEncoder(a.out).Encode(event)
	}
	var line strings.Builder
	for i, column := range eventColumns {
		if value := column.show(event); value != "-" && value != "{}" {
			switch column.title {
			case "role", "term":
				value = column.title + " " + value
			}
			if i > 0 {
				line.WriteString("  ")
			}
			line.WriteString(value)
		}
	}
	_, err := fmt.Fprintln(a.out, line.String())
	return err
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
