package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// Sort is the order of a search for jobs.
type Sort string

const (
	// Newest sorts by descending id. It is the default.
	Newest Sort = "newest"
	// Slowest sorts the jobs that run or ran by how long, the slowest first.
	Slowest Sort = "slowest"
	// Waiting sorts the available jobs by their time, so that the one that has waited longest
	// is the first.
	Waiting Sort = "waiting"
)

// Sorts are all orders, the default first.
var Sorts = []string{string(Newest), string(Slowest), string(Waiting)}

// DeadOrders declares the orders of groups of dead letters.
var DeadOrders = filter.Orders[DeadGroup]{
	{Name: "newest", About: "the newest death first"},
	{Name: "jobs", About: "the most jobs first", Compare: func(a, b *DeadGroup) int { return cmp.Compare(b.Jobs, a.Jobs) }},
	{Name: "oldest", About: "the oldest death first", Compare: func(a, b *DeadGroup) int { return a.First.Compare(b.First) }},
	{Name: "kind", About: "by kind", Compare: func(a, b *DeadGroup) int { return cmp.Compare(a.Kind, b.Kind) }},
}

const (
	// sortWindow is how many ended jobs a search for the slowest compares: the newest of each
	// index. No index knows how long jobs ran: with one, a claim would have to write to it.
	sortWindow = 50_000
	// waitingWindow is how many waiting jobs of each queue and priority a search for those
	// that have waited longest compares.
	waitingWindow = 10_000
)

// The end of the last job that does not belong to the newest ones of its index.
const sortEdgeSQL = `
SELECT max(` + boundTime + `at` + inYears + `)
FROM ((SELECT finalized_at AS at FROM river_job WHERE ` + isCompleted + ` AND @matches ORDER BY finalized_at DESC OFFSET @window LIMIT 1)
      UNION ALL (SELECT finalized_at FROM river_job WHERE forge_state = 'cancelled' AND @matches ORDER BY finalized_at DESC OFFSET @window LIMIT 1)
      UNION ALL (SELECT finalized_at FROM river_job WHERE forge_state = 'discarded' AND @matches ORDER BY finalized_at DESC OFFSET @window LIMIT 1)) AS edges`

const isCompleted = `finalized_at IS NOT NULL AND forge_state IS NULL`

// Each branch reads an index of its own.
const slowestSQL = `
       '{}'::jsonb, '{}'::jsonb[]
FROM river_job
WHERE id = ANY (ARRAY (
    SELECT id
    FROM (SELECT id, ` + lastAttemptTook + ` AS took FROM river_job WHERE ` + isCompleted + ` AND @matches
          UNION ALL SELECT id, ` + lastAttemptTook + ` FROM river_job WHERE forge_state IN ('cancelled', 'discarded') AND @matches
          UNION ALL SELECT id, ` + lastAttemptTook + ` FROM river_job WHERE ` + isRunning + ` AND @running) AS compared
    WHERE took IS NOT NULL
    ORDER BY took DESC, id DESC
    LIMIT @limit))
ORDER BY ` + lastAttemptTook + ` DESC, id DESC`

const waitingSQL = `
       '{}'::jsonb, '{}'::jsonb[]
FROM (WITH RECURSIVE open_queues (name) AS (
          (SELECT queue FROM river_job WHERE ` + isOpen + ` ORDER BY queue LIMIT 1)
          UNION ALL
          SELECT (SELECT queue FROM river_job WHERE ` + isOpen + ` AND queue > q.name ORDER BY queue LIMIT 1)
          FROM open_queues AS q
          WHERE q.name IS NOT NULL
      )
      SELECT j.*
      FROM (SELECT name FROM open_queues WHERE name IS NOT NULL LIMIT @queues) AS q, generate_series(1, 4) AS p (priority),
           LATERAL (SELECT *
                    FROM (SELECT * FROM river_job WHERE ` + isOpen + ` AND queue = q.name AND priority = p.priority
                          ORDER BY scheduled_at, id LIMIT @window) AS river_job
                    WHERE state = 'available' AND @matches
                    ORDER BY scheduled_at, id
                    LIMIT @limit) AS j) AS river_job
ORDER BY scheduled_at, id
LIMIT @limit`

// slowest returns the jobs that run or ran longest. It compares all that match if the indexes
// find few. Otherwise it compares the newest that ended.
func (s *Store) slowest(ctx context.Context, f Filter, limit int) (found Found, err error) {
	c := &conditions{}
	c.addStates(f)
	for _, t := range f.Where.Of("since") {
		c.addInstant(t, "finalized_at >= $$")
	}
	for _, t := range f.Where.Of("until") {
		c.addInstant(t, "finalized_at <= $$")
	}
	few, _, err := s.findsFew(ctx, Filter{Kind: f.Kind, Queue: f.Queue, Cron: f.Cron})
	if err != nil {
		return found, err
	}
	if !few {
		var edge *time.Time
		err := s.db.QueryRow(ctx, strings.ReplaceAll(c.in(sortEdgeSQL, 0), "@window", strconv.Itoa(sortWindow)), c.planned()...).Scan(&edge)
		if err != nil {
			return found, fmt.Errorf("sort jobs: %w", err)
		}
		if edge != nil {
			found.Since = edge.UTC()
			c.add("finalized_at > $$", *edge)
		}
	}
	c.addExact(Filter{Cron: f.Cron})
	c.addLossy(f)
	c.addOthers(f.Where)
	running := &conditions{before: len(c.args)}
	running.addStates(f)
	running.addExact(Filter{Cron: f.Cron})
	running.addLossy(f)
	running.addOthers(f.Where)
	if len(f.Where.Of("until")) > 0 {
		running.add("false")
	}
	sql := strings.ReplaceAll(c.in(slowestSQL, limit), "@running", running.String())
	c.args = append(c.args, running.args...)
	found.Jobs, err = s.sorted(ctx, f, sql, c)
	return found, err
}

// longestWaiting returns the available jobs that have waited longest.
func (s *Store) longestWaiting(ctx context.Context, f Filter, limit int) (found Found, err error) {
	c := &conditions{}
	c.addExact(f)
	c.addLossy(f)
	c.addOthers(f.Where)
	sql := strings.NewReplacer("@queues", strconv.Itoa(maxWaiting), "@window", strconv.Itoa(waitingWindow)).Replace(c.in(waitingSQL, limit))
	found.Jobs, err = s.sorted(ctx, f, sql, c)
	return found, err
}

// sorted reads the jobs of a statement that begins after the arguments.
func (s *Store) sorted(ctx context.Context, f Filter, sql string, c *conditions) ([]Job, error) {
	rows, err := s.db.Query(ctx, beforeArgsSQL+argsSQL[f.Args]+fmt.Sprintf(afterArgsSQL, maxListedError)+sql, c.planned()...)
	if err != nil {
		return nil, fmt.Errorf("sort jobs: %w", err)
	}
	jobs, err := collectJobs(rows, f.MaxArgs)
	if err != nil {
		return nil, fmt.Errorf("sort jobs: %w", err)
	}
	return jobs, nil
}
