package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func (a *app) nodeDrainCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Hand over a node's roles and assign it no more jobs",
		Long: "Hand the roles of a node over to other nodes, keep it from leading again and assign\n" +
			"it no more jobs; its running jobs continue. The node stays drained until forge node\n" +
			"undrain or until it restarts.",
		Args:    cobra.ExactArgs(1),
		Example: "  forge node drain node-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.drain(ctx, pool, args[0], timeout)
			})
		},
	}
	timeoutFlag(cmd, &timeout)
	return cmd
}

func (a *app) nodeUndrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undrain NODE", Short: "Let a drained node lead and run jobs again", Args: cobra.ExactArgs(1),
		Example: "  forge node undrain node-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if err := handover.New(pool, nil).Undrain(ctx, args[0], whoAmI()); err != nil {
					return refused(err)
				}
				return a.showNode(ctx, pool, args[0])
			})
		},
	}
}

// drain drains a node and waits until its roles have new leaders.
func (a *app) drain(ctx context.Context, pool *pgxpool.Pool, id string, timeout time.Duration) error {
	changes, err := leaderstore.Follow(ctx, pool)
	if err != nil {
		return err
	}
	defer changes.Close()
	led, err := handover.New(pool, nil).Drain(ctx, id, whoAmI())
	if err != nil {
		return refused(err)
	}
	if err := handover.AwaitAll(ctx, pool, changes, led, timeout); err != nil {
		return refused(err)
	}
	return a.showNode(ctx, pool, id)
}

func (a *app) showNode(ctx context.Context, pool *pgxpool.Pool, id string) error {
	node, err := nodestore.New(pool).Get(ctx, id)
	if err != nil {
		return err
	}
	return one(a, nodeLine{Node: node}, nodeColumns)
}
