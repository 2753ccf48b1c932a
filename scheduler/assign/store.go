package assign

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

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
