package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
)

const (
	jobsSQL = `
INSERT INTO river_job (id, kind, args, max_attempts, attempt, state, finalized_at)
SELECT i, 'talk', '{}', 1, 1, 'completed', now() FROM generate_series(1, $1::int) i`
	sequenceSQL     = `SELECT setval('river_job_id_seq', $1)`
	insertLeaderSQL = `INSERT INTO forge_leaders (role, incarnation, term) VALUES ('log_compactor', 'bench', 1)
ON CONFLICT (role) DO UPDATE SET incarnation = 'bench', term = 1`
	// The node of the bench does not stand for the compactor's role.
	nodeConfig = `
[database]
url = %q
[http]
listen = %q
[node]
id = "n1"
roles = ["worker", "scheduler"]
`
	sizeSQL = `
SELECT pg_total_relation_size('forge_job_logs'), pg_total_relation_size('forge_job_log_packs'),
    pg_indexes_size('forge_job_logs') + pg_indexes_size('forge_job_log_packs')`
	looseSQL  = `SELECT coalesce(min(job_id), 0) FROM forge_job_logs`
	packedSQL = `SELECT sum(chunks), sum(text_bytes) FROM forge_job_log_packs`
	// waiting is how many jobs wait at most, so that the node never runs out of them.
	waiting = 4000
	batch   = 500
	look    = time.Second
	// readAttempts are read, before and after.
	readAttempts = 300
)

// size of the two tables, in bytes, and what their indexes take of it.
type size struct{ Loose, Packed, Indexes int64 }

func (s size) total() float64 { return float64(s.Loose + s.Packed) }

type bench struct {
	options
	say  func(format string, args ...any)
	rig  *rig.Rig
	url  string
	pool *pgxpool.Pool

	began                time.Time
	text, chunks         int64
	before, after, tight size
	busy, alone          time.Duration // of the compactor, beside a node and without
	busyLines            int64
	removal              time.Duration // of everything, by retention
	pairs                [][2]float64  // jobs a second, without the compactor and with it
	loose, packed        []time.Duration
}

func newBench(ctx context.Context, o options, say func(string, ...any)) (*bench, error) {
	r, err := rig.NewAnywhere(ctx, "forge-compaction", map[string]string{"max_wal_size": "4GB"})
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, say: say, rig: r, began: time.Now()}
	if b.url, b.pool, err = r.Database(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return b, nil
}

func (b *bench) close() error {
	b.pool.Close()
	return b.rig.Close()
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.fill(ctx); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	if err := b.settle(ctx, "VACUUM", &b.before); err != nil {
		return err
	}
	if err := b.read(ctx, &b.loose); err != nil {
		return fmt.Errorf("read before: %w", err)
	}
	if err := b.compact(ctx); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	if err := b.check(ctx); err != nil {
		return err
	}
	if err := b.weighAfter(ctx); err != nil {
		return err
	}
	if err := b.read(ctx, &b.packed); err != nil {
		return fmt.Errorf("read after: %w", err)
	}
	return b.remove(ctx)
}

// weighAfter weighs what is left, vacuumed as autovacuum does it and with the indexes
// that the compactor then builds anew, and again packed as tightly as it can be.
func (b *bench) weighAfter(ctx context.Context) error {
	if err := b.settle(ctx, "VACUUM (ANALYZE)", &b.after); err != nil {
		return err
	}
	began := time.Now()
	err := b.until(ctx, compactor.Retention{}, func(ctx context.Context) (bool, error) {
		grown, err := compactor.NewStore(b.pool).Bloated(ctx, compactor.LeastIndex)
		return !slices.ContainsFunc(grown, func(i compactor.Index) bool { return strings.Contains(i.Name, "forge_job_log") }), err
	})
	if err != nil {
		return err
	}
	b.say("indexes built anew in %.1f s", time.Since(began).Seconds())
	if err := b.settle(ctx, "VACUUM", &b.after); err != nil {
		return err
	}
	return b.settle(ctx, "VACUUM FULL", &b.tight)
}

// remove lets the output grow too old.
func (b *bench) remove(ctx context.Context) error {
	return b.until(ctx, compactor.Retention{Logs: time.Minute}, func(ctx context.Context) (bool, error) {
		status, err := compactor.NewStore(b.pool).Status(ctx, 100)
		for _, pass := range status.Passes {
			if pass.Removed["packed_logs"] > 0 {
				b.removal = pass.EndedAt.Sub(pass.StartedAt)
			}
		}
		return b.removal > 0, err
	})
}

// until lets the compactor make passes until something is true. It looks once a second:
// the compactor takes more for somebody at work.
func (b *bench) until(ctx context.Context, retention compactor.Retention, is func(context.Context) (bool, error)) error {
	led, end := context.WithCancel(ctx)
	defer end()
	lead := make(chan error, 1)
	go func() { lead <- b.lead(led, retention) }()
	for {
		if err := rig.SleepUntil(ctx, time.Now().Add(look)); err != nil {
			return errors.Join(err, <-lead)
		}
		done, err := is(ctx)
		if done || err != nil {
			end()
			return errors.Join(err, <-lead)
		}
	}
}

func (b *bench) fill(ctx context.Context) error {
	if err := migrations.New(b.pool, slog.New(slog.DiscardHandler)).Up(ctx); err != nil {
		return err
	}
	lines := newSource(b.lines, b.began)
	if _, err := b.pool.Exec(ctx, jobsSQL, lines.attempts); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, sequenceSQL, lines.attempts+1); err != nil {
		return err
	}
	b.say("writing %d lines", b.lines)
	if _, err := b.pool.CopyFrom(ctx, pgx.Identifier{"forge_job_logs"}, columns, lines); err != nil {
		return err
	}
	b.text, b.chunks, b.lines = lines.textBytes, lines.rows, lines.lines
	_, err := b.pool.Exec(ctx, "ANALYZE")
	return err
}

// settle tidies up and weighs.
func (b *bench) settle(ctx context.Context, vacuum string, into *size) error {
	if _, err := b.pool.Exec(ctx, vacuum+" forge_job_logs, forge_job_log_packs"); err != nil {
		return fmt.Errorf("%s: %w", vacuum, err)
	}
	if err := b.rig.Checkpoint(ctx); err != nil {
		return err
	}
	if err := b.pool.QueryRow(ctx, sizeSQL).Scan(&into.Loose, &into.Packed, &into.Indexes); err != nil {
		return fmt.Errorf("weigh: %w", err)
	}
	return nil
}

type noop struct{}

func (noop) Kind() string { return "noop" }

// compact lets the compactor work in every other window, while a node works jobs, and
// do the rest alone.
func (b *bench) compact(ctx context.Context) error {
	if err := b.compactBeside(ctx); err != nil {
		return err
	}
	began := time.Now()
	defer func() { b.alone = time.Since(began) }()
	return b.until(ctx, compactor.Retention{}, func(ctx context.Context) (bool, error) {
		next, err := b.firstLoose(ctx)
		return next == 0, err
	})
}

// firstLoose is the first job whose output is not merged, 0 without any.
func (b *bench) firstLoose(ctx context.Context) (job int64, err error) {
	err = b.pool.QueryRow(ctx, looseSQL).Scan(&job)
	return job, err
}

func (b *bench) compactBeside(ctx context.Context) error {
	var worked atomic.Int64
	workers := river.NewWorkers()
	forge.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[noop]) error {
		worked.Add(1)
		return nil
	}))
	listen, err := devcluster.FindPort("127.0.0.1")
	if err != nil {
		return err
	}
	cfg, err := forge.ParseConfig("bench", fmt.Sprintf(nodeConfig, b.url, listen))
	if err != nil {
		return err
	}
	node, err := forge.New(cfg, forge.WithWorkers(workers), forge.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return node.Run(ctx) })
	group.Go(func() error {
		select {
		case <-node.Ready():
			return feed(ctx, node.Client(), &worked)
		case <-ctx.Done():
			return nil
		}
	})
	group.Go(func() error {
		defer stop()
		return b.windows(ctx, &worked)
	})
	return group.Wait()
}

// feed keeps jobs waiting until ctx ends.
func feed(ctx context.Context, client *river.Client[pgx.Tx], worked *atomic.Int64) error {
	many := make([]river.InsertManyParams, batch)
	for i := range many {
		many[i] = river.InsertManyParams{Args: noop{}}
	}
	for inserted := int64(0); ctx.Err() == nil; {
		if inserted-worked.Load() > waiting {
			_ = rig.SleepUntil(ctx, time.Now().Add(time.Millisecond)) // the loop looks
			continue
		}
		if _, err := client.InsertManyFast(ctx, many); err != nil && ctx.Err() == nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
		inserted += batch
	}
	return nil
}

func (b *bench) windows(ctx context.Context, worked *atomic.Int64) error {
	if _, err := b.pool.Exec(ctx, insertLeaderSQL); err != nil {
		return err
	}
	err := rig.Await(ctx, "the node to work", func(context.Context) (bool, error) { return worked.Load() > waiting, nil })
	if err != nil {
		return err
	}
	next := int64(1)
	for next != 0 && len(b.pairs) < b.most {
		first := next
		if next, err = b.pair(ctx, worked, first); err != nil {
			return err
		}
		if next == first { // the window was too short for one batch
			b.window *= 2
		}
	}
	b.busyLines = (cmp.Or(next, int64(b.lines/attemptLines)+1) - 1) * attemptLines
	return nil
}

// pair measures a window without the compactor and one with it. It returns the
// first job whose output is not merged, 0 without any.
func (b *bench) pair(ctx context.Context, worked *atomic.Int64, first int64) (next int64, err error) {
	calm, err := window(ctx, worked, b.window)
	if err != nil {
		return 0, err
	}
	led, end := context.WithTimeout(ctx, b.window)
	defer end()
	lead := make(chan error, 1)
	go func() { lead <- b.lead(led, compactor.Retention{}) }()
	disturbed, err := window(ctx, worked, b.window)
	if err := errors.Join(err, <-lead); err != nil {
		return 0, err
	}
	if next, err = b.firstLoose(ctx); err != nil {
		return 0, err
	}
	b.say("%.0f jobs a second without, %.0f with the compactor, which merged the output of %d attempts",
		calm, disturbed, cmp.Or(next, int64(b.lines/attemptLines)+1)-first)
	length := b.window
	if next == 0 {
		if length, err = b.lastPass(ctx); err != nil {
			return 0, err
		}
	}
	b.busy += length
	if next != 0 || len(b.pairs) == 0 { // in the last it has time to spare
		b.pairs = append(b.pairs, [2]float64{calm, disturbed})
	}
	return next, nil
}

// lastPass is how long it took; a whole window when that has cut it off.
func (b *bench) lastPass(ctx context.Context) (length time.Duration, err error) {
	status, err := compactor.NewStore(b.pool).Status(ctx, 1)
	if err != nil || len(status.Passes) == 0 {
		return b.window, err
	}
	return status.Passes[0].EndedAt.Sub(status.Passes[0].StartedAt), nil
}

func (b *bench) lead(ctx context.Context, retention compactor.Retention) error {
	return compactor.New(b.pool, compactor.Options{
		Retention: func() compactor.Retention { return retention },
		Logger:    slog.New(slog.DiscardHandler), Delay: time.Millisecond, Interval: time.Second,
	}).Lead(ctx, leaderstore.Fence{Role: "log_compactor", Term: 1, NodeID: "bench", Incarnation: "bench"})
}

// window is how many jobs are worked a second.
func window(ctx context.Context, worked *atomic.Int64, length time.Duration) (float64, error) {
	before, began := worked.Load(), time.Now()
	err := rig.SleepUntil(ctx, began.Add(length))
	return float64(worked.Load()-before) / time.Since(began).Seconds(), err
}

// check demands that all chunks are in packs.
func (b *bench) check(ctx context.Context) error {
	var chunks, text int64
	if err := b.pool.QueryRow(ctx, packedSQL).Scan(&chunks, &text); err != nil {
		return fmt.Errorf("count what is packed: %w", err)
	}
	if chunks != b.chunks || text != b.text {
		return fmt.Errorf("%d chunks of %d bytes are packed, %d of %d were written", chunks, text, b.chunks, b.text)
	}
	return nil
}

// read times the output of some attempts, and demands that it is what was written.
func (b *bench) read(ctx context.Context, into *[]time.Duration) error {
	again := newSource(b.lines, b.began)
	want := make([]string, min(again.attempts, readAttempts))
	for again.Next() && again.attempt <= len(want) {
		want[again.attempt-1] += again.chunks[0]
	}
	for i, text := range want {
		began := time.Now()
		chunks, err := jobstore.New(b.pool).Logs(ctx, int64(i+1), 1, 0)
		if err != nil {
			return err
		}
		*into = append(*into, time.Since(began))
		var got strings.Builder
		for _, chunk := range chunks {
			got.WriteString(chunk.Chunk)
		}
		if got.String() != text {
			return fmt.Errorf("job %d has other output than was written", i+1)
		}
	}
	return nil
}
