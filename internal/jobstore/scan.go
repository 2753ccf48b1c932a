package jobstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Each scan reads one queue from a position on, in the order of River's fetching index.
// The same snapshot reads when the configuration in force was applied, so a job is never
// placed with definitions that are older than the job.
const scanSQL = `
SELECT j.id, j.kind, j.queue, j.priority, j.scheduled_at,
    coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags',
    extract(epoch FROM j.scheduled_at - clock_timestamp())::float8, s.n,
    (SELECT max(applied_at) FROM forge_config)
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], $5::integer[]) WITH ORDINALITY
    AS s (queue, priority, scheduled_at, id, most, n)
CROSS JOIN LATERAL (
    SELECT id, kind, queue, priority, scheduled_at, metadata
    FROM river_job
    WHERE state = 'available' AND ` + isOpen + ` AND queue = s.queue
      AND (priority, scheduled_at, id) > (s.priority, s.scheduled_at, s.id)
      AND scheduled_at <= now() + $6::interval
    ORDER BY priority, scheduled_at, id
    LIMIT s.most
) AS j
WHERE NOT EXISTS (SELECT FROM river_queue AS q WHERE q.name = s.queue AND q.paused_at IS NOT NULL)
ORDER BY j.priority, j.scheduled_at, j.id`

// Running jobs by client id, and those of the jobs $1, offered to the nodes $2, that are
// still unclaimed.
const runningSQL = `
SELECT attempted_by[array_upper(attempted_by, 1)], queue, kind, count(*)::int
FROM river_job
WHERE ` + isRunning + ` AND attempted_by[array_upper(attempted_by, 1)] IS NOT NULL
GROUP BY 1, 2, 3
UNION ALL
SELECT o.node, j.queue, j.kind, count(*)::int
FROM unnest($1::bigint[], $2::text[]) AS o (id, node) JOIN river_job AS j ON j.id = o.id
WHERE j.state = 'available'
GROUP BY 1, 2, 3`

const requirementsSQL = `
SELECT coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags', q.paused_at, clock_timestamp()
FROM river_job AS j LEFT JOIN river_queue AS q ON q.name = j.queue
WHERE j.id = $1`

// Scan is a read of one queue in the order in which its jobs are offered.
type Scan struct {
	Queue string
	// Priority, ScheduledAt and ID are the position after which the scan reads.
	Priority    int16
	ScheduledAt time.Time
	ID          int64
	// Limit is the maximum number of jobs.
	Limit int
}

// AvailableJob is an available job that a scan found.
type AvailableJob struct {
	ID          int64
	Kind        string
	Queue       string
	Priority    int16
	ScheduledAt time.Time
	Requirements
	// DueIn is the time until the job is due, negative for an overdue job.
	DueIn time.Duration
	// Scan is the index of the scan.
	Scan int
	// AppliedAt is when the configuration in force was applied; zero: none is.
	AppliedAt time.Time
}

// Requirements are what a job requires of the node that runs it.
type Requirements struct {
	Capability string
	Tags       []byte // JSON, which any program may have written
}

// ScanAvailable reads the jobs of all scans in the order of priority, time and id. It also
// reads jobs that are due within lookahead: River makes a retry that is due soon available
// early, and sends no notification when it is due. It reads no paused queue. It calls found
// for each job; the job is only valid during the call.
func (s *Store) ScanAvailable(ctx context.Context, scans []Scan, lookahead time.Duration, found func(*AvailableJob)) error {
	var (
		queues     = make([]string, len(scans))
		priorities = make([]int16, len(scans))
		times      = make([]time.Time, len(scans))
		ids        = make([]int64, len(scans))
		limits     = make([]int32, len(scans))
	)
	for i, scan := range scans {
		queues[i], limits[i] = scan.Queue, int32(scan.Limit)
		priorities[i], times[i], ids[i] = scan.Priority, scan.ScheduledAt, scan.ID
	}
	rows, err := s.db.Query(ctx, scanSQL, queues, priorities, times, ids, limits, lookahead)
	if err != nil {
		return fmt.Errorf("scan available jobs: %w", err)
	}
	var (
		j       AvailableJob
		seconds float64
		ordinal int64
		applied *time.Time
	)
	targets := []any{&j.ID, &j.Kind, &j.Queue, &j.Priority, &j.ScheduledAt, &j.Capability, &j.Tags, &seconds, &ordinal, &applied}
	_, err = pgx.ForEachRow(rows, targets, func() error {
		j.DueIn = time.Duration(seconds * float64(time.Second))
		j.Scan = int(ordinal) - 1
		if applied != nil {
			j.AppliedAt = *applied
		}
		found(&j)
		j.Tags, applied = nil, nil
		return nil
	})
	if err != nil {
		return fmt.Errorf("scan available jobs: %w", err)
	}
	return nil
}

// RunningCount is the number of a client's jobs of one queue and kind.
type RunningCount struct {
	ClientID    string
	Queue, Kind string
	Jobs        int
}

// RunningByClient counts running jobs. An offered job that is not claimed yet counts for
// the client that it was offered to.
func (s *Store) RunningByClient(ctx context.Context, offered map[int64]string) ([]RunningCount, error) {
	ids, to := make([]int64, 0, len(offered)), make([]string, 0, len(offered))
	for id, client := range offered {
		ids, to = append(ids, id), append(to, client)
	}
	counts, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[RunningCount], runningSQL, ids, to)
	if err != nil {
		return nil, fmt.Errorf("count running jobs: %w", err)
	}
	return counts, nil
}

// Requirements returns what a job requires, since when its queue has been paused (zero: it
// is not), and the time of the database's clock. They are zero for a job that does not
// exist.
func (s *Store) Requirements(ctx context.Context, id int64) (r Requirements, pausedAt, now time.Time, err error) {
	rows, err := s.db.Query(ctx, requirementsSQL, id)
	if err != nil {
		return r, pausedAt, now, err
	}
	var paused *time.Time
	_, err = pgx.ForEachRow(rows, []any{&r.Capability, &r.Tags, &paused, &now}, func() error {
		if paused != nil {
			pausedAt = *paused
		}
		return nil
	})
	return r, pausedAt, now, err
}
