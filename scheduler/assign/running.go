package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// recountRunningInterval is the maximum age of the count of running kinds, for the
// strategy Spread. Between two counts, the leader adds the jobs that it places.
const recountRunningInterval = 100 * time.Millisecond

// Running jobs by client id, and those of the jobs $1, offered to the nodes $2, that are
// still unclaimed.
const runningSQL = `
SELECT attempted_by[array_upper(attempted_by, 1)], queue, kind, count(*)::int
FROM river_job
WHERE state = 'running' AND attempted_by[array_upper(attempted_by, 1)] IS NOT NULL
GROUP BY 1, 2, 3
UNION ALL
SELECT o.node, j.queue, j.kind, count(*)::int
FROM unnest($1::bigint[], $2::text[]) AS o (id, node) JOIN river_job AS j ON j.id = o.id
WHERE j.state = 'available'
GROUP BY 1, 2, 3`

// jobCount is the number of a node's jobs of one queue and kind.
type jobCount struct {
	queue, kind string
	jobs        int
}

// readRunning counts running jobs by nodestore.ClientID. An offered job that is not
// claimed yet counts for the node that it was offered to.
func readRunning(ctx context.Context, db postgres.DB, offered map[int64]string) (map[string][]jobCount, error) {
	ids, to := make([]int64, 0, len(offered)), make([]string, 0, len(offered))
	for id, node := range offered {
		ids, to = append(ids, id), append(to, node)
	}
	rows, err := db.Query(ctx, runningSQL, ids, to)
	if err != nil {
		return nil, fmt.Errorf("count running jobs: %w", err)
	}
	var node string
	var s jobCount
	running := map[string][]jobCount{}
	_, err = pgx.ForEachRow(rows, []any{&node, &s.queue, &s.kind, &s.jobs}, func() error {
		running[node] = append(running[node], s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count running jobs: %w", err)
	}
	return running, nil
}

// countByKind sums a node's jobs by kind.
func countByKind(shares []jobCount) map[string]int {
	counts := map[string]int{}
	for _, s := range shares {
		counts[s.kind] += s.jobs
	}
	return counts
}

// recountRunning counts the running jobs of each member, unless the last count is recent
// or the strategy does not need it.
func (l *loop) recountRunning(ctx context.Context) error {
	if l.nodes.strategy != Spread || l.lastStep.Sub(l.runningCountedAt) < recountRunningInterval {
		return nil
	}
	offered := map[int64]string{}
	for id, f := range l.pendingOffers {
		if m := l.nodes.known[f.incarnation]; m != nil && l.lastStep.Sub(f.at) < l.claimTimeout() {
			offered[id] = m.clientID
		}
	}
	var running map[string][]jobCount
	err := l.within(ctx, func(ctx context.Context) (err error) {
		running, err = readRunning(ctx, l.pool, offered)
		return err
	})
	if err != nil {
		return err
	}
	l.runningCountedAt = l.lastStep
	for _, m := range l.nodes.members {
		m.runningByKind = countByKind(running[m.clientID])
	}
	return nil
}
