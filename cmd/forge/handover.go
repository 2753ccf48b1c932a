package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// defaultHandoverTimeout is how long a command waits for a successor.
	defaultHandoverTimeout = 30 * time.Second
	// handoverLook is how often it looks when nothing tells it to.
	handoverLook = 250 * time.Millisecond
	// silentAfter is when a node without a heartbeat is no candidate.
	silentAfter = 10 * time.Second
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
	leader, err := currentLeader(ctx, pool, role)
	if err != nil {
		return err
	}
	if leader.NodeID == target {
		return a.showLeader(leader)
	}
	if err := requireSuccessor(ctx, pool, leader, target); err != nil {
		return err
	}
	changes, err := leaderstore.Follow(ctx, pool)
	if err != nil {
		return err
	}
	defer changes.Close()
	err = leaderstore.Request(ctx, pool, role, leader.Term, target)
	if err != nil && !errors.Is(err, leaderstore.ErrTermOver) { // then it has just been handed over
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	successor, err := awaitSuccessor(waiting, pool, changes, leader)
	if err != nil {
		return errors.Join(a.gaveUp(ctx, err, role), leaderstore.Withdraw(context.WithoutCancel(ctx), pool, role, leader.Term))
	}
	if err := a.showLeader(successor); err != nil {
		return err
	}
	if target != "" && successor.NodeID != target {
		return notFound("%s did not take %s, %s did", target, role, successor.NodeID)
	}
	return nil
}

func (a *app) showLeader(leader leaderstore.Leader) error { return one(a, leader, leaderColumns) }

// gaveUp tells a wait that took too long from one that was interrupted.
func (*app) gaveUp(ctx context.Context, err error, what string) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return timeoutError(fmt.Errorf("nobody has taken %s over in time", what))
	}
	return err
}

func currentLeader(ctx context.Context, pool *pgxpool.Pool, role string) (leaderstore.Leader, error) {
	leaders, err := leaderstore.Leaders(ctx, pool)
	if err != nil {
		return leaderstore.Leader{}, err
	}
	known := make([]string, len(leaders))
	for i, leader := range leaders {
		if known[i] = leader.Role; leader.Role != role {
			continue
		}
		if !leader.Leads() {
			return leaderstore.Leader{}, notFound("nobody leads %s now", role)
		}
		return leader, nil
	}
	return leaderstore.Leader{}, notFound("no role %q; want %s", role, strings.Join(known, ", "))
}

// requireSuccessor makes sure that the target, or any other node if there is
// none, can stand for the role, as far as the nodes tell.
func requireSuccessor(ctx context.Context, pool *pgxpool.Pool, leader leaderstore.Leader, target string) error {
	nodes, err := nodestore.List(ctx, pool)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(nodes, func(n nodestore.Node) bool { return n.Incarnation == leader.Incarnation }) {
		return nil // a process of forge run: nobody lists those that stand by
	}
	if target == "" {
		for _, node := range nodes {
			if node.NodeID != leader.NodeID && cannotStand(node, leader.Role) == "" {
				return nil
			}
		}
		return notFound("no other node can lead %s; see forge node list -o wide", leader.Role)
	}
	for _, node := range nodes {
		if node.NodeID != target {
			continue
		}
		if why := cannotStand(node, leader.Role); why != "" {
			return notFound("%s cannot lead %s: %s", target, leader.Role, why)
		}
		return nil
	}
	return notFound("no node %q; see forge node list", target)
}

// cannotStand says why a node is no candidate for a role, or nothing.
func cannotStand(node nodestore.Node, role string) string {
	switch {
	case node.State != nodestore.Active || !node.FencedAt.IsZero():
		return "it is " + node.State
	case !slices.Contains(node.Roles, role):
		return "its node.roles do not list it"
	case node.Now.Sub(node.LastHeartbeatAt) > silentAfter:
		return "nothing was heard from it for " + span(node.Now.Sub(node.LastHeartbeatAt))
	}
	return ""
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
