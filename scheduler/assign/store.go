package assign

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// sweep reads the jobs of all scans in one order. jobs is a slice to reuse.
func sweep(ctx context.Context, pool *pgxpool.Pool, scans []scanPage, jobs []job) ([]job, jobstore.Scanned, error) {
	reads := make([]jobstore.Scan, len(scans))
	for i := range scans {
		reads[i] = scans[i].jobstoreScan()
	}
	scanned, err := jobstore.New(pool).ScanAvailable(ctx, reads, lookahead, func(found *jobstore.AvailableJob) {
		j := job{
			position: position{found.Priority, found.ScheduledAt, found.ID}, kind: found.Kind, queue: found.Queue,
			capability: found.Capability, dueIn: found.DueIn, scan: found.Scan, appliedAt: found.AppliedAt,
		}
		j.tags, j.unreadable = parseTags(found.Tags)
		jobs = append(jobs, j)
	})
	for _, j := range jobs {
		scans[j.scan].note(j)
	}
	return jobs, scanned, err
}
