package riveradapter

import (
	"context"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"
)

const (
	// resultDelay is how long a result waits for more results.
	resultDelay = 5 * time.Millisecond
	// manyResults is how many results are written without waiting for more of them.
	manyResults = 700
)

// resultBuffer contains the results of forge's executor that are not written yet. It contains
// at most one result for each job in the claim buffer.
type resultBuffer struct {
	// some receives a signal when there is a result, many when there are manyResults.
	// failed receives a signal when there is a result whose write has failed. Each has
	// room for one signal.
	some, many, failed chan struct{}

	mu      sync.Mutex
	results []Result
	retries []Result // their last write has failed
}

func newResultBuffer() *resultBuffer {
	return &resultBuffer{some: make(chan struct{}, 1), many: make(chan struct{}, 1), failed: make(chan struct{}, 1)}
}

func (b *resultBuffer) add(result Result) {
	b.mu.Lock()
	b.results = append(b.results, result)
	n := len(b.results)
	b.mu.Unlock()
	switch n {
	case 1:
		signal(b.some)
	case manyResults:
		signal(b.many)
	}
}

// await waits until there are results to write. It returns false if ctx has ended.
func (b *resultBuffer) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-b.many:
		return true
	case <-b.some:
	}
	timer := time.NewTimer(resultDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-b.many:
	case <-timer.C:
	}
	return true
}

// take removes all results.
func (b *resultBuffer) take() []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	results := b.results
	if len(results) > 0 {
		b.results = make([]Result, 0, len(results))
	}
	return results
}

// retry keeps results whose write has failed.
func (b *resultBuffer) retry(results []Result) {
	if len(results) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retries = append(b.retries, results...)
	signal(b.failed)
}

// takeRetries removes all results whose last write has failed.
func (b *resultBuffer) takeRetries() []Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	retries := b.retries
	b.retries = nil
	return retries
}

// unwritten returns the number of results whose write has failed.
func (b *resultBuffer) unwritten() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.retries)
}

// paramsOf returns the parameters of River for results.
func paramsOf(results []Result) *riverdriver.JobSetStateIfRunningManyParams {
	all := &riverdriver.JobSetStateIfRunningManyParams{}
	for i := range results {
		one := results[i].Params
		if one == nil {
			one = riverdriver.JobSetStateCompleted(results[i].Job.ID, results[i].End, nil)
		}
		all.ID = append(all.ID, one.ID)
		all.Attempt = append(all.Attempt, one.Attempt)
		all.ErrData = append(all.ErrData, one.ErrData)
		all.FinalizedAt = append(all.FinalizedAt, one.FinalizedAt)
		all.MetadataDoMerge = append(all.MetadataDoMerge, one.MetadataDoMerge)
		all.MetadataUpdates = append(all.MetadataUpdates, one.MetadataUpdates)
		all.ScheduledAt = append(all.ScheduledAt, one.ScheduledAt)
		all.State = append(all.State, one.State)
	}
	return all
}
