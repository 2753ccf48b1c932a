package riveradapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// retryPage is how many results whose write has failed are written at once.
const retryPage = 100

// Ended records how an attempt on forge's executor ended, and frees its slot. The result
// is written soon.
func (p *Pilot) Ended(result Result) {
	p.pending.add(result)
	p.buffer.finish(result.Job.Queue, result.Job.ID)
}

// writeEnded writes the results that have no failed write.
func (p *Pilot) writeEnded(ctx context.Context) error {
	left, err := p.write(ctx, p.pending.take())
	p.pending.retry(left)
	return err
}

// write writes results, and acknowledges those that the database has written or rejected. It
// returns the others with an error.
func (p *Pilot) write(ctx context.Context, results []Result) (left []Result, err error) {
	if len(results) == 0 {
		return nil, nil
	}
	failpoint.Hit("jobs/before-complete")
	plain, others := byShape(results)
	written, err := p.store.WriteResults(ctx, successes(plain), p.othersOf(others))
	if err != nil {
		return results, fmt.Errorf("write results: %w", err)
	}
	p.acknowledge(ctx, others, written.Rows)
	left = p.acknowledgePlain(plain, written.Completed)
	if len(left) == 0 {
		return nil, nil
	}
	// They are rejected, or an earlier request has written them: read their rows to find out.
	written, err = p.store.WriteResults(ctx, jobstore.Successes{}, p.othersOf(left))
	if err != nil {
		return left, fmt.Errorf("write results: %w", err)
	}
	p.acknowledge(ctx, left, written.Rows)
	return nil, nil
}

// byShape returns the plain successes in the order of their ids, and the other results.
func byShape(results []Result) (plain, others []Result) {
	plain = make([]Result, 0, len(results))
	for _, result := range results {
		if result.Params == nil {
			plain = append(plain, result)
		} else {
			others = append(others, result)
		}
	}
	slices.SortFunc(plain, func(a, b Result) int { return cmp.Compare(a.Job.ID, b.Job.ID) })
	return plain, others
}

func successes(plain []Result) jobstore.Successes {
	s := jobstore.Successes{
		IDs: make([]int64, len(plain)), Ends: make([]*time.Time, len(plain)), ClaimedAts: make([]*time.Time, len(plain)),
	}
	for i := range plain {
		s.IDs[i], s.Ends[i], s.ClaimedAts[i] = plain[i].Job.ID, &plain[i].End, plain[i].Job.AttemptedAt
	}
	return s
}

func (p *Pilot) othersOf(results []Result) *jobstore.Results {
	if len(results) == 0 {
		return nil
	}
	all := p.results(paramsOf(results))
	return &all
}

// acknowledge removes results whose current rows the database has returned.
func (p *Pilot) acknowledge(ctx context.Context, results []Result, rows []jobstore.ResultRow) {
	if len(results) == 0 {
		return
	}
	current, refused := splitRows(rows)
	p.reportRefused(ctx, refused)
	p.announceRows(results, current)
	p.buffer.acknowledged(jobIDs(results))
}

// acknowledgePlain removes the plain successes that were written, and returns the others.
func (p *Pilot) acknowledgePlain(plain []Result, completed []int64) (left []Result) {
	written := plain
	if len(completed) < len(plain) {
		slices.Sort(completed)
		written = nil
		for _, result := range plain {
			if _, ok := slices.BinarySearch(completed, result.Job.ID); ok {
				written = append(written, result)
			} else {
				left = append(left, result)
			}
		}
	}
	p.announcePlain(written)
	p.buffer.acknowledged(completed)
	return left
}

// rewriteResults writes results whose write has failed until ctx ends.
func (p *Pilot) rewriteResults(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.pending.failed:
		}
		failed := false
		for page := range slices.Chunk(p.pending.takeRetries(), retryPage) {
			failed = p.rewrite(ctx, page) != nil || failed
		}
		p.buffer.wake()
		if failed && !watchdog.Sleep(ctx, retryInterval) {
			return
		}
	}
}

// rewrite writes results whose write has failed. It keeps those that it cannot write. If
// another transaction has locked some of their rows, or some cannot be stored, it writes each
// half by itself, so that only these results are kept. One that cannot be stored becomes a
// failure.
func (p *Pilot) rewrite(ctx context.Context, page []Result) error {
	var left []Result
	err := p.bounded(ctx, func(ctx context.Context) (err error) {
		left, err = p.write(ctx, page)
		return err
	})
	unstorable := jobstore.IsUnstorable(err)
	if half := len(left) / 2; half > 0 && (unstorable || jobstore.IsLocked(err)) {
		return errors.Join(p.rewrite(ctx, left[:half]), p.rewrite(ctx, left[half:]))
	}
	if unstorable {
		left = []Result{p.storableResult(ctx, left[0], err)}
	}
	p.pending.retry(left)
	return err
}

func jobIDs(results []Result) []int64 {
	ids := make([]int64, len(results))
	for i := range results {
		ids[i] = results[i].Job.ID
	}
	return ids
}
