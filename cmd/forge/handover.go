package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/leaderstore"
)

// defaultHandoverTimeout is how long a command waits for a successor.
const defaultHandoverTimeout = 30 * time.Second

func (a *app) leaderStepDownCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "step-down ROLE", Short: "Hand a role over to another node and wait until that node leads", Args: cobra.ExactArgs(1),
		Example: "  forge leader step-down scheduler",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.handOver(ctx, pool, args[0], "", timeout)
			})
		},
	}
	timeoutFlag(cmd, &timeout)
	return cmd
}

func (a *app) leaderTransferCommand() *cobra.Command {
	var target string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "transfer ROLE --to NODE", Short: "Hand a role over to a given node, or to another if that node does not take it",
		Args:    cobra.ExactArgs(1),
		Example: "  forge leader transfer scheduler --to node-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if target == "" {
				return usageError(errors.New("--to is missing; want the id of the next leader"))
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.handOver(ctx, pool, args[0], target, timeout)
			})
		},
	}
	cmd.Flags().StringVar(&target, "to", "", "id of the next leader")
	timeoutFlag(cmd, &timeout)
	return cmd
}

func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", defaultHandoverTimeout, "give up waiting after this long (exit code 124)")
}

// handOver requests a hand-over of a role, waits for the successor and prints it.
func (a *app) handOver(ctx context.Context, pool *pgxpool.Pool, role, target string, timeout time.Duration) error {
	changes, err := leaderstore.Follow(ctx, pool)
	if err != nil {
		return err
	}
	defer changes.Close()
	_, successor, err := handover.RequestAndWait(ctx, pool, changes, handover.Params{Role: role, Target: target, By: whoAmI(), Within: timeout})
	if err != nil {
		return refused(err)
	}
	if err := a.showLeader(successor); err != nil {
		return err
	}
	if target != "" && successor.NodeID != target {
		return notFound("%s did not take %s, %s did", target, role, successor.NodeID)
	}
	return nil
}

// refused gives a rejected hand-over, or one that was not taken in time, its exit code.
func refused(err error) error {
	if _, ok := errors.AsType[*handover.RefusedError](err); ok {
		return &codedError{exitNotFound, err}
	}
	if _, ok := errors.AsType[*handover.NotTakenError](err); ok {
		return timeoutError(err)
	}
	return err
}

func (a *app) showLeader(leader leaderstore.Leader) error { return one(a, leader, leaderColumns) }
