package assign

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// recountRunningInterval is the maximum age of the count of running kinds, for the
// strategy Spread. Between two counts, the leader adds the jobs that it places.
const recountRunningInterval = 100 * time.Millisecond

// jobCount is the number of a node's jobs of one queue and kind.
type jobCount struct {
	queue, kind string
	jobs        int
}

// readRunning counts running jobs by nodestore.ClientID. An offered job that is not
// claimed yet counts for the node that it was offered to.
func readRunning(ctx context.Context, db postgres.DB, offered map[int64]string) (map[string][]jobCount, error) {
	counts, err := jobstore.New(db).RunningByClient(ctx, offered)
	running := map[string][]jobCount{}
	for _, c := range counts {
		running[c.ClientID] = append(running[c.ClientID], jobCount{c.Queue, c.Kind, c.Jobs})
	}
	return running, err
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
