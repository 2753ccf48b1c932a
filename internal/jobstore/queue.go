package jobstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// QueueDetail is a queue with what a list of queues does not show.
type QueueDetail struct {
	Queue
	// OldestID is the id of the available job that has waited longest; 0 if there is none.
	OldestID int64 `json:"oldest_job_id,omitempty"`
	// Dead is the number of dead letters of the queue. MoreDead is whether only those among the
	// newest CountLimit discarded jobs of all queues were counted.
	Dead     int64 `json:"dead"`
	MoreDead bool  `json:"more_dead,omitempty"`
	// Kinds are the kinds of the first jobs that wait or run.
	Kinds []string `json:"-"`
	// Known is whether a node, a limit, a row in river_queue or a job names the queue. Of finished
	// jobs, only the newest count.
	Known bool `json:"-"`
}

// recentJobs bounds the jobs whose kinds and queues are read.
const recentJobs = 1000

// queueSQL counts the jobs of one queue like queuesSQL, each by an index that begins with the
// queue. Discarded and completed jobs have none.
var queueSQL = strings.NewReplacer("@limit", strconv.Itoa(CountLimit), "@recent", strconv.Itoa(recentJobs)).Replace(`
WITH running AS MATERIALIZED (
    SELECT count(*) AS jobs FROM river_job WHERE ` + isRunning + ` AND queue = $1
), open AS MATERIALIZED (
    SELECT count(*) - r.jobs AS jobs
    FROM running AS r, LATERAL (
        SELECT FROM river_job WHERE ` + isOpen + ` AND queue = $1
        ORDER BY priority, scheduled_at, id LIMIT @limit + 1 + r.jobs) AS j
    GROUP BY r.jobs
), waiting AS MATERIALIZED (
    SELECT s.state, j.jobs
    FROM unnest('{pending,scheduled,retryable}'::river_job_state[]) AS s (state), LATERAL (
        SELECT count(*) AS jobs
        FROM (SELECT FROM river_job WHERE ` + isWaiting + ` AND forge_state = s.state AND queue = $1
              ORDER BY id LIMIT @limit + 1) AS w) AS j
), newest_discarded AS MATERIALIZED (
    SELECT queue, ` + deadSQL + ` AS dead
    FROM river_job WHERE forge_state = 'discarded' ORDER BY finalized_at DESC LIMIT @limit + 1
), discarded AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE queue = $1) AS jobs, count(*) FILTER (WHERE queue = $1 AND dead) AS dead, count(*) > @limit AS more
    FROM newest_discarded
), kinds AS MATERIALIZED (
    SELECT array_agg(DISTINCT kind) AS kinds
    FROM (SELECT kind FROM river_job WHERE ` + isOpen + ` AND queue = $1 ORDER BY priority, scheduled_at, id LIMIT @recent) AS j
), oldest AS MATERIALIZED (
    SELECT j.id, ` + boundTime + `j.scheduled_at` + inYears + ` AS scheduled_at
    FROM generate_series(1, 4) AS p (priority), LATERAL (
        SELECT id, scheduled_at FROM river_job
        WHERE ` + isAvailable + ` AND queue = $1 AND priority = p.priority
        ORDER BY scheduled_at LIMIT 1) AS j
    ORDER BY j.scheduled_at LIMIT 1
), worked AS MATERIALIZED (
    SELECT count(*) AS nodes, sum(least((queues ->> $1)::integer, slots)) AS workers
    FROM forge_nodes
    WHERE queues ? $1 AND forge_node_state(state, last_heartbeat_at, dead_after) = 'active'
)
SELECT r.paused_at, ` + pauseSQL + `, least(coalesce(open.jobs, 0), @limit), coalesce(open.jobs, 0) > @limit, running.jobs,
       least(s.jobs, @limit), s.jobs > @limit, least(t.jobs, @limit), t.jobs > @limit,
       d.dead, d.more, coalesce(l.most, 0), w.nodes, coalesce(w.workers, 0),
       coalesce(o.id, 0), o.scheduled_at, greatest(extract(epoch FROM now() - o.scheduled_at), 0)::float8, now(), coalesce(k.kinds, '{}'),
       r.name IS NOT NULL OR l.name IS NOT NULL OR coalesce(open.jobs, 0) + running.jobs > 0 OR d.jobs > 0
       OR EXISTS (SELECT FROM waiting WHERE jobs > 0)
       OR EXISTS (SELECT FROM forge_nodes WHERE queues ? $1)
       OR EXISTS (SELECT FROM (SELECT queue FROM river_job WHERE state = 'completed' AND finalized_at IS NOT NULL AND forge_state IS NULL
                               ORDER BY finalized_at DESC LIMIT @recent) AS c WHERE queue = $1)
       OR EXISTS (SELECT FROM (SELECT queue FROM river_job WHERE forge_state = 'cancelled'
                               ORDER BY finalized_at DESC LIMIT @recent) AS c WHERE queue = $1)
FROM running
CROSS JOIN discarded AS d
CROSS JOIN kinds AS k
CROSS JOIN worked AS w
JOIN waiting AS s ON s.state = 'scheduled'
JOIN waiting AS t ON t.state = 'retryable'
LEFT JOIN open ON true
LEFT JOIN oldest AS o ON true
LEFT JOIN river_queue AS r ON r.name = $1
LEFT JOIN forge_limits AS l ON l.scope IN ('queue', 'queue_all') AND l.name = $1 AND ` + limitInForce)

// Queue returns a queue. It reads a bounded number of jobs. If nothing names the queue, Known
// is false.
func (s *Store) Queue(ctx context.Context, name string) (QueueDetail, error) {
	q := QueueDetail{Queue: Queue{Name: name}}
	var pause pauseRow
	var oldest *time.Time
	var wait *float64
	err := s.db.QueryRow(ctx, queueSQL, pgx.QueryExecModeExec, name).Scan(&pause.at, &pause.facts, &q.Available, &q.MoreAvailable, &q.Running,
		&q.Scheduled, &q.MoreScheduled, &q.Retryable, &q.MoreRetryable, &q.Dead, &q.MoreDead, &q.GlobalLimit, &q.Nodes, &q.Workers,
		&q.OldestID, &oldest, &wait, &q.Now, &q.Kinds, &q.Known)
	if err != nil {
		return q, fmt.Errorf("read queue %s: %w", name, err)
	}
	if wait != nil {
		q.WaitSeconds = *wait
	}
	q.QueuePause, q.OldestAt = pause.read(), postgres.TimeOrZero(oldest)
	return q, nil
}
