package assign

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// indexRetry is the pause after an index of a fair queue could not be built.
const indexRetry = time.Minute

// indexBuild builds and drops indexes of fair queues beside the loop: one at a time, because
// each waits for all older transactions.
type indexBuild struct {
	next    indexWork     // the next change, or nil
	ended   chan struct{} // closed when the running change has ended; nil if none was started
	err     error         // set before ended is closed
	retryAt time.Time
	// none reports that there was no index and none was needed at the last read.
	none bool
}

// indexWork changes an index.
type indexWork func(ctx context.Context, store *jobstore.Store) error

func (b *indexBuild) hasEnded() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// wait waits until the running change has ended.
func (b *indexBuild) wait() {
	if b.ended != nil {
		<-b.ended
	}
}

// readFair reads which indexes are ready, applies that to the queues, and notes which index is
// to be built or dropped next.
func (l *loop) readFair(ctx context.Context) error {
	wanted := l.nodes.inForce.fair
	if len(wanted) == 0 && l.index.none {
		return nil
	}
	var indexes []jobstore.FairIndex
	err := l.within(ctx, func(ctx context.Context) (err error) {
		indexes, err = jobstore.New(l.pool).FairIndexes(ctx)
		return err
	})
	if err != nil {
		return err
	}
	ready := map[string]bool{}
	for _, index := range indexes {
		ready[index.Name] = index.Ready
	}
	for name, q := range l.queueScans {
		fair, ok := wanted[name]
		q.setFair(fair, ok && ready[fair.IndexName()])
	}
	l.index.next, l.index.none = nextIndexWork(wanted, indexes), len(indexes)+len(wanted) == 0
	return nil
}

// nextIndexWork returns the next change that the queues need, or nil. An index that is not ready
// and that no session builds is what an interrupted build left.
func nextIndexWork(wanted map[string]jobstore.FairQueue, indexes []jobstore.FairIndex) indexWork {
	missing := map[string]jobstore.FairQueue{}
	for _, q := range wanted {
		missing[q.IndexName()] = q
	}
	for _, index := range indexes {
		_, needed := missing[index.Name]
		switch {
		case !index.Ready && index.Building:
			return nil
		case !index.Ready || !needed:
			return func(ctx context.Context, store *jobstore.Store) error { return store.DropFairIndex(ctx, index.Name) }
		}
		delete(missing, index.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		return func(ctx context.Context, store *jobstore.Store) error {
			return store.CreateFairIndex(ctx, missing[name])
		}
	}
	return nil
}

// startIndexWork starts the next change, unless one runs or has failed a short time ago. Its
// end triggers a step, which reads the indexes again.
func (l *loop) startIndexWork(ctx context.Context) {
	work := l.index.next
	if work == nil || l.index.ended != nil || l.lastStep.Before(l.index.retryAt) {
		return
	}
	ended := make(chan struct{})
	l.index.ended, l.index.next = ended, nil
	go func() {
		defer l.below.interrupt()
		defer close(ended)
		l.index.err = work(ctx, jobstore.New(l.pool))
	}()
}

// finishIndexWork takes the result of a change that has ended.
func (l *loop) finishIndexWork(ctx context.Context) {
	if !l.index.hasEnded() {
		return
	}
	l.index.ended, l.nodesAt = nil, time.Time{}
	if err := l.index.err; err != nil {
		l.index.retryAt = l.lastStep.Add(indexRetry)
		l.logger.WarnContext(ctx, "cannot change the index of a fair queue; a queue without its index is offered by priority and time",
			"error", err, "retry_in", indexRetry)
	}
}
