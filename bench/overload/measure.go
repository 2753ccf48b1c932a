package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/chaos/checker"
)

const (
	clockSQL = `SELECT clock_timestamp()`

	// quietSQL says whether the ticks of the last ten seconds are recorded, and every
	// job of the run that is older than a few seconds has come to its end.
	quietSQL = `
SELECT (SELECT coalesce(sum(tick_count), 0) FROM forge_cron_ticks
        WHERE tick > now() - interval '12 s' AND tick <= now() - interval '2 s') >= 10 * $1::int
   AND NOT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled')
                   AND kind <> $2 AND created_at < now() - interval '5 s')`

	// closedSQL says so of everything that was due before a moment: a late tick has its
	// job created after it.
	closedSQL = `
SELECT NOT EXISTS (SELECT FROM forge_crons WHERE next_tick < $1)
   AND NOT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled')
                   AND kind <> $2 AND ` + jobDue + ` < $1)`

	// closing is how long what is left at the end may take.
	closing = 30 * time.Second
	// recoverWithin is after how long at most all has to be normal again.
	recoverWithin = time.Minute
)

// outcome is what a scenario came to.
type outcome struct {
	timing

	scenario string
	group    string
	acked    int
	refused  int // inserts that were not acknowledged
	exits    int
	worked   int // of the jobs that waited
	findings []checker.Finding
	broken   []string
}

// measure runs one scenario.
func measure(ctx context.Context, o options, s scenario, say func(string, ...any)) (out outcome, err error) {
	c, err := newCluster(ctx, o, s)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	pool, err := pgxpool.New(ctx, c.url)
	if err != nil {
		return out, err
	}
	defer pool.Close()
	inserting, err := startInserter(ctx, pool, o.inserts)
	if err != nil {
		return out, err
	}
	var acked []int64
	during, err := c.endure(ctx, s, say)
	if acked = inserting.stop(); err != nil {
		return out, err
	}
	if during.until, err = c.settle(ctx); err != nil {
		return out, err
	}
	p, err := c.read(ctx, during.until, acked)
	if err != nil {
		return out, err
	}
	c.stopNodes()
	out = outcome{
		timing: judge(p, o.crons, during, o.window), group: c.group.String(), acked: len(acked), refused: inserting.failed,
		exits: c.exits, worked: c.worked, findings: checker.Check(p.history),
	}
	if c.missing != 0 {
		out.findings = append(out.findings, checker.Finding{Kind: checker.Lost, Detail: fmt.Sprintf("%d of %d waiting jobs are not in the database", c.missing, o.backlog)})
	}
	out.broken = out.promises()
	return out, nil
}

// endure starts the nodes, puts the load on and waits until its effects are over, or
// long enough. It returns when the load was.
func (c *cluster) endure(ctx context.Context, s scenario, say func(string, ...any)) (during span, err error) {
	if during.began, err = c.clock(ctx); err != nil {
		return during, err
	}
	during.from = during.began
	if err := c.startNodes(ctx); err != nil {
		return during, err
	}
	if !s.atOnce {
		if err := rig.Await(ctx, "every role is led", func(ctx context.Context) (bool, error) { return rig.Led(ctx, c.pool) }); err != nil {
			return during, err
		}
		if during.began, err = c.clock(ctx); err != nil {
			return during, err
		}
		if err := rig.SleepUntil(ctx, time.Now().Add(c.calm)); err != nil {
			return during, err
		}
		if during.from, err = c.clock(ctx); err != nil {
			return during, err
		}
	}
	end, err := s.begin(ctx, c)
	if err != nil {
		return during, err
	}
	err = c.watch(ctx, time.Now().Add(c.length), say)
	if err := errors.Join(err, end()); err != nil {
		return during, err
	}
	if during.to, err = c.clock(ctx); err != nil {
		return during, err
	}
	return during, c.awaitQuiet(ctx, say)
}

func (c *cluster) clock(ctx context.Context) (now time.Time, err error) {
	if err := c.pool.QueryRow(ctx, clockSQL).Scan(&now); err != nil {
		return now, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// watchEvery is how often a run says how it goes.
const watchEvery = 10 * time.Second

const watchSQL = `
SELECT (SELECT coalesce(max(term), 0) FROM forge_leaders WHERE role = 'scheduler'),
       (SELECT count(*) FROM forge_cron_ticks WHERE tick > now() - interval '10 s')`

func (c *cluster) watch(ctx context.Context, until time.Time, say func(string, ...any)) error {
	for time.Now().Before(until) {
		next := time.Now().Add(watchEvery)
		if next.After(until) {
			next = until
		}
		if err := rig.SleepUntil(ctx, next); err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, watchEvery/2)
		var term, recorded int
		if err := c.pool.QueryRow(asking, watchSQL).Scan(&term, &recorded); err != nil {
			say("  PostgreSQL does not answer")
		} else {
			say("  term %d, %d rows of the last 10 s recorded", term, recorded)
		}
		cancel()
	}
	return nil
}

// awaitQuiet waits until all is normal, or for as long as the run allows.
func (c *cluster) awaitQuiet(ctx context.Context, say func(string, ...any)) error {
	began := time.Now()
	for time.Since(began) < c.recovery {
		if err := rig.SleepUntil(ctx, time.Now().Add(time.Second)); err != nil {
			return err
		}
		if c.says(ctx, quietSQL, c.crons, waitingKind) {
			say("  quiet after %v", time.Since(began).Round(time.Second))
			return nil
		}
	}
	say("  not quiet after %v", c.recovery)
	return ctx.Err()
}

// says asks the database for a yes; an error is none.
func (c *cluster) says(ctx context.Context, sql string, args ...any) (yes bool) {
	ctx, cancel := context.WithTimeout(ctx, closing)
	defer cancel()
	err := c.pool.QueryRow(ctx, sql, args...).Scan(&yes)
	return err == nil && yes
}

// settle waits until what was due or inserted before now is recorded and worked, for a
// while, and returns the moment up to which the run is judged.
func (c *cluster) settle(ctx context.Context) (time.Time, error) {
	until, err := c.clock(ctx)
	if err != nil {
		return until, err
	}
	for began := time.Now(); time.Since(began) < closing && !c.says(ctx, closedSQL, until, waitingKind); {
		if err := rig.SleepUntil(ctx, time.Now().Add(100*time.Millisecond)); err != nil {
			return until, err
		}
	}
	return until, nil
}
