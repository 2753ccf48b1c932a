package jobstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Priorities is the number of priorities, from 1 on.
const Priorities = 4

// Each scan reads one queue in the order of the index of available and running jobs: for each
// priority from the scan's position in it. A scan without jobs has one row, without an id.
// Without OFFSET, each row would look up whether its queue is paused. SELECT hides the number of
// the queues from the planner.
// The same snapshot reads when the configuration in force was applied, so a job is never
// placed with definitions that are older than the job.
var scanSQL = `
SELECT j.id, j.kind, s.queue, j.priority, j.scheduled_at,
    coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags',
    extract(epoch FROM greatest(j.scheduled_at, 'epoch') - clock_timestamp())::float8, s.n,
    (SELECT max(applied_at) FROM forge_config), now(), s.paused
FROM (SELECT *, EXISTS (SELECT FROM river_queue AS q WHERE q.name = scan.queue AND q.paused_at IS NOT NULL) AS paused
      FROM unnest((SELECT $1::text[]), $2::integer[], $3::smallint[], $4::timestamptz[], $5::bigint[], $6::timestamptz[],
          $7::bigint[], $8::timestamptz[], $9::bigint[], $10::timestamptz[], $11::bigint[]) WITH ORDINALITY
          AS scan (queue, most, first, at1, id1, at2, id2, at3, id3, at4, id4, n)
      OFFSET 0) AS s
LEFT JOIN LATERAL (` + scanPrioritiesSQL() + `
    LIMIT s.most
) AS j ON true
ORDER BY j.priority, j.scheduled_at, j.id`

// planOnceSQL makes PostgreSQL plan the next statements of the batch once for each connection and
// each change of their tables. By default, it would plan statements anew each time that it first
// executed on a small table, or that have few arguments, because their plans were cheaper then.
const planOnceSQL = `set_config('plan_cache_mode', 'force_generic_plan', true)`

// scanPrioritiesSQL reads the priorities one after another, until the limit is reached.
func scanPrioritiesSQL() string {
	parts := make([]string, Priorities)
	for i := range parts {
		parts[i] = strings.ReplaceAll(`
    (SELECT id, kind, priority, scheduled_at, metadata
     FROM river_job
     WHERE state = 'available' AND `+isOpen+` AND queue = s.queue AND priority = #
       AND (scheduled_at, id) > (s.at#, s.id#) AND scheduled_at <= now() + (SELECT $12::interval)
       AND s.first <= # AND NOT s.paused
     ORDER BY scheduled_at, id
     LIMIT s.most)`, "#", strconv.Itoa(i+1))
	}
	return strings.Join(parts, `
    UNION ALL`)
}

// The first available job up to a position, of one queue and priority.
const lowestSQL = `
SELECT s.n, j.scheduled_at, j.id
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[]) WITH ORDINALITY AS s (queue, priority, at, id, n)
CROSS JOIN LATERAL (
    SELECT scheduled_at, id
    FROM river_job
    WHERE state = 'available' AND ` + isOpen + ` AND queue = s.queue AND priority = s.priority
      AND (scheduled_at, id) <= (s.at, s.id)
    ORDER BY scheduled_at, id
    LIMIT 1
) AS j`

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

// Position is a position in one priority of a queue. The zero value is before every job.
type Position struct {
	ScheduledAt time.Time // zero: -infinity
	ID          int64
}

func (p Position) instant() pgtype.Timestamptz {
	if p.ScheduledAt.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: p.ScheduledAt, Valid: true}
}

// Before reports whether p is before another position.
func (p Position) Before(other Position) bool {
	return p.ScheduledAt.Before(other.ScheduledAt) || p.ScheduledAt.Equal(other.ScheduledAt) && p.ID < other.ID
}

// Scan is a read of one queue in the order in which its jobs are offered.
type Scan struct {
	Queue string
	// First is the first priority that the scan reads.
	First int16
	// After has for each priority, from 1 on, the position after which the scan reads.
	After [Priorities]Position
	// Limit is the maximum number of jobs.
	Limit int
}

// Scanned describes the scans of one ScanAvailable.
type Scanned struct {
	// Now is when the scans began, by the database's clock.
	Now time.Time
	// Paused reports for each scan whether its queue is paused.
	Paused []bool
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
// for each job; the job is only valid during the call, except its strings. Equal strings of
// one call share their memory.
func (s *Store) ScanAvailable(ctx context.Context, scans []Scan, lookahead time.Duration, found func(*AvailableJob)) (Scanned, error) {
	scanned := Scanned{Paused: make([]bool, len(scans))}
	r := scanReader{words: map[string]string{}}
	var batch pgx.Batch
	batch.Queue(`SELECT ` + planOnceSQL)
	batch.Queue(scanSQL, scanArgs(scans, lookahead)...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, r.targets(), func() error {
			scanned.Now, scanned.Paused[r.ordinal-1] = r.now.Time, r.paused
			if r.id.Valid {
				found(r.job())
			}
			return nil
		})
		return err
	})
	if err := s.db.SendBatch(ctx, &batch).Close(); err != nil {
		return scanned, fmt.Errorf("scan available jobs: %w", err)
	}
	return scanned, nil
}

func scanArgs(scans []Scan, lookahead time.Duration) []any {
	queues, limits, first := make([]string, len(scans)), make([]int32, len(scans)), make([]int16, len(scans))
	var times [Priorities][]pgtype.Timestamptz
	var ids [Priorities][]int64
	for i, scan := range scans {
		queues[i], limits[i], first[i] = scan.Queue, int32(scan.Limit), scan.First
		for p, after := range scan.After {
			times[p], ids[p] = append(times[p], after.instant()), append(ids[p], after.ID)
		}
	}
	args := []any{queues, limits, first}
	for p := range Priorities {
		args = append(args, times[p], ids[p])
	}
	return append(args, lookahead)
}

// scanReader reads the rows of scanSQL. A sweep reads thousands of rows of few kinds, so each
// kind, queue and capability is copied once.
type scanReader struct {
	words                     map[string]string
	id                        pgtype.Int8
	kind, queue, capability   pgtype.DriverBytes
	priority                  pgtype.Int2
	scheduledAt, applied, now pgtype.Timestamptz
	tags                      pgtype.DriverBytes
	seconds                   pgtype.Float8
	ordinal                   int64
	paused                    bool

	found AvailableJob
}

func (r *scanReader) targets() []any {
	return []any{
		&r.id, &r.kind, &r.queue, &r.priority, &r.scheduledAt, &r.capability, &r.tags, &r.seconds, &r.ordinal, &r.applied,
		&r.now, &r.paused,
	}
}

func (r *scanReader) job() *AvailableJob {
	r.found = AvailableJob{
		ID: r.id.Int64, Kind: r.word(r.kind), Queue: r.word(r.queue), Priority: r.priority.Int16, ScheduledAt: r.scheduledAt.Time,
		Requirements: Requirements{Capability: r.word(r.capability), Tags: r.tags},
		DueIn:        time.Duration(r.seconds.Float64 * float64(time.Second)), Scan: int(r.ordinal) - 1,
	}
	if r.applied.Valid {
		r.found.AppliedAt = r.applied.Time
	}
	return &r.found
}

func (r *scanReader) word(text []byte) string {
	if word, ok := r.words[string(text)]; ok {
		return word
	}
	word := string(text)
	r.words[word] = word
	return word
}

// Low is a position of a queue and a priority.
type Low struct {
	Queue    string
	Priority int16
	Position
}

// LowestAvailable returns for each position the first available job at it or before it, if
// there is any.
func (s *Store) LowestAvailable(ctx context.Context, upTo []Low) ([]Low, error) {
	queues, priorities := make([]string, len(upTo)), make([]int16, len(upTo))
	times, ids := make([]pgtype.Timestamptz, len(upTo)), make([]int64, len(upTo))
	for i, low := range upTo {
		queues[i], priorities[i], times[i], ids[i] = low.Queue, low.Priority, low.instant(), low.ID
	}
	found, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (low Low, err error) {
		var ordinal int64
		var scheduledAt pgtype.Timestamptz
		var id int64
		if err = row.Scan(&ordinal, &scheduledAt, &id); err != nil {
			return low, err
		}
		low = upTo[ordinal-1]
		low.Position = Position{scheduledAt.Time, id}
		return low, nil
	}, lowestSQL, queues, priorities, times, ids)
	if err != nil {
		return nil, fmt.Errorf("find available jobs below the marks: %w", err)
	}
	return found, nil
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
