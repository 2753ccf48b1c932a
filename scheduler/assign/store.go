package assign

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

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
	reads := make([]jobstore.Scan, len(scans))
	for i, s := range scans {
		reads[i] = jobstore.Scan{
			Queue: s.queueScan.queue, Priority: s.after.priority, ScheduledAt: s.after.scheduledAt, ID: s.after.id, Limit: s.limit,
		}
	}
	var jobs []job
	err := jobstore.New(pool).ScanAvailable(ctx, reads, lookahead, func(found *jobstore.AvailableJob) {
		j := job{
			position: position{found.Priority, found.ScheduledAt, found.ID}, kind: found.Kind, queue: found.Queue,
			capability: found.Capability, dueIn: found.DueIn, scan: found.Scan, appliedAt: found.AppliedAt,
		}
		j.tags, j.unreadable = parseTags(found.Tags)
		jobs = append(jobs, j)
	})
	return jobs, err
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
