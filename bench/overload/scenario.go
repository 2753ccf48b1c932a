package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// scenario is a load that is too much. prepare runs before the nodes start, begin puts
// the load on and returns what takes it away.
type scenario struct {
	prepare func(ctx context.Context, c *cluster) error
	begin   func(ctx context.Context, c *cluster) (end func() error, err error)
	// atOnce says that the nodes start under the load.
	atOnce bool
	// proxied says that the nodes reach PostgreSQL through a slowWay.
	proxied bool
}

var scenarios = map[string]scenario{
	"burners":  {begin: startBurners},
	"stalls":   {begin: startStalls},
	"slow":     {begin: startSlowness, proxied: true},
	"snapshot": {prepare: prepareSnapshot, begin: startBurners},
	"backlog":  {prepare: prepareBacklog, begin: startBacklog, atOnce: true},
}

func scenarioNames() []string { return slices.Sorted(maps.Keys(scenarios)) }

// statementDelay is what each statement takes longer in the scenario slow, flushDelay
// each flush of PostgreSQL's log in stalls.
const (
	statementDelay = 200 * time.Millisecond
	flushDelay     = 100 * time.Millisecond
)

func startBurners(_ context.Context, c *cluster) (func() error, error) {
	count := c.burners * runtime.NumCPU()
	p, err := c.rig.StartLine("burners", c.group.line(c.self), partEnv+"="+burnPart, countEnv+"="+strconv.Itoa(count))
	if err != nil {
		return nil, err
	}
	return func() error {
		p.Kill()
		return nil
	}, nil
}

func startStalls(ctx context.Context, c *cluster) (func() error, error) {
	if err := c.setFlushDelay(ctx, flushDelay); err != nil {
		return nil, err
	}
	stalling, cancel := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- stall(stalling, c.rig.Server.PID()) }()
	return func() error {
		cancel()
		return errors.Join(<-over, c.setFlushDelay(ctx, 0))
	}, nil
}

// setFlushDelay has each flush of the log take longer.
func (c *cluster) setFlushDelay(ctx context.Context, delay time.Duration) error {
	for _, sql := range []string{
		fmt.Sprintf("ALTER SYSTEM SET commit_delay = %d", delay.Microseconds()),
		"ALTER SYSTEM SET commit_siblings = 0",
		"SELECT pg_reload_conf()",
	} {
		if _, err := c.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func startSlowness(_ context.Context, c *cluster) (func() error, error) {
	c.way.set(statementDelay)
	return func() error {
		c.way.set(0)
		return nil
	}, nil
}

// Kinds of jobs that the run itself puts into the table: nobody works the completed
// ones, and the waiting ones count as a whole.
const (
	completedKind = "completed"
	waitingKind   = "waiting"
)

const (
	completedSQL = `
INSERT INTO river_job (kind, args, state, attempt, max_attempts, attempted_at, attempted_by, finalized_at, tags)
SELECT $1, '{}', 'completed', 1, 25, now(), '{nobody}', now(), '{}' FROM generate_series(1, $2)`
	// The waiting ones come last of all.
	waitingSQL = `
INSERT INTO river_job (kind, args, max_attempts, priority, tags)
SELECT $1, '{}', 25, 4, '{}' FROM generate_series(1, $2)`
	missSQL = `
UPDATE forge_crons SET watermark = watermark - $1::interval, next_tick = watermark - $1::interval`
	analyzeSQL = `ANALYZE river_job`
	// waitSQL takes away what nobody has begun and counts what there was.
	unwaitSQL = `
WITH gone AS (DELETE FROM river_job WHERE kind = $1 AND state = 'available' RETURNING id)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM river_job WHERE kind = $1)`
)

func prepareSnapshot(ctx context.Context, c *cluster) error {
	if err := c.exec(ctx, completedSQL, completedKind, c.completed); err != nil {
		return err
	}
	var err error
	c.snapshot, err = holdSnapshot(ctx, c.url)
	return errors.Join(err, c.exec(ctx, analyzeSQL))
}

func prepareBacklog(ctx context.Context, c *cluster) error {
	if err := c.exec(ctx, missSQL, time.Duration(c.backlog/c.crons)*time.Second); err != nil {
		return err
	}
	if err := c.exec(ctx, waitingSQL, waitingKind, c.backlog); err != nil {
		return err
	}
	return c.exec(ctx, analyzeSQL)
}

// startBacklog ends by taking away what still waits. None of the jobs may be missing:
// those that were counted and those that began are all that there were.
func startBacklog(ctx context.Context, c *cluster) (func() error, error) {
	return func() error {
		var gone, all int
		if err := c.pool.QueryRow(ctx, unwaitSQL, waitingKind).Scan(&gone, &all); err != nil {
			return fmt.Errorf("take the waiting jobs away: %w", err)
		}
		c.missing = c.backlog - all
		c.worked = all - gone
		return nil
	}, nil
}
