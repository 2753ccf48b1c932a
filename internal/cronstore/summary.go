package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// LastRunsLimit bounds the crons whose last runs LastRuns returns.
const LastRunsLimit = 10_000

const (
	summarySQL = `
SELECT count(*), count(*) FILTER (WHERE paused),
       count(*) FILTER (WHERE NOT paused AND next_tick < clock_timestamp() - $1::interval),
       count(*) FILTER (WHERE NOT paused AND blocked_by IS NOT NULL), clock_timestamp()
FROM (SELECT paused_at IS NOT NULL OR coalesce((spec ->> 'paused')::boolean, false) AS paused, next_tick, blocked_by
      FROM forge_crons WHERE removed_at IS NULL) AS crons`

	nextCronSQL = `
SELECT name, next_tick FROM forge_crons
WHERE removed_at IS NULL AND paused_at IS NULL AND NOT coalesce((spec ->> 'paused')::boolean, false) AND next_tick IS NOT NULL
ORDER BY next_tick, name LIMIT 1`

	// One lookup in the ledger's primary key for each cron.
	lastRunsSQL = `
SELECT c.name, t.verdict, coalesce(t.job_id, 0)
FROM (SELECT name FROM forge_crons WHERE removed_at IS NULL ORDER BY name LIMIT $1) AS c,
     LATERAL (SELECT verdict, job_id FROM forge_cron_ticks WHERE cron = c.name ORDER BY tick DESC LIMIT 1) AS t
WHERE t.job_id IS NOT NULL OR t.verdict = 'failed'`
)

// Summary counts the configured crons by condition.
type Summary struct {
	Defined int `json:"defined"`
	Paused  int `json:"paused"`
	Overdue int `json:"overdue"`
	Blocked int `json:"blocked"`
	// Next is the cron that is due next; it is nil if none is.
	Next *NextCron `json:"next,omitempty"`
	// Now is the database's clock.
	Now time.Time `json:"-"`
}

// NextCron is a cron and its next tick.
type NextCron struct {
	Name string    `json:"name"`
	Tick time.Time `json:"tick"`
}

// Summarize counts the configured crons and finds the one that is due next.
func (s *Store) Summarize(ctx context.Context) (Summary, error) {
	var sum Summary
	row := s.db.QueryRow(ctx, summarySQL, overdueAfter)
	if err := row.Scan(&sum.Defined, &sum.Paused, &sum.Overdue, &sum.Blocked, &sum.Now); err != nil {
		return sum, fmt.Errorf("count crons: %w", err)
	}
	next, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[NextCron], nextCronSQL)
	if err != nil {
		return sum, fmt.Errorf("find the next cron: %w", err)
	}
	if len(next) > 0 {
		sum.Next = &next[0]
	}
	return sum, nil
}

// LastRun is the newest row of a cron's ledger that has a job or a failure.
type LastRun struct {
	Cron    string
	Verdict Verdict
	// JobID is 0 if the job could not be inserted.
	JobID int64
}

// LastRuns returns the last runs of the first LastRunsLimit configured crons whose newest tick ran or
// failed.
func (s *Store) LastRuns(ctx context.Context) ([]LastRun, error) {
	runs, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[LastRun], lastRunsSQL, LastRunsLimit)
	if err != nil {
		return nil, fmt.Errorf("list the last runs: %w", err)
	}
	return runs, nil
}
