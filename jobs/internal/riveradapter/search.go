package riveradapter

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// searchInterval is how often the node searches for jobs that it holds without a
	// record. unsureInterval is how often it does so while an unanswered claim may still
	// be executed.
	searchInterval = time.Minute
	unsureInterval = 5 * time.Second
	// maxFound is the maximum number of jobs that one search finds.
	maxFound = 1000
)

// Search searches for jobs that the database assigns to this node and that the node has
// no record of, until ctx ends, and runs them. Such jobs exist if the server executed a
// claim long after the node gave up on it, or if the server lost a result. Search runs
// once a minute, and every few seconds while an unanswered claim may still be executed.
func (p *Pilot) Search(ctx context.Context) {
	for last := time.Now(); watchdog.Sleep(ctx, p.unsureInterval); {
		if p.buffer.mayBeUncertain() || time.Since(last) >= p.searchInterval {
			p.search(ctx)
			last = time.Now()
		}
	}
}

// search adds the jobs that it finds to the uncertain claims.
func (p *Pilot) search(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	held, err := p.store.Held(ctx, p.buffer.ownIDs(), maxFound)
	for _, job := range held {
		if p.buffer.addUncertain(job.Queue, job.ID) {
			p.logger.WarnContext(ctx, "found a running job that this node had no record of", "job_id", job.ID)
		}
	}
	if err != nil && ctx.Err() == nil {
		p.logger.WarnContext(ctx, "searching for unrecorded jobs failed; retrying", "error", err)
	}
}
