package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/parts"
)

const terminateSQL = `SELECT pg_terminate_backend(backend_pid) FROM forge_leaders WHERE role = 'scheduler'`

// fault is a way to break the leader.
type fault struct {
	name string
	// inject returns when the leader was broken, or when the database accepted
	// connections again.
	inject func(ctx context.Context, c *cluster, leader *process, trial int) (time.Time, error)
	// heal undoes it before the leader's process is replaced; nil: nothing has to
	// be undone.
	heal func(ctx context.Context, leader *process) error
	// gone says that the leader's process has to be replaced.
	gone bool
	// bound is the longest that docs/leadership.md allows where a lease decides; nil:
	// the machine decides.
	bound func(e config.LeaderElection) time.Duration
	// quick faults are taken over in milliseconds.
	quick bool
	// kinds of the fault come in turn, each for the number of trials.
	kinds []string
	// stops says when the old leader stopped; nil: not asked.
	stops func(struck time.Time, leader *process) (time.Time, error)
	// peer says that River's elector can be put through it likewise.
	peer bool
	// network says that each node needs one of its own.
	network bool
	// own measures the fault when a cluster cannot be used again.
	own func(ctx context.Context, b *bench) error
}

var faults = []fault{
	{name: "term", inject: sends(syscall.SIGTERM), heal: awaitEnd, gone: true, quick: true, peer: true},
	{name: "kill", inject: sends(syscall.SIGKILL), gone: true, quick: true, peer: true},
	{name: "terminate", inject: terminate, quick: true},
	{name: "stop", inject: sends(syscall.SIGSTOP), heal: wake, gone: true, peer: true, stops: atOnce, bound: frozen},
	{name: "partition", inject: cuts((*parts.Namespace).Drop), heal: join, gone: true, peer: true, network: true, stops: byItsLog, bound: cutOff},
	{name: "partition_replies", inject: cuts((*parts.Namespace).DropReplies), heal: join, gone: true, peer: true, network: true, stops: byItsLog, bound: cutOff},
	{name: "pg_restart", inject: restart, kinds: []string{"fast", "immediate", "kill"}},
	{name: "promote", own: measurePromotions},
}

// frozen is the bound of a leader that says nothing more, cutOff of one whose renewal
// under way may still arrive.
func frozen(e config.LeaderElection) time.Duration {
	return e.LeaseDuration.Std() + 500*time.Millisecond
}
func cutOff(e config.LeaderElection) time.Duration { return frozen(e) + e.RefreshInterval.Std() }

func faultNames() []string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.name
	}
	return names
}

func sends(s syscall.Signal) func(context.Context, *cluster, *process, int) (time.Time, error) {
	return func(_ context.Context, _ *cluster, leader *process, _ int) (time.Time, error) {
		now := time.Now()
		return now, leader.Signal(s)
	}
}

func terminate(ctx context.Context, c *cluster, _ *process, _ int) (time.Time, error) {
	now := time.Now()
	if _, err := c.pool.Exec(ctx, terminateSQL); err != nil {
		return now, fmt.Errorf("terminate the leader's session: %w", err)
	}
	return now, nil
}

// cuts loses packets between the leader and the database.
func cuts(packets func(*parts.Namespace, context.Context) error) func(context.Context, *cluster, *process, int) (time.Time, error) {
	return func(ctx context.Context, _ *cluster, leader *process, _ int) (time.Time, error) {
		err := packets(leader.network, ctx)
		return time.Now(), err
	}
}

// restart takes the ways of stopping in turn.
func restart(ctx context.Context, c *cluster, _ *process, trial int) (time.Time, error) {
	modes := []devcluster.StopMode{devcluster.StopFast, devcluster.StopImmediate, devcluster.StopKill}
	if err := c.server.Stop(modes[trial%len(modes)]); err != nil {
		return time.Time{}, fmt.Errorf("stop PostgreSQL: %w", err)
	}
	err := c.startServer(ctx)
	return time.Now(), err
}

// harm is how long a leader that is back has to do some.
const harm = 500 * time.Millisecond

// wake lets a stopped leader go on.
func wake(_ context.Context, leader *process) error {
	err := leader.Signal(syscall.SIGCONT)
	time.Sleep(harm)
	return err
}

// join lets a leader that was cut off be heard again.
func join(ctx context.Context, leader *process) error {
	err := leader.network.Heal(ctx)
	time.Sleep(harm)
	return err
}

func awaitEnd(ctx context.Context, leader *process) error {
	return rig.Await(ctx, leader.ID+" ends", func(context.Context) (bool, error) { return leader.Alive() != nil, nil })
}

func atOnce(struck time.Time, _ *process) (time.Time, error) { return struck, nil }

func byItsLog(_ time.Time, leader *process) (time.Time, error) { return leader.stoppedLeading() }
