package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/internal/pgembed"
)

// nodes is how many processes a cluster has.
const nodes = 3

// calm is how long a cluster rests between two faults, at least: the deputies
// take their places.
const calm = 1500 * time.Millisecond

// crons fire about ten times a second, so that a leader has work in flight.
const crons = 10

const (
	leaderSQL = `
SELECT node_id, term FROM forge_leaders
WHERE role = 'scheduler' AND node_id IS NOT NULL AND lease_until > clock_timestamp() AND term > $1`

	// Read while the tenure lasts: its end rewrites the row.
	mintedSQL = `
SELECT pg_xact_commit_timestamp(xmin) FROM forge_leader_history
WHERE role = 'scheduler' AND term = $1`

	lastWorkSQL = `
SELECT max(pg_xact_commit_timestamp(xmin)) FROM forge_cron_ticks WHERE term = $1`

	worksSQL = `SELECT EXISTS (SELECT FROM forge_cron_ticks WHERE term = $1)`

	joinedSQL = `SELECT state = 'active' FROM forge_nodes WHERE node_id = $1`

	terminateSQL = `SELECT pg_terminate_backend(backend_pid) FROM forge_leaders WHERE role = 'scheduler'`
)

// fault is a way to break the leader. strike returns when it was broken, or when
// the database accepted connections again.
type fault struct {
	name   string
	strike func(ctx context.Context, b *bench, leader *process, trial int) (time.Time, error)
	// gone says that the leader's process has to be replaced.
	gone bool
}

var faults = []fault{
	{"term", sends(syscall.SIGTERM), true},
	{"kill", sends(syscall.SIGKILL), true},
	{"terminate", terminate, false},
	{"stop", sends(syscall.SIGSTOP), true},
	{"pg_restart", restart, false},
}

func faultNames() []string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.name
	}
	return names
}

func sends(s syscall.Signal) func(context.Context, *bench, *process, int) (time.Time, error) {
	return func(_ context.Context, _ *bench, leader *process, _ int) (time.Time, error) {
		now := time.Now()
		return now, leader.signal(s)
	}
}

func terminate(ctx context.Context, b *bench, _ *process, _ int) (time.Time, error) {
	now := time.Now()
	if _, err := b.pool.Exec(ctx, terminateSQL); err != nil {
		return now, fmt.Errorf("terminate the leader's session: %w", err)
	}
	return now, nil
}

// restart takes the ways of stopping in turn.
func restart(ctx context.Context, b *bench, _ *process, trial int) (time.Time, error) {
	modes := []pgembed.Mode{pgembed.Fast, pgembed.Immediate, pgembed.Kill}
	if err := b.server.Stop(modes[trial%len(modes)]); err != nil {
		return time.Time{}, fmt.Errorf("stop PostgreSQL: %w", err)
	}
	err := b.startServer(ctx)
	return time.Now(), err
}

func (b *bench) measureForge(ctx context.Context) error {
	config := filepath.Join(b.dir, "forge.toml")
	if err := os.WriteFile(config, []byte(forgeConfig()), 0o644); err != nil { //nolint:gosec // no secret
		return fmt.Errorf("write the configuration: %w", err)
	}
	for range nodes {
		if err := b.startNode(ctx, config); err != nil {
			return err
		}
	}
	for _, f := range faults {
		if !slices.Contains(b.faults, f.name) {
			continue
		}
		for trial := range b.trials {
			if err := b.trial(ctx, f, trial, config); err != nil {
				return fmt.Errorf("%s, trial %d: %w", f.name, trial+1, err)
			}
		}
	}
	b.killAll()
	return nil
}

func forgeConfig() string {
	var text strings.Builder
	for i := range crons {
		fmt.Fprintf(&text, `[[crons]]
name = "tick-%d"
schedule = "@every 1s"
jitter = "900ms"
overlap = "allow"
command = ["true"]

`, i)
	}
	return text.String()
}

func (b *bench) startNode(ctx context.Context, config string) error {
	id := b.name()
	listen, err := freeAddress()
	if err != nil {
		return err
	}
	node, err := b.start(id, []string{"FORGE_DATABASE_URL=" + b.server.URL()},
		b.binary, "serve", "--config", config, "--node-id", id, "--listen", listen)
	if err != nil {
		return err
	}
	return await(ctx, id+" joins", func(ctx context.Context) (joined bool, err error) {
		if err := node.alive(); err != nil {
			return false, err
		}
		err = b.pool.QueryRow(ctx, joinedSQL, id).Scan(&joined)
		return joined, err
	})
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}

// trial breaks the leader once and puts the cluster right again.
func (b *bench) trial(ctx context.Context, f fault, trial int, config string) error {
	id, term, err := b.leader(ctx, 0)
	if err != nil {
		return err
	}
	if err := b.awaitRow(ctx, "the leader works", worksSQL, term); err != nil {
		return err
	}
	time.Sleep(calm + rand.N(time.Second))
	leader := b.node(id)
	if leader == nil {
		return fmt.Errorf("%s leads and is none of ours", id)
	}
	struck, err := f.strike(ctx, b, leader, trial)
	if err != nil {
		return err
	}
	_, next, err := b.leader(ctx, term)
	if err != nil {
		return err
	}
	var minted time.Time
	if err := b.pool.QueryRow(ctx, mintedSQL, next).Scan(&minted); err != nil {
		return fmt.Errorf("read when term %d began: %w", next, err)
	}
	if f.gone {
		if err := b.replace(ctx, f, leader, config); err != nil {
			return err
		}
	}
	var last *time.Time // after a stopped leader was woken: what it wrote late counts
	if err := b.pool.QueryRow(ctx, lastWorkSQL, term).Scan(&last); err != nil || last == nil {
		return fmt.Errorf("read the last work of term %d: %w", term, err)
	}
	took, gap := minted.Sub(struck), minted.Sub(*last)
	b.report.forge(f.name, took, gap)
	b.say("forge %-10s %2d of %d  %8.1f ms, gap %8.1f ms", f.name, trial+1, b.trials, ms(took), ms(gap))
	return nil
}

// replace ends the broken leader, if it has not ended, and starts another. One
// that was stopped is woken first and given the time to do harm.
func (b *bench) replace(ctx context.Context, f fault, leader *process, config string) error {
	if f.name == "stop" {
		if err := leader.signal(syscall.SIGCONT); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
	if f.name == "term" {
		select {
		case <-leader.done:
		case <-time.After(patience):
			return fmt.Errorf("%s does not stop", leader.id)
		}
	}
	leader.kill()
	b.forget(leader.id)
	return b.startNode(ctx, config)
}

// leader waits for a leader above a term.
func (b *bench) leader(ctx context.Context, above int64) (id string, term int64, err error) {
	err = await(ctx, fmt.Sprintf("a leader above term %d", above), func(ctx context.Context) (bool, error) {
		err := b.pool.QueryRow(ctx, leaderSQL, above).Scan(&id, &term)
		return err == nil, err
	})
	return id, term, err
}
