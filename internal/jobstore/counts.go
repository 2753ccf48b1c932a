package jobstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// CountLimit is where the counts of Queues, Usages and CountsByQueueAndState stop.
const CountLimit = 10_000

// isWaiting is true for pending, scheduled and retryable jobs, in the words of the index of
// them by state and queue.
const isWaiting = `forge_state IN ('pending', 'scheduled', 'retryable')`

// openQueuesSQL is a recursive CTE with the queues of available and running jobs, and a null at its
// end.
const openQueuesSQL = `open_queues (name) AS (
    (SELECT queue FROM river_job WHERE ` + isOpen + ` ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT queue FROM river_job WHERE ` + isOpen + ` AND queue > q.name ORDER BY queue LIMIT 1)
    FROM open_queues AS q
    WHERE q.name IS NOT NULL
)`

// openCountsSQL has the CTEs of statements that count unfinished jobs by queue and state.
// counts reads at most @limit + 1 index entries of each queue and state, and those of the
// running jobs: an index of available and running jobs cannot say which of them run. It has at
// most a thousand queues of each state. A row whose more is true has at least so many jobs. The
// orders are those of the indexes: without them, the planner may expect to find enough jobs at
// the beginning of the table.
var openCountsSQL = strings.NewReplacer("@limit", strconv.Itoa(CountLimit), "@queues", strconv.Itoa(maxWaiting)).Replace(`
WITH RECURSIVE ` + openQueuesSQL + `, waiting_queues (state, name) AS (
    (SELECT forge_state, queue FROM river_job WHERE ` + isWaiting + ` ORDER BY forge_state, queue LIMIT 1)
    UNION ALL
    SELECT j.forge_state, j.queue
    FROM waiting_queues AS q, LATERAL (
        SELECT forge_state, queue FROM river_job
        WHERE ` + isWaiting + ` AND (forge_state, queue) > (q.state, q.name)
        ORDER BY forge_state, queue LIMIT 1) AS j
), running AS MATERIALIZED (
    SELECT queue, count(*) AS jobs FROM river_job WHERE ` + isRunning + ` GROUP BY queue
), counts (queue, state, jobs, more) AS (
    SELECT q.name, 'available'::river_job_state, least(j.available, @limit), j.available > @limit
    FROM (SELECT name FROM open_queues WHERE name IS NOT NULL LIMIT @queues) AS q
    LEFT JOIN running AS r ON r.queue = q.name
    CROSS JOIN LATERAL (
        SELECT count(*) - coalesce(r.jobs, 0) AS available
        FROM (SELECT FROM river_job WHERE ` + isOpen + ` AND queue = q.name
              ORDER BY priority, scheduled_at, id LIMIT @limit + 1 + coalesce(r.jobs, 0)) AS open) AS j
    WHERE j.available > 0
    UNION ALL
    SELECT queue, 'running', jobs, false FROM running
    UNION ALL
    SELECT q.name, q.state, least(j.jobs, @limit), j.jobs > @limit
    FROM (SELECT state, name FROM waiting_queues LIMIT 3 * @queues) AS q
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs
        FROM (SELECT FROM river_job WHERE ` + isWaiting + ` AND forge_state = q.state AND queue = q.name
              ORDER BY id LIMIT @limit + 1) AS waiting) AS j
)`)

// countsSQL counts all jobs by queue and state. Of finished jobs, it reads the newest of each
// state. If there are more, all counts of the state are of these jobs alone.
var countsSQL = openCountsSQL + endedCountsSQL("completed", "state = 'completed' AND finalized_at IS NOT NULL AND forge_state IS NULL") +
	endedCountsSQL("cancelled", "forge_state = 'cancelled'") + endedCountsSQL(stateDiscarded, "forge_state = 'discarded'") + `
SELECT queue, state::text, jobs, more FROM counts WHERE jobs > 0
UNION ALL SELECT queue, 'completed', jobs, more FROM completed
UNION ALL SELECT queue, 'cancelled', jobs, more FROM cancelled
UNION ALL SELECT queue, 'discarded', jobs, more FROM discarded
ORDER BY 1, 2`

func endedCountsSQL(state, condition string) string {
	return fmt.Sprintf(`, newest_%[1]s AS MATERIALIZED (
    SELECT queue FROM river_job WHERE %[2]s ORDER BY finalized_at DESC LIMIT %[3]d + 1
), %[1]s (queue, jobs, more) AS (
    SELECT queue, least(count(*), %[3]d), (SELECT count(*) FROM newest_%[1]s) > %[3]d FROM newest_%[1]s GROUP BY queue
)`, state, condition, CountLimit)
}

// Count is the number of jobs of a queue in a state.
type Count struct {
	Queue string `json:"queue"`
	State string `json:"state"`
	Jobs  int64  `json:"jobs"`
	// More is whether the count stopped at CountLimit: there are more jobs than it says.
	More bool `json:"more,omitempty"`
}

// CountsByQueueAndState counts the jobs by queue and state, at most CountLimit of each, and of
// finished jobs at most CountLimit of each state.
func (s *Store) CountsByQueueAndState(ctx context.Context) ([]Count, error) {
	counts, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Count], countsSQL)
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return counts, nil
}
