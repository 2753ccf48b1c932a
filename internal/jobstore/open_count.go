package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// The pages of an OpenCount, by the two indexes of unfinished jobs. The last row of a page has
// the position of its last job.
const (
	openPageSQL = `
WITH page AS MATERIALIZED (
    SELECT queue, priority, scheduled_at, id
    FROM river_job
    WHERE ` + isOpen + ` AND (queue, priority, scheduled_at, id) > ($1::text, $2::smallint, $3::timestamptz, $4::bigint)
    ORDER BY queue, priority, scheduled_at, id
    LIMIT $5
)
SELECT c.queue, 'available', c.jobs, coalesce(l.priority, 0::smallint), l.scheduled_at, coalesce(l.id, 0)
FROM (SELECT queue, count(*) AS jobs FROM page GROUP BY queue) AS c
LEFT JOIN (SELECT * FROM page ORDER BY queue DESC, priority DESC, scheduled_at DESC, id DESC LIMIT 1) AS l USING (queue)
ORDER BY c.queue`

	waitingPageSQL = `
WITH page AS MATERIALIZED (
    SELECT forge_state, queue, id
    FROM river_job
    WHERE ` + isWaiting + ` AND (forge_state, queue, id) > ($1::text::river_job_state, $2::text, $3::bigint)
    ORDER BY forge_state, queue, id
    LIMIT $4
)
SELECT c.queue, c.forge_state::text, c.jobs, 0::smallint, NULL::timestamptz, coalesce(l.id, 0)
FROM (SELECT forge_state, queue, count(*) AS jobs FROM page GROUP BY forge_state, queue) AS c
LEFT JOIN (SELECT * FROM page ORDER BY forge_state DESC, queue DESC, id DESC LIMIT 1) AS l USING (forge_state, queue)
ORDER BY c.forge_state, c.queue`

	runningByQueueSQL = `
SELECT coalesce(r.queue, q.name), coalesce(r.jobs, 0)
FROM (SELECT queue, count(*) AS jobs FROM river_job WHERE ` + isRunning + ` GROUP BY queue) AS r
FULL JOIN river_queue AS q ON q.name = r.queue`
)

// openStates are the states of unfinished jobs.
var openStates = []string{stateAvailable, "pending", "retryable", stateRunning, "scheduled"}

// queueState is a queue and a state of its jobs.
type queueState struct{ queue, state string }

// OpenCount counts all unfinished jobs by queue and state in pages, so that no statement reads
// many. A job whose state changes between two pages may be counted twice, or not at all. The
// zero value starts at the first job.
type OpenCount struct {
	jobs map[queueState]int64
	// waiting is whether the pages of available and running jobs, which have both the state
	// available, have been read.
	waiting bool
	// The position of the last job of the page before.
	last     queueState
	priority int16
	at       pgtype.Timestamptz
	id       int64
}

// Next counts at most limit more jobs, and returns how many it has counted. At the end, it
// returns all counts: for each queue with a job or a row in river_queue, and each state. Then,
// and after an error, the next call starts again.
func (c *OpenCount) Next(ctx context.Context, db postgres.DB, limit int) (counted int, all []Count, err error) {
	if counted, err = c.readPage(ctx, db, limit); err == nil && counted < limit {
		if !c.waiting {
			c.waiting, c.last, c.id = true, queueState{state: stateAvailable}, 0 // before all states of the index
			return counted, nil, nil
		}
		all, err = c.end(ctx, db)
	}
	if err != nil {
		*c = OpenCount{}
		return 0, nil, fmt.Errorf("count the jobs: %w", err)
	}
	return counted, all, nil
}

func (c *OpenCount) readPage(ctx context.Context, db postgres.DB, limit int) (counted int, err error) {
	if c.jobs == nil {
		c.jobs, c.at = map[queueState]int64{}, pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	sql, args := openPageSQL, []any{c.last.queue, c.priority, c.at, c.id, limit}
	if c.waiting {
		sql, args = waitingPageSQL, []any{c.last.state, c.last.queue, c.id, limit}
	}
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return 0, err
	}
	var jobs int64
	_, err = pgx.ForEachRow(rows, []any{&c.last.queue, &c.last.state, &jobs, &c.priority, &c.at, &c.id}, func() error {
		c.jobs[c.last] += jobs
		counted += int(jobs)
		return nil
	})
	return counted, err
}

// end counts the running jobs, which are not available.
func (c *OpenCount) end(ctx context.Context, db postgres.DB) (all []Count, err error) {
	rows, err := db.Query(ctx, runningByQueueSQL)
	if err != nil {
		return nil, err
	}
	queues := map[string]bool{}
	for of := range c.jobs {
		queues[of.queue] = true
	}
	var queue string
	var running int64
	_, err = pgx.ForEachRow(rows, []any{&queue, &running}, func() error {
		queues[queue] = true
		available := queueState{queue, stateAvailable}
		c.jobs[queueState{queue, stateRunning}], c.jobs[available] = running, max(c.jobs[available]-running, 0)
		return nil
	})
	for queue := range queues {
		for _, state := range openStates {
			all = append(all, Count{Queue: queue, State: state, Jobs: c.jobs[queueState{queue, state}]})
		}
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.State, b.State)) })
	*c = OpenCount{}
	if all == nil {
		all = []Count{} // no queue
	}
	return all, err
}
