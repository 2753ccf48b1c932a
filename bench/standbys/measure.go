package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/migrations"
)

const (
	maxNodes     = 500
	profileNodes = 3
	// sharedConns are for what nodes do through their pools: heartbeats and
	// look-arounds.
	sharedConns = 8
)

const (
	resetSQL = `SELECT pg_stat_statements_reset()`

	// What the bench itself asks is not counted.
	statementsSQL = `
SELECT query, calls FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND query !~ 'pg_stat_statements|pg_stat_activity'`

	backendsSQL = `
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'forge:%'`
)

// kinds of statements, by a part of their text. The first that fits counts.
var kinds = []struct{ name, text string }{
	{"checks", "pg_try_advisory_lock(id)"},
	{"renewals", "LEFT JOIN forge_leader_requests r ON r.role = held.role"},
	{"watches", "forge_await_session_end"},
	{"look-arounds", "FROM forge_leaders\n"},
	{"look-arounds", "FROM forge_nodes"},
	{"heartbeats", "UPDATE forge_nodes"},
}

// load is what a server was asked in a while.
type load struct {
	perSecond map[string]float64 // statements, by kind
	total     float64
	cpu       float64 // percent of one processor
}

// row is a measured cluster.
type row struct {
	profile

	nodes    int
	backends int
	election load
	beating  load // with heartbeats
}

type bench struct {
	options

	rig  *rig.Rig
	idle float64 // percent of one processor that an idle server takes
	say  func(format string, args ...any)
}

func newBench(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	b := &bench{options: o, say: rig.Progress(progress)}
	var err error
	b.rig, err = rig.New(ctx, "forge-standbys", map[string]string{
		"max_connections": "700", "shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_utility": "off",
	})
	if err != nil {
		return nil, err
	}
	b.say("measuring the idle server")
	b.idle, err = b.processor(ctx)
	if err != nil {
		return nil, errors.Join(err, b.rig.Close())
	}
	return b, nil
}

// processor is the server's use of one processor for the length of a measurement, in
// percent.
func (b *bench) processor(ctx context.Context) (float64, error) {
	began := time.Now()
	before, err := rig.FamilyCPU(b.rig.Server.PID())
	if err != nil {
		return 0, err
	}
	if err := rig.SleepUntil(ctx, began.Add(b.length)); err != nil {
		return 0, err
	}
	after, err := rig.FamilyCPU(b.rig.Server.PID())
	return 100 * (after - before).Seconds() / time.Since(began).Seconds(), err
}

// measure runs a cluster on a database of its own.
func (b *bench) measure(ctx context.Context, size int, p profile) (r row, err error) {
	url, pool, err := b.database(ctx)
	if err != nil {
		return row{}, err
	}
	defer pool.Close()
	nodes := make([]*node, size)
	for i := range nodes {
		nodes[i] = newNode(i, p, url, pool)
		if err := nodestore.New(pool).Register(ctx, nodes[i].self, nodestore.Policy{}); err != nil {
			return row{}, err
		}
	}
	stop := start(ctx, nodes, (*node).run)
	defer func() { err = errors.Join(err, stop()) }()
	b.say("%d nodes, profile %s", size, p.name)
	if err := b.settle(ctx, pool, size); err != nil {
		return row{}, err
	}
	r = row{profile: p, nodes: size}
	if r.election, err = b.load(ctx, pool); err != nil {
		return row{}, err
	}
	if err := pool.QueryRow(ctx, backendsSQL).Scan(&r.backends); err != nil {
		return row{}, fmt.Errorf("count the server processes: %w", err)
	}
	if b.heartbeats {
		silence := start(ctx, nodes, (*node).beat)
		r.beating, err = b.load(ctx, pool)
		err = errors.Join(err, silence())
	}
	return r, err
}

func (b *bench) database(ctx context.Context) (string, *pgxpool.Pool, error) {
	url, small, err := b.rig.Database(ctx)
	if err != nil {
		return "", nil, err
	}
	small.Close()
	config := small.Config()
	config.MaxConns = sharedConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return "", nil, fmt.Errorf("connect: %w", err)
	}
	err = migrations.New(pool, slog.New(slog.DiscardHandler)).Up(ctx)
	if err == nil {
		_, err = pool.Exec(ctx, `CREATE EXTENSION pg_stat_statements`)
	}
	if err != nil {
		pool.Close()
		return "", nil, err
	}
	return url, pool, nil
}

// settle waits until every node has its session and every role its leader, and then
// until the deputies have taken their places.
func (b *bench) settle(ctx context.Context, pool *pgxpool.Pool, size int) error {
	err := rig.Await(ctx, "all sessions and leaders", func(ctx context.Context) (bool, error) {
		var sessions int
		if err := pool.QueryRow(ctx, backendsSQL).Scan(&sessions); err != nil {
			return false, err
		}
		led, err := rig.Led(ctx, pool)
		return led && sessions >= size, err
	})
	if err != nil {
		return err
	}
	return rig.SleepUntil(ctx, time.Now().Add(3*time.Second))
}

// load counts for a while.
func (b *bench) load(ctx context.Context, pool *pgxpool.Pool) (load, error) {
	if _, err := pool.Exec(ctx, resetSQL); err != nil {
		return load{}, fmt.Errorf("begin to count: %w", err)
	}
	began := time.Now()
	cpu, err := b.processor(ctx)
	if err != nil {
		return load{}, err
	}
	rows, err := pool.Query(ctx, statementsSQL)
	if err != nil {
		return load{}, fmt.Errorf("count the statements: %w", err)
	}
	l := load{perSecond: map[string]float64{}, cpu: max(cpu-b.idle, 0)}
	seconds := time.Since(began).Seconds()
	var query string
	var calls float64
	_, err = pgx.ForEachRow(rows, []any{&query, &calls}, func() error {
		l.perSecond[kindOf(query)] += calls / seconds
		l.total += calls / seconds
		return nil
	})
	return l, err
}

func kindOf(query string) string {
	for _, kind := range kinds {
		if strings.Contains(query, kind.text) {
			return kind.name
		}
	}
	return "other"
}

// start runs a part of every node; what it returns stops them and waits.
func start(ctx context.Context, nodes []*node, part func(*node, context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	failures := make([]error, len(nodes))
	for i, n := range nodes {
		running.Go(func() { failures[i] = part(n, ctx) })
	}
	return func() error {
		cancel()
		running.Wait()
		return errors.Join(failures...)
	}
}
