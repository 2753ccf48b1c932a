package riveradapter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
)

// complete writes the plain successes among the results, in the order of their ids. It
// returns their rows, and the results that remain to be written.
func (p *Pilot) complete(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, *riverdriver.JobSetStateIfRunningManyParams, error) {
	plain := plainSuccesses(params)
	if len(plain) == 0 {
		return nil, params, nil
	}
	ids, ends := make([]int64, len(plain)), make([]*time.Time, len(plain))
	for n, i := range plain {
		ids[n], ends[n] = params.ID[i], params.FinalizedAt[i]
	}
	done, err := p.store.Complete(ctx, ids, ends, claimedAts(p.buffer.rows(ids)))
	if err != nil {
		return nil, nil, fmt.Errorf("complete jobs: %w", err)
	}
	completed := map[int64]*rivertype.JobRow{}
	for i, row := range p.buffer.rows(done) {
		if row != nil {
			completed[done[i]] = row
		}
	}
	jobs := make([]*rivertype.JobRow, 0, len(completed))
	for n, id := range ids {
		if row, ok := completed[id]; ok {
			jobs = append(jobs, asCompleted(row, *ends[n]))
		}
	}
	return jobs, without(params, completed), nil
}

// claimedAts returns the time of each claim, or nil for an unknown row. This time
// identifies an attempt. The attempt number does not, because a snooze decrements it.
func claimedAts(rows []*rivertype.JobRow) []*time.Time {
	instants := make([]*time.Time, len(rows))
	for i, row := range rows {
		if row != nil {
			instants[i] = row.AttemptedAt
		}
	}
	return instants
}

// plainSuccesses returns the indexes of the results that only report success, ordered by
// job id.
func plainSuccesses(params *riverdriver.JobSetStateIfRunningManyParams) []int {
	var plain []int
	for i, state := range params.State {
		if state == rivertype.JobStateCompleted && params.FinalizedAt[i] != nil && !params.MetadataDoMerge[i] &&
			params.Attempt[i] == nil && params.ErrData[i] == nil && params.ScheduledAt[i] == nil {
			plain = append(plain, i)
		}
	}
	slices.SortFunc(plain, func(a, b int) int { return cmp.Compare(params.ID[a], params.ID[b]) })
	return plain
}

// asCompleted returns the row as the database has it now. It does not change the claimed
// row, which the worker still uses.
func asCompleted(row *rivertype.JobRow, end time.Time) *rivertype.JobRow {
	job := *row
	end = end.UTC()
	job.State, job.FinalizedAt = rivertype.JobStateCompleted, &end
	return &job
}

// without returns the results of all other jobs.
func without(params *riverdriver.JobSetStateIfRunningManyParams, written map[int64]*rivertype.JobRow) *riverdriver.JobSetStateIfRunningManyParams {
	return selected(params, func(i int) bool {
		_, ok := written[params.ID[i]]
		return !ok
	})
}

// selected returns the results whose indexes are wanted.
func selected(params *riverdriver.JobSetStateIfRunningManyParams, wanted func(i int) bool) *riverdriver.JobSetStateIfRunningManyParams {
	some := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for i, id := range params.ID {
		if !wanted(i) {
			continue
		}
		some.ID = append(some.ID, id)
		some.Attempt = append(some.Attempt, params.Attempt[i])
		some.ErrData = append(some.ErrData, params.ErrData[i])
		some.FinalizedAt = append(some.FinalizedAt, params.FinalizedAt[i])
		some.MetadataDoMerge = append(some.MetadataDoMerge, params.MetadataDoMerge[i])
		some.MetadataUpdates = append(some.MetadataUpdates, params.MetadataUpdates[i])
		some.ScheduledAt = append(some.ScheduledAt, params.ScheduledAt[i])
		some.State = append(some.State, params.State[i])
	}
	return some
}
