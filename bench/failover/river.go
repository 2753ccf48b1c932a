package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/parts"
)

// peerEnv makes this program one client of the peer, on that database.
const (
	peerEnv   = "FAILOVER_PEER_URL"
	peerIDEnv = "FAILOVER_PEER_ID"
)

// calm is how long the peer rests between two faults, at least.
const calm = 1500 * time.Millisecond

const peerLeaderSQL = `SELECT leader_id FROM river_leader WHERE expires_at > clock_timestamp() AND leader_id <> $1`

type peerArgs struct{}

func (peerArgs) Kind() string { return "nothing" }

// runPeer works with River's defaults.
func runPeer(ctx context.Context, url string) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[peerArgs]) error { return nil }))
	return rig.RunRiver(ctx, url, &river.Config{
		ID: os.Getenv(peerIDEnv), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
	}, nil)
}

// measurePeer does the trials that River's elector can be put through likewise.
func measurePeer(faults []fault) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		return b.withCluster(ctx, faults[0].network, func(c *cluster) error {
			if err := rig.MigrateRiver(ctx, c.pool); err != nil {
				return err
			}
			for i := range nodeCount {
				if err := c.startPeer(c.network(i)); err != nil {
					return err
				}
			}
			for _, f := range faults {
				for trial := range b.peerTrials {
					if err := c.peerTrial(ctx, f, trial); err != nil {
						return fmt.Errorf("%s, trial %d: %w", f.name, trial+1, err)
					}
				}
			}
			return nil
		})
	}
}

func (c *cluster) startPeer(network *parts.Namespace) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	url, err := c.address(network)
	if err != nil {
		return err
	}
	id := c.name("r")
	_, err = c.start(id, network, []string{peerEnv + "=" + url, peerIDEnv + "=" + id}, program)
	return err
}

func (c *cluster) peerTrial(ctx context.Context, f fault, trial int) error {
	id, err := c.peerLeader(ctx, "")
	if err != nil {
		return err
	}
	time.Sleep(calm + rand.N(time.Second))
	leader := c.node(id)
	if leader == nil {
		return fmt.Errorf("%s leads and is none of ours", id)
	}
	struck, err := f.inject(ctx, c, leader, trial)
	if err != nil {
		return err
	}
	if _, err := c.peerLeader(ctx, id); err != nil {
		return err
	}
	took := time.Since(struck)
	c.report.peer(f.name, took)
	c.say("river %-20s %3d  %8.1f ms", f.name, trial+1, rig.Milliseconds(took))
	if f.network {
		if err := leader.network.Heal(ctx); err != nil {
			return err
		}
	}
	leader.Kill()
	c.forget(leader)
	return c.startPeer(leader.network)
}

// peerLeader waits for a leader that is not the one named.
func (c *cluster) peerLeader(ctx context.Context, not string) (id string, err error) {
	err = c.read(ctx, "a leader of River's", peerLeaderSQL, []any{not}, &id)
	return id, err
}
