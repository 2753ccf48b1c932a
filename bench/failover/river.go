package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	neturl "net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// peerEnv makes this program one client of the peer, on that database.
const (
	peerEnv   = "FAILOVER_PEER_URL"
	peerIDEnv = "FAILOVER_PEER_ID"
)

const peerDatabase = "river_peer"

const peerLeaderSQL = `SELECT leader_id FROM river_leader WHERE expires_at > clock_timestamp() AND leader_id <> $1`

type peerArgs struct{}

func (peerArgs) Kind() string { return "nothing" }

// runPeer works with River's defaults until SIGTERM.
func runPeer(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[peerArgs]) error { return nil }))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID: os.Getenv(peerIDEnv), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

// measurePeer does the trials that River's elector can be put through likewise.
func (b *bench) measurePeer(ctx context.Context) error {
	url, pool, err := b.peerDatabase(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	for range nodes {
		if err := b.startPeer(url); err != nil {
			return err
		}
	}
	for _, f := range faults {
		if !f.gone || !slices.Contains(b.faults, f.name) {
			continue
		}
		for trial := range b.peerTrials {
			if err := b.peerTrial(ctx, pool, f, trial, url); err != nil {
				return fmt.Errorf("peer, %s, trial %d: %w", f.name, trial+1, err)
			}
		}
	}
	b.killAll()
	return nil
}

func (b *bench) peerDatabase(ctx context.Context) (url string, pool *pgxpool.Pool, err error) {
	if _, err := b.pool.Exec(ctx, "CREATE DATABASE "+peerDatabase); err != nil {
		return "", nil, fmt.Errorf("create the peer's database: %w", err)
	}
	address, err := neturl.Parse(b.server.URL())
	if err != nil {
		return "", nil, fmt.Errorf("parse the server's address: %w", err)
	}
	address.Path = "/" + peerDatabase
	url = address.String()
	if pool, err = pgxpool.New(ctx, url); err != nil {
		return "", nil, fmt.Errorf("connect to the peer's database: %w", err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return "", nil, fmt.Errorf("migrate the peer's database: %w", err)
	}
	return url, pool, nil
}

func (b *bench) startPeer(url string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	id := b.name()
	_, err = b.start(id, []string{peerEnv + "=" + url, peerIDEnv + "=" + id}, program)
	return err
}

func (b *bench) peerTrial(ctx context.Context, pool *pgxpool.Pool, f fault, trial int, url string) error {
	id, err := peerLeader(ctx, pool, "")
	if err != nil {
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
	if _, err := peerLeader(ctx, pool, id); err != nil {
		return err
	}
	took := time.Since(struck)
	b.report.peer(f.name, took)
	b.say("river %-10s %2d of %d  %8.1f ms", f.name, trial+1, b.peerTrials, ms(took))
	leader.kill()
	b.forget(id)
	return b.startPeer(url)
}

// peerLeader waits for a leader that is not the one named.
func peerLeader(ctx context.Context, pool *pgxpool.Pool, not string) (id string, err error) {
	err = await(ctx, "a leader of River's", func(ctx context.Context) (bool, error) {
		err := pool.QueryRow(ctx, peerLeaderSQL, not).Scan(&id)
		return err == nil, err
	})
	return id, err
}
