package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Each scan reads one queue from a position on, in the order of River's fetching index.
// It also reads jobs that are due within lookahead: River makes a retry that is due soon
// available early, and sends no notification when it is due. The same snapshot reads when
// the configuration in force was applied, so a job is never placed with definitions that
// are older than the job.
const sweepSQL = `
SELECT j.id, j.kind, j.queue, j.priority, j.scheduled_at,
    coalesce(j.metadata ->> 'forge:capability', ''), j.metadata -> 'forge:tags',
    extract(epoch FROM j.scheduled_at - clock_timestamp())::float8, s.n,
    (SELECT max(applied_at) FROM forge_config)
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], $5::integer[]) WITH ORDINALITY
    AS s (queue, priority, scheduled_at, id, most, n)
CROSS JOIN LATERAL (
    SELECT id, kind, queue, priority, scheduled_at, metadata
    FROM river_job
    WHERE state = 'available' AND queue = s.queue
      AND (priority, scheduled_at, id) > (s.priority, s.scheduled_at, s.id)
      AND scheduled_at <= now() + $6::interval
    ORDER BY priority, scheduled_at, id
    LIMIT s.most
) AS j
WHERE NOT EXISTS (SELECT FROM river_queue AS q WHERE q.name = s.queue AND q.paused_at IS NOT NULL)
ORDER BY j.priority, j.scheduled_at, j.id`

// The condition of the fence, without its lock: an offer writes nothing, and the claim
// checks the term again. Offers need not survive a crash, so their commit does not wait
// for the disk.
const offerSQL = `
WITH f AS MATERIALIZED (
    SELECT term, set_config('synchronous_commit', 'off', true)
    FROM forge_leaders
    WHERE role = $1 AND term = $2 AND incarnation = $3
)
SELECT pg_notify(o.channel, o.payload)
FROM f, unnest($4::text[], $5::text[]) AS o (channel, payload)`

// sweep reads the jobs of all scans in one order.
func sweep(ctx context.Context, pool *pgxpool.Pool, scans []scanPage) ([]job, error) {
	var (
		queues     = make([]string, len(scans))
		priorities = make([]int16, len(scans))
		times      = make([]time.Time, len(scans))
		ids        = make([]int64, len(scans))
		limits     = make([]int32, len(scans))
	)
	for i, s := range scans {
		queues[i], limits[i] = s.queueScan.queue, int32(s.limit)
		priorities[i], times[i], ids[i] = s.after.priority, s.after.scheduledAt, s.after.id
	}
	rows, err := pool.Query(ctx, sweepSQL, queues, priorities, times, ids, limits, lookahead)
	if err != nil {
		return nil, fmt.Errorf("sweep available jobs: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, scanJob)
	if err != nil {
		return nil, fmt.Errorf("sweep available jobs: %w", err)
	}
	return jobs, nil
}

func scanJob(row pgx.CollectableRow) (job, error) {
	var (
		j       job
		tags    []byte
		seconds float64
		ordinal int64
		applied *time.Time
	)
	err := row.Scan(&j.id, &j.kind, &j.queue, &j.priority, &j.scheduledAt, &j.capability, &tags, &seconds, &ordinal, &applied)
	if err != nil {
		return job{}, err
	}
	j.tags, j.unreadable = parseTags(tags)
	j.dueIn = time.Duration(seconds * float64(time.Second))
	j.scan = int(ordinal) - 1
	if applied != nil {
		j.appliedAt = *applied
	}
	return j, nil
}

// send notifies every node of its offers in one round trip. If the term is over, it sends
// nothing and returns leaderstore.ErrDeposed.
func send(ctx context.Context, pool *pgxpool.Pool, fence leaderstore.Fence, schema string, offers []addressedOffer) error {
	channels, payloads := make([]string, len(offers)), make([]string, len(offers))
	for i, o := range offers {
		channels[i], payloads[i] = wire.OfferChannel(schema, o.to.incarnation), wire.Marshal(o.offer)
	}
	tag, err := pool.Exec(ctx, offerSQL, fence.Role, fence.Term, fence.Incarnation, channels, payloads)
	if err != nil {
		return fmt.Errorf("offer jobs: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("offer jobs: %w", fence.Deposed())
	}
	return nil
}
