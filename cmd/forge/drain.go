package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func (a *app) nodeDrainCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Hand a node's roles over and give it no more jobs",
		Long: "Hand the roles of a node over to others, keep it from standing again and offer it\n" +
			"no more jobs; those that it runs go on. It stays so until forge node undrain or\n" +
			"until the node starts anew.",
		Args: cobra.ExactArgs(1),
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
		Use: "undrain NODE", Short: "Let a drained node stand and work again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				node, err := liveNode(ctx, pool, args[0])
				if err != nil {
					return err
				}
				if err := nodestore.SetState(ctx, pool, node.NodeID, node.Incarnation, nodestore.Active); err != nil {
					return err
				}
				return a.showNode(ctx, pool, node.NodeID)
			})
		},
	}
}

// drain asks for the roles and closes the node in one transaction, so that
// neither happens alone, and waits for the successors.
func (a *app) drain(ctx context.Context, pool *pgxpool.Pool, id string, timeout time.Duration) error {
	node, err := liveNode(ctx, pool, id)
	if err != nil {
		return err
	}
	led, err := ledBy(ctx, pool, node.Incarnation)
	if err != nil {
		return err
	}
	for _, leader := range led {
		if err := requireSuccessor(ctx, pool, leader, ""); err != nil {
			return err
		}
	}
	changes, err := leaderstore.Follow(ctx, pool)
	if err != nil {
		return err
	}
	defer changes.Close()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, leader := range led {
			err := leaderstore.Request(ctx, tx, leader.Role, leader.Term, "")
			if err != nil && !errors.Is(err, leaderstore.ErrTermOver) {
				return err
			}
		}
		return nodestore.SetState(ctx, tx, node.NodeID, node.Incarnation, nodestore.Draining)
	})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, leader := range led {
		if _, err := awaitSuccessor(waiting, pool, changes, leader); err != nil {
			return a.gaveUp(ctx, err, leader.Role)
		}
	}
	return a.showNode(ctx, pool, id)
}

// liveNode returns a node that can be drained and undrained.
func liveNode(ctx context.Context, pool *pgxpool.Pool, id string) (nodestore.Node, error) {
	node, err := nodestore.Get(ctx, pool, id)
	switch {
	case errors.Is(err, nodestore.ErrNotFound):
		return node, notFound("no node %q; see forge node list", id)
	case err != nil:
		return node, err
	case node.State == nodestore.Left || node.State == nodestore.Dead || !node.FencedAt.IsZero():
		return node, notFound("node %s is %s", id, node.State)
	}
	return node, nil
}

func ledBy(ctx context.Context, pool *pgxpool.Pool, incarnation string) ([]leaderstore.Leader, error) {
	leaders, err := leaderstore.Leaders(ctx, pool)
	if err != nil {
		return nil, err
	}
	var led []leaderstore.Leader
	for _, leader := range leaders {
		if leader.Leads() && leader.Incarnation == incarnation {
			led = append(led, leader)
		}
	}
	return led, nil
}

func (a *app) showNode(ctx context.Context, pool *pgxpool.Pool, id string) error {
	node, err := nodestore.Get(ctx, pool, id)
	if err != nil {
		return err
	}
	return one(a, nodeLine{Node: node}, nodeColumns)
}
