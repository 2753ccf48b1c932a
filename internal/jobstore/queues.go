package jobstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrNoQueue means that no node works the queue and no job is in it.
var ErrNoQueue = errors.New("no such queue")

// Queue is a queue with its waiting and running jobs. The counts of waiting jobs stop at
// CountLimit.
type Queue struct {
	Name string `json:"name"`
	QueuePause

	Available int64 `json:"available"`
	Running   int64 `json:"running"`
	Scheduled int64 `json:"scheduled"`
	Retryable int64 `json:"retryable"`
	// MoreAvailable, MoreScheduled and MoreRetryable are whether these counts stopped.
	MoreAvailable bool `json:"more_available,omitempty"`
	MoreScheduled bool `json:"more_scheduled,omitempty"`
	MoreRetryable bool `json:"more_retryable,omitempty"`
	// GlobalLimit is the maximum number of jobs that run at once in the cluster; 0:
	// no limit.
	GlobalLimit int `json:"global_limit,omitempty"`
	// Nodes is the number of nodes that work the queue, Workers the number of its
	// jobs that they can run at once by their own limits.
	Nodes   int `json:"nodes"`
	Workers int `json:"workers"`
	// OldestAt is when the available job that has waited longest became due.
	OldestAt time.Time `json:"oldest_at,omitzero"`
	// WaitSeconds is how long that job has waited; 0 if there is none.
	WaitSeconds float64 `json:"wait_seconds"`
	// Now is the time of the database's clock.
	Now time.Time `json:"now"`
}

// longestWait bounds Wait, as a job may be due since the year 1.
const longestWait = 100 * 365 * 24 * time.Hour

// Wait returns how long the oldest available job has waited.
func (q *Queue) Wait() time.Duration {
	return time.Duration(min(q.WaitSeconds, longestWait.Seconds()) * float64(time.Second))
}

// oldestSQL finds the available job of the queue q.name that became due first: a lookup for
// each priority.
const oldestSQL = `
         generate_series(1, 4) AS p (priority),
         LATERAL (SELECT scheduled_at FROM river_job
                  WHERE ` + isAvailable + ` AND queue = q.name AND priority = p.priority
                  ORDER BY scheduled_at LIMIT 1) AS j`

var queuesSQL = openCountsSQL + `, jobs AS (
    SELECT queue, sum(jobs) FILTER (WHERE state = 'available') AS available, bool_or(more) FILTER (WHERE state = 'available') AS more_available,
           sum(jobs) FILTER (WHERE state = 'running') AS running,
           sum(jobs) FILTER (WHERE state = 'scheduled') AS scheduled, bool_or(more) FILTER (WHERE state = 'scheduled') AS more_scheduled,
           sum(jobs) FILTER (WHERE state = 'retryable') AS retryable, bool_or(more) FILTER (WHERE state = 'retryable') AS more_retryable
    FROM counts
    GROUP BY queue
), oldest AS (
    SELECT q.name, ` + boundTime + `min(j.scheduled_at)` + inYears + ` AS at
    FROM (SELECT queue AS name FROM jobs WHERE available > 0) AS q,` + oldestSQL + `
    GROUP BY q.name
), worked AS (
    SELECT q.key AS name, count(*) AS nodes, sum(least(q.value::integer, n.slots)) AS workers
    FROM forge_nodes AS n, jsonb_each_text(n.queues) AS q
    WHERE forge_node_state(n.state, n.last_heartbeat_at, n.dead_after) = 'active'
    GROUP BY q.key
), names AS (
    SELECT name FROM river_queue UNION SELECT queue FROM jobs UNION SELECT name FROM worked
    UNION SELECT name FROM forge_limits WHERE scope = 'queue'
)
SELECT names.name, r.paused_at, ` + pauseSQL + `, coalesce(j.available, 0)::bigint, coalesce(j.running, 0)::bigint,
       coalesce(j.scheduled, 0)::bigint, coalesce(j.retryable, 0)::bigint,
       coalesce(j.more_available, false), coalesce(j.more_scheduled, false), coalesce(j.more_retryable, false), coalesce(l.most, 0),
       coalesce(w.nodes, 0)::integer, coalesce(w.workers, 0)::integer,
       o.at, greatest(extract(epoch FROM now() - o.at), 0)::float8, now()
FROM names
LEFT JOIN river_queue AS r ON r.name = names.name
LEFT JOIN worked AS w ON w.name = names.name
LEFT JOIN jobs AS j ON j.queue = names.name
LEFT JOIN oldest AS o ON o.name = names.name
LEFT JOIN forge_limits AS l ON l.scope IN ('queue', 'queue_all') AND l.name = names.name AND ` + limitInForce + `
ORDER BY names.name`

// The query reads only the ends of river_job_prioritized_fetching_index: one lookup
// for each queue that has available jobs, and one for each of its four priorities,
// even if there are many jobs.
const waitingQueuesSQL = `
WITH RECURSIVE queues (name) AS (
    (SELECT queue FROM river_job WHERE ` + isAvailable + ` ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM river_job
            WHERE ` + isAvailable + ` AND queue > q.name ORDER BY queue LIMIT 1)
    FROM queues AS q
    WHERE q.name IS NOT NULL
), oldest AS (
    SELECT q.name, ` + boundTime + `min(j.scheduled_at)` + inYears + ` AS at
    FROM (SELECT name FROM queues WHERE name IS NOT NULL LIMIT $1) AS q,` + oldestSQL + `
    GROUP BY q.name
)
SELECT name, r.paused_at, o.at, now()
FROM oldest AS o
FULL JOIN (SELECT name, paused_at FROM river_queue ORDER BY paused_at IS NULL, name LIMIT $1) AS r USING (name)
ORDER BY name`

// ensureQueuesSQL does not change existing rows.
const ensureQueuesSQL = `
INSERT INTO river_queue (name, updated_at)
SELECT unnest($1::text[]), clock_timestamp()
ON CONFLICT (name) DO NOTHING`

// Queues returns every queue that has a job, a node, a limit or a row in river_queue,
// by name.
func (s *Store) Queues(ctx context.Context) ([]Queue, error) {
	queues, err := postgres.Collect(ctx, s.db, scanQueue, queuesSQL)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return queues, nil
}

// maxWaiting bounds the number of queues that WaitingQueues returns.
const maxWaiting = 1000

// WaitingQueues returns the queues that have available jobs or a row in river_queue, by
// name, with only PausedAt, OldestAt, WaitSeconds and Now. Unlike Queues, which counts jobs,
// it reads only the oldest job. It returns at most a thousand queues.
func (s *Store) WaitingQueues(ctx context.Context) ([]Queue, error) {
	queues, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (Queue, error) {
		var q Queue
		var paused, oldest *time.Time
		err := row.Scan(&q.Name, &paused, &oldest, &q.Now)
		if q.PausedAt, q.OldestAt = postgres.TimeOrZero(paused), postgres.TimeOrZero(oldest); oldest != nil {
			q.WaitSeconds = max(q.Now.Sub(q.OldestAt).Seconds(), 0)
		}
		return q, err
	}, waitingQueuesSQL, maxWaiting)
	if err != nil {
		return nil, fmt.Errorf("read the oldest waiting jobs: %w", err)
	}
	return queues, nil
}

func scanQueue(row pgx.CollectableRow) (Queue, error) {
	var (
		q      Queue
		pause  pauseRow
		oldest *time.Time
	)
	err := row.Scan(&q.Name, &pause.at, &pause.facts, &q.Available, &q.Running, &q.Scheduled, &q.Retryable,
		&q.MoreAvailable, &q.MoreScheduled, &q.MoreRetryable, &q.GlobalLimit, &q.Nodes, &q.Workers, &oldest, &q.WaitSeconds, &q.Now)
	q.QueuePause, q.OldestAt = pause.read(), postgres.TimeOrZero(oldest)
	return q, err
}

// EnsureQueues inserts the missing rows of the queues that a node works. River inserts them
// when its client starts, which happens with the first job; until then its
// QueuePause would not find the queue.
func (s *Store) EnsureQueues(ctx context.Context, names []string) error {
	if _, err := s.db.Exec(ctx, ensureQueuesSQL, names); err != nil {
		return fmt.Errorf("insert the rows of queues: %w", err)
	}
	return nil
}
