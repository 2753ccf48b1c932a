package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// recrowdInterval is how old the count of the kinds that run may be, for the
// strategy Spread: until then what was placed since is added to it.
const recrowdInterval = 100 * time.Millisecond

// What runs, by who signed it; and, of the jobs $1 that were offered to the nodes
// $2, what none of them has claimed yet.
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

// share is some of a node's jobs: those of one queue and kind.
type share struct {
	queue, kind string
	jobs        int
}

// readRunning counts what runs, by nodestore.ClientID. Jobs that were offered, and
// are not claimed, count for the node that they were offered to.
func readRunning(ctx context.Context, db Queryer, offered map[int64]string) (map[string][]share, error) {
	ids, to := make([]int64, 0, len(offered)), make([]string, 0, len(offered))
	for id, node := range offered {
		ids, to = append(ids, id), append(to, node)
	}
	rows, err := db.Query(ctx, runningSQL, ids, to)
	if err != nil {
		return nil, fmt.Errorf("count running jobs: %w", err)
	}
	var node string
	var s share
	running := map[string][]share{}
	_, err = pgx.ForEachRow(rows, []any{&node, &s.queue, &s.kind, &s.jobs}, func() error {
		running[node] = append(running[node], s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count running jobs: %w", err)
	}
	return running, nil
}

// crowdOf adds up a node's jobs by kind.
func crowdOf(shares []share) map[string]int {
	crowd := map[string]int{}
	for _, s := range shares {
		crowd[s.kind] += s.jobs
	}
	return crowd
}

// recrowd counts what runs where anew, unless that was done a moment ago or the
// strategy does not ask for it.
func (l *loop) recrowd(ctx context.Context) error {
	if l.board.strategy != Spread || l.lastTurn.Sub(l.crowdedAt) < recrowdInterval {
		return nil
	}
	offered := map[int64]string{}
	for id, f := range l.flights {
		if m := l.board.known[f.incarnation]; m != nil && l.lastTurn.Sub(f.at) < l.patience() {
			offered[id] = m.clientID
		}
	}
	var running map[string][]share
	err := l.within(ctx, func(ctx context.Context) (err error) {
		running, err = readRunning(ctx, l.pool, offered)
		return err
	})
	if err != nil {
		return err
	}
	l.crowdedAt = l.lastTurn
	for _, m := range l.board.members {
		m.crowd = crowdOf(running[m.clientID])
	}
	return nil
}
