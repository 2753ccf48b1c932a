package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// handoverCommand returns a command that requests hand-overs and waits for the successors. Its work
// gets how long it may wait.
func (a *app) handoverCommand(cmd *cobra.Command, work func(ctx context.Context, pool *pgxpool.Pool, args []string, within time.Duration) error) *cobra.Command {
	var timeout time.Duration
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "give up waiting after this long (exit code 124)")
	cmd.RunE = a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
		return refused(work(ctx, pool, args, timeout))
	})
	return cmd
}

// roleOps returns the hand-overs of roles.
func (a *app) roleOps(pool *pgxpool.Pool) *handover.Ops {
	return handover.New(pool, func() (<-chan struct{}, func()) { return a.leaderChanges(pool) })
}

// leaderChanges subscribes to changes of leadership. They are polled if the nodes poll them.
func (a *app) leaderChanges(pool *pgxpool.Pool) (changes <-chan struct{}, unsubscribe func()) {
	notifier := postgres.NewNotifier(pool, slog.New(slog.DiscardHandler))
	if election := a.cfg.Cluster.LeaderElection; election.ByLease() {
		notifier = postgres.NewPollingNotifier(pool, election.CheckInterval.Std(), slog.New(slog.DiscardHandler))
	}
	return notifier.Changes(wire.Channel(a.cfg.Database.Schema, wire.LeaderChannel))
}

// refused gives a rejected hand-over, or one that was not taken in time, its exit code.
func refused(err error) error {
	if _, ok := errors.AsType[*handover.RefusedError](err); ok {
		return &codedError{exitNotFound, err}
	}
	if _, ok := errors.AsType[*handover.NotTakenError](err); ok {
		return timeoutError(err)
	}
	if _, ok := errors.AsType[*handover.BusyError](err); ok {
		return timeoutError(err)
	}
	return err
}

func (a *app) leaderStepDownCommand() *cobra.Command {
	return a.handoverCommand(&cobra.Command{
		Use: "step-down ROLE", Short: "Hand a role over to another node and wait until that node leads", Args: cobra.ExactArgs(1),
		Example: "  forge leader step-down scheduler",
	}, func(ctx context.Context, pool *pgxpool.Pool, args []string, within time.Duration) error {
		return a.handOver(ctx, a.roleOps(pool), handover.Params{Role: args[0], By: whoAmI(), Within: within})
	})
}

func (a *app) leaderTransferCommand() *cobra.Command {
	var target string
	cmd := a.handoverCommand(&cobra.Command{
		Use: "transfer ROLE --to NODE", Short: "Hand a role over to a given node, or to another if that node does not take it",
		Args:    cobra.ExactArgs(1),
		Example: "  forge leader transfer scheduler --to node-2",
		PreRunE: func(*cobra.Command, []string) error {
			if target == "" {
				return usageError(errors.New("--to is missing; want the id of the next leader"))
			}
			return nil
		},
	}, func(ctx context.Context, pool *pgxpool.Pool, args []string, within time.Duration) error {
		return a.handOver(ctx, a.roleOps(pool), handover.Params{Role: args[0], Target: target, By: whoAmI(), Within: within})
	})
	cmd.Flags().StringVar(&target, "to", "", "id of the next leader")
	return cmd
}

// handOver requests a hand-over of a role, waits for the successor and prints it.
func (a *app) handOver(ctx context.Context, ops *handover.Ops, wanted handover.Params) error {
	_, successor, err := ops.RequestAndWait(ctx, wanted)
	if err != nil {
		return err
	}
	if err := one(a, successor, leaderColumns); err != nil {
		return err
	}
	if wanted.Target != "" && successor.NodeID != wanted.Target {
		return notFound("%s did not take %s, %s did", wanted.Target, wanted.Role, successor.NodeID)
	}
	return nil
}

func (a *app) drillCommand() *cobra.Command {
	return a.handoverCommand(&cobra.Command{
		Use: "drill [leader] ROLE", Short: "Hand a role over on the running cluster, and measure and record it",
		Long: "Asks the leader to stop its work and to hand the role over, as forge leader step-down does.\n" +
			"The times are printed and recorded in the event log as leader_drilled; forge leader history\n" +
			"marks the tenure.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) == 2 && args[0] == "leader" {
				return nil
			}
			return errors.New("want the role to hand over: forge drill leader ROLE")
		},
		Example: "  forge drill scheduler",
	}, func(ctx context.Context, pool *pgxpool.Pool, args []string, within time.Duration) error {
		done, err := a.roleOps(pool).Drill(ctx, handover.Params{Role: args[len(args)-1], By: whoAmI(), Within: within})
		if err != nil {
			return err
		}
		return one(a, done, drillColumns)
	})
}

var drillColumns = []column[handover.DrillResult]{
	{title: "role", show: func(d handover.DrillResult) string { return d.Role }},
	{title: "from", show: func(d handover.DrillResult) string { return d.From }},
	{title: "to", show: func(d handover.DrillResult) string { return d.To }},
	{title: "term", show: func(d handover.DrillResult) string { return strconv.FormatInt(d.ToTerm, 10) }},
	{title: "stopped after", show: func(d handover.DrillResult) string { return milliseconds(d.StoppedMS) }},
	{title: "gap", show: func(d handover.DrillResult) string { return milliseconds(d.GapMS) }},
	{title: "took", show: func(d handover.DrillResult) string { return milliseconds(d.TookMS) }},
	{title: "ended", show: func(d handover.DrillResult) string { return d.EndReason }},
	{title: "requested", wide: true, show: func(d handover.DrillResult) string { return stamp(d.AskedAt) }},
}

func (a *app) nodeDrainCommand() *cobra.Command {
	var wait bool
	cmd := a.handoverCommand(&cobra.Command{
		Use: "drain NODE", Short: "Hand over a node's roles and assign it no more jobs",
		Long: "Hand the roles of a node over to other nodes, keep it from leading again and assign\n" +
			"it no more jobs; its running jobs continue. The node stays drained until forge node\n" +
			"undrain or until it restarts. With --wait, wait until the node runs no job any more,\n" +
			"so that stopping it interrupts nothing.",
		Args:    cobra.ExactArgs(1),
		Example: "  forge node drain node-2 --wait --timeout 10m",
	}, func(ctx context.Context, pool *pgxpool.Pool, args []string, within time.Duration) error {
		ops, began := a.roleOps(pool), time.Now()
		led, err := ops.Drain(ctx, args[0], whoAmI())
		if err != nil {
			return err
		}
		if err := ops.AwaitAll(ctx, led, within); err != nil {
			return err
		}
		if wait {
			if err := ops.AwaitStoppable(ctx, args[0], within-time.Since(began), a.progress()); err != nil {
				return err
			}
		}
		return a.showNode(ctx, pool, args[0])
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the node is safe to stop: it leads no role and runs no job")
	return cmd
}

// progress returns a function that prints lines to standard error if it is a terminal.
func (a *app) progress() func(line string) {
	file, ok := a.err.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(string) {}
	}
	return func(line string) { a.note(line) }
}

func (a *app) nodeUndrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undrain NODE", Short: "Let a drained node lead and run jobs again", Args: cobra.ExactArgs(1),
		Example: "  forge node undrain node-2",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			if err := a.roleOps(pool).Undrain(ctx, args[0], whoAmI()); err != nil {
				return refused(err)
			}
			return a.showNode(ctx, pool, args[0])
		}),
	}
}
