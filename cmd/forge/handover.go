package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// defaultHandoverTimeout is how long a command waits for a successor.
	defaultHandoverTimeout = 30 * time.Second
	// handoverLook is how often it looks when nothing tells it to.
	handoverLook = 250 * time.Millisecond
)

func (a *app) leaderStepDownCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "step-down ROLE", Short: "Hand a role over to any other node and wait until it leads", Args: cobra.ExactArgs(1),
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
		Use: "transfer ROLE --to NODE", Short: "Hand a role over to a node, or to another if that one does not take it",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if target == "" {
				return usageError(errors.New("--to is missing; want the id of the node that shall lead"))
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.handOver(ctx, pool, args[0], target, timeout)
			})
		},
	}
	cmd.Flags().StringVar(&target, "to", "", "id of the node that shall lead")
	timeoutFlag(cmd, &timeout)
	return cmd
}

func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", defaultHandoverTimeout, "give up waiting after this long (exit code 124)")
}

// handOver asks the leader of a role to hand it over, waits for the successor
// and prints it.
func (a *app) handOver(ctx context.Context, pool *pgxpool.Pool, role, target string, timeout time.Duration) error {
	_, successor, err := a.replace(ctx, pool, role, target, timeout)
	if err != nil {
		return err
	}
	if err := a.showLeader(successor); err != nil {
		return err
	}
	if target != "" && successor.NodeID != target {
		return notFound("%s did not take %s, %s did", target, role, successor.NodeID)
	}
	return nil
}

// replace has the leader of a role hand it over, and returns it and the one that
// takes the role: itself, if it is the target.
func (a *app) replace(ctx context.Context, pool *pgxpool.Pool, role, target string, timeout time.Duration) (leader, successor leaderstore.Leader, err error) {
	changes, err := leaderstore.Follow(ctx, pool)
	if err != nil {
		return leader, successor, err
	}
	defer changes.Close()
	leader, asked, err := handover.Ask(ctx, pool, role, target, whoAmI())
	if err != nil {
		return leader, successor, refused(err)
	}
	if !asked {
		return leader, leader, nil
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	successor, err = awaitSuccessor(waiting, pool, changes, leader)
	if err != nil {
		err = errors.Join(a.gaveUp(ctx, err, role), leaderstore.Withdraw(context.WithoutCancel(ctx), pool, role, leader.Term))
	}
	return leader, successor, err
}

// refused gives what cannot be its exit code.
func refused(err error) error {
	if _, ok := errors.AsType[*handover.RefusedError](err); ok {
		return &codedError{exitNotFound, err}
	}
	return err
}

func (a *app) showLeader(leader leaderstore.Leader) error { return one(a, leader, leaderColumns) }

// gaveUp tells a wait that took too long from one that was interrupted.
func (*app) gaveUp(ctx context.Context, err error, what string) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return timeoutError(fmt.Errorf("nobody has taken %s over in time", what))
	}
	return err
}

// awaitSuccessor waits for a later term of another process.
func awaitSuccessor(ctx context.Context, pool *pgxpool.Pool, changes *leaderstore.Changes, old leaderstore.Leader) (leaderstore.Leader, error) {
	for {
		leaders, err := leaderstore.Leaders(ctx, pool)
		if err != nil {
			return leaderstore.Leader{}, err
		}
		for _, now := range leaders {
			if now.Role == old.Role && now.Term > old.Term && now.Leads() && now.Incarnation != old.Incarnation {
				return now, nil
			}
		}
		if err := changes.Wait(ctx, handoverLook); err != nil {
			return leaderstore.Leader{}, err
		}
	}
}
