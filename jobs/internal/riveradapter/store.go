package riveradapter

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/uniquestates"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// adopt returns the jobs that unanswered claims have claimed for this client, and the ids
// that are still undecided.
func (p *Pilot) adopt(ctx context.Context, ids []int64) (result *riverdriver.JobGetAvailableResult, undecided []int64, err error) {
	result, err = claimResult(p.store.Adopt(ctx, ids))
	if err != nil {
		return nil, nil, err
	}
	left := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		return slices.ContainsFunc(result.Jobs, func(job *rivertype.JobRow) bool { return job.ID == id })
	})
	result.Jobs = slices.DeleteFunc(result.Jobs, func(job *rivertype.JobRow) bool { return job.State != rivertype.JobStateRunning })
	if len(left) == 0 {
		return result, nil, nil
	}
	undecided, err = p.store.Undecided(ctx, left)
	return result, undecided, err
}

// setState returns the current rows, split into accepted and rejected ones.
func (p *Pilot) setState(ctx context.Context, db postgres.DB, params *riverdriver.JobSetStateIfRunningManyParams) (jobs, refused []*rivertype.JobRow, err error) {
	states := make([]string, len(params.State))
	metadata := make([][]byte, len(params.ID))
	for i, state := range params.State {
		states[i] = string(state)
		if params.MetadataDoMerge[i] {
			metadata[i] = storable(params.MetadataUpdates[i])
		}
	}
	rows, err := p.store.SetState(ctx, db, jobstore.Results{
		IDs: params.ID, Attempts: params.Attempt, Errors: p.storableErrors(params.ID, params.ErrData), FinalizedAts: params.FinalizedAt,
		Metadata: metadata, ScheduledAts: params.ScheduledAt, States: states, ClaimedAts: claimedAts(p.buffer.rows(params.ID)),
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		job, _ := decode(&rows[i].Row) // as in River: one bad row must not affect the others
		if rows[i].Mine {
			jobs = append(jobs, job)
		} else {
			refused = append(refused, job)
		}
	}
	return jobs, refused, nil
}

// claimResult converts claimed rows to River's result.
func claimResult(rows []jobstore.Row, err error) (*riverdriver.JobGetAvailableResult, error) {
	if err != nil {
		return nil, err
	}
	result := &riverdriver.JobGetAvailableResult{}
	for i := range rows {
		job, err := decode(&rows[i])
		if err != nil {
			if result.DecodeErrors == nil {
				result.DecodeErrors = map[int64]error{}
			}
			result.DecodeErrors[job.ID] = err
		}
		result.Jobs = append(result.Jobs, job)
	}
	return result, nil
}

// decode converts a row to River's type. It always returns a row. If it returns an error, the fields that could not be
// decoded are empty.
func decode(r *jobstore.Row) (*rivertype.JobRow, error) {
	job := rivertype.JobRow{
		ID: r.ID, EncodedArgs: r.Args, Attempt: r.Attempt, AttemptedAt: utc(r.AttemptedAt), AttemptedBy: r.AttemptedBy,
		CreatedAt: r.CreatedAt.UTC(), FinalizedAt: utc(r.FinalizedAt), Kind: r.Kind, MaxAttempts: r.MaxAttempts,
		Metadata: r.Metadata, Priority: r.Priority, Queue: r.Queue, ScheduledAt: r.ScheduledAt.UTC(),
		State: rivertype.JobState(r.State), Tags: r.Tags, UniqueKey: r.UniqueKey,
	}
	if r.UniqueStates.Valid && len(r.UniqueStates.Bytes) > 0 {
		job.UniqueStates = uniquestates.UniqueBitmaskToStates(r.UniqueStates.Bytes[0])
	}
	job.Errors = make([]rivertype.AttemptError, len(r.Errors))
	var firstErr error
	for i, raw := range r.Errors {
		firstErr = cmp.Or(firstErr, riverdriver.UnmarshalAttemptError(raw, &job.Errors[i]))
	}
	if firstErr != nil {
		job.Errors = nil
	}
	return &job, firstErr
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
