package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/bench/internal/graphile"
	"github.com/forge-scheduler/forge/bench/internal/rig"
)

const (
	// warmUp is how long a system works before it is measured, at most.
	warmUp = 5 * time.Second
	// drainTimeout is how long the last jobs have to start.
	drainTimeout = 30 * time.Second
)

// The phases whose names are written twice.
const (
	beforePhase  = "before"
	readersPhase = "readers"
	longPhase    = "long"
)

const tablesSQL = `
SELECT coalesce(sum(n_dead_tup), 0)::bigint, coalesce(sum(pg_total_relation_size(relid)), 0)::float8 / 1048576
FROM pg_stat_user_tables`

// bench is one run: a PostgreSQL, the processes on it and what was measured.
type bench struct {
	options
	rig    *rig.Rig
	report *report
	// graphile is installed when it is first measured.
	graphile graphile.Program
	say      func(format string, args ...any)
}

func newBench(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	b := &bench{options: o, say: rig.Progress(progress), report: newReport(o)}
	var err error
	if b.rig, err = rig.NewAnywhere(ctx, "forge-snapshot", map[string]string{"max_connections": "200", "max_wal_size": "8GB"}); err != nil {
		return nil, err
	}
	if err := b.rig.Describe(ctx, b.report.settings); err != nil {
		return nil, errors.Join(err, b.rig.Close())
	}
	return b, nil
}

// phase is a while of a turn, with what it left behind.
type phase struct {
	name        string
	from, until time.Time
	deadRows    int64
	mib         float64
	serverCPU   float64 // percent of a processor; 0: not known
}

// turn measures a system.
func (b *bench) turn(ctx context.Context, s *system) error {
	f, err := b.field(ctx, s)
	if err != nil {
		return err
	}
	defer f.pool.Close()
	defer b.rig.KillAll()
	if err := b.start(f); err != nil {
		return err
	}
	if s.crons {
		err := rig.Await(ctx, "leaders", func(ctx context.Context) (bool, error) {
			led, err := rig.Led(ctx, f.pool)
			return led, errors.Join(err, b.rig.Alive())
		})
		if err != nil {
			return err
		}
	}
	t := &turn{begin: time.Now().Truncate(time.Second).Add(time.Second)}
	if s.crons {
		t.crons = int64(b.crons)
	}
	stop := make(chan struct{})
	group, loading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		t.jobs, err = b.load(loading, f, t.begin, stop)
		return err
	})
	group.Go(func() (err error) {
		defer close(stop)
		t.phases, err = b.phases(loading, f, t.begin)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := b.drain(ctx, f, t); err != nil {
		return err
	}
	b.report.add(s.name, t)
	return nil
}

// phases are those of a turn that begins at an instant.
func (b *bench) phases(ctx context.Context, f *field, begin time.Time) (phases []phase, err error) {
	wait := func(length time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { return rig.SleepUntil(ctx, time.Now().Add(length)) }
	}
	if err := rig.SleepUntil(ctx, begin.Add(min(warmUp, b.before))); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{beforePhase, wait(b.before)},
		{readersPhase, func(ctx context.Context) error { return f.overlap(ctx, b.hold) }},
		{"pause", wait(b.recover)},
		{longPhase, func(ctx context.Context) error { return f.read(ctx, b.long) }},
		{"after", wait(b.recover)},
	} {
		b.say("%s: %s", f.system.name, step.name)
		p, err := b.phase(ctx, f, step.name, step.do)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		phases = append(phases, p)
	}
	return phases, nil
}

func (b *bench) phase(ctx context.Context, f *field, name string, do func(context.Context) error) (p phase, err error) {
	p = phase{name: name, from: time.Now()}
	before, unknown := b.rig.ServerCPU()
	if err := do(ctx); err != nil {
		return p, err
	}
	p.until = time.Now()
	if unknown == nil {
		after, err := b.rig.ServerCPU()
		if err != nil {
			return p, err
		}
		p.serverCPU = 100 * float64(after-before) / float64(p.until.Sub(p.from))
	}
	if err := f.pool.QueryRow(ctx, tablesSQL).Scan(&p.deadRows, &p.mib); err != nil {
		return p, fmt.Errorf("look at the tables: %w", err)
	}
	return p, b.rig.Alive()
}

// drain reads the starts once every job has started, or will not.
func (b *bench) drain(ctx context.Context, f *field, t *turn) error {
	deadline := time.Now().Add(drainTimeout)
	for {
		all, err := rig.ReadStarts(f.outs)
		if err != nil {
			return err
		}
		t.take(all)
		t.end = time.Now()
		if t.lost() <= 0 || t.end.After(deadline) {
			return nil
		}
		if err := rig.SleepUntil(ctx, time.Now().Add(time.Second)); err != nil {
			return err
		}
	}
}
