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
func (p *Pilot) adopt(ctx context.Context, ids []int64) (claimed []Claimed, undecided []int64, err error) {
	claimed, err = claimedRows(p.store.Adopt(ctx, ids))
	if err != nil {
		return nil, nil, err
	}
	left := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		return slices.ContainsFunc(claimed, func(c Claimed) bool { return c.Job.ID == id })
	})
	claimed = slices.DeleteFunc(claimed, func(c Claimed) bool { return c.Job.State != rivertype.JobStateRunning })
	if len(left) == 0 {
		return claimed, nil, nil
	}
	undecided, err = p.store.Undecided(ctx, left)
	return claimed, undecided, err
}

// setState returns the current rows, split into accepted and rejected ones.
func (p *Pilot) setState(ctx context.Context, db postgres.DB, params *riverdriver.JobSetStateIfRunningManyParams) (jobs, refused []*rivertype.JobRow, err error) {
	rows, err := p.store.SetState(ctx, db, p.results(params))
	if err != nil {
		return nil, nil, err
	}
	jobs, refused = splitRows(rows)
	return jobs, refused, nil
}

// results converts River's results to those of the job store.
func (p *Pilot) results(params *riverdriver.JobSetStateIfRunningManyParams) jobstore.Results {
	states := make([]string, len(params.State))
	metadata := make([][]byte, len(params.ID))
	for i, state := range params.State {
		states[i] = string(state)
		if params.MetadataDoMerge[i] {
			metadata[i] = storable(params.MetadataUpdates[i])
		}
	}
	return jobstore.Results{
		IDs: params.ID, Attempts: params.Attempt, Errors: p.storableErrors(params.ID, params.ErrData), FinalizedAts: params.FinalizedAt,
		Metadata: metadata, ScheduledAts: storableTimes(params.ScheduledAt), States: states, ClaimedAts: claimedAts(p.buffer.rows(params.ID)),
	}
}

func splitRows(rows []jobstore.ResultRow) (jobs, refused []*rivertype.JobRow) {
	for i := range rows {
		job, _ := decode(&rows[i].Row) // as in River: one bad row must not affect the others
		if rows[i].Mine {
			jobs = append(jobs, job)
		} else {
			refused = append(refused, job)
		}
	}
	return jobs, refused
}

// claimedRows converts claimed rows to River's type.
func claimedRows(rows []jobstore.Row, err error) ([]Claimed, error) {
	if err != nil {
		return nil, err
	}
	claimed := make([]Claimed, len(rows))
	for i := range rows {
		claimed[i].Job, claimed[i].Err = decode(&rows[i])
	}
	return claimed, nil
}

// slabRows is how many claimed rows share an allocation. A job that runs for long keeps
// the memory of the others.
const slabRows = 16

// slab allocates rows in groups.
type slab struct{ free []rowWithTime }

type rowWithTime struct {
	job         rivertype.JobRow
	attemptedAt time.Time
}

// decode is decode for a row that is valid only during the call.
func (s *slab) decode(r *jobstore.Row) Claimed {
	if len(s.free) == 0 {
		s.free = make([]rowWithTime, slabRows)
	}
	place := &s.free[0]
	s.free = s.free[1:]
	if r.AttemptedAt != nil {
		place.attemptedAt = *r.AttemptedAt
		r.AttemptedAt = &place.attemptedAt
	}
	return Claimed{Job: &place.job, Err: decodeInto(&place.job, r)}
}

// decode converts a row to River's type. It always returns a row. If it returns an error,
// the fields that could not be decoded are empty.
func decode(r *jobstore.Row) (*rivertype.JobRow, error) {
	job := &rivertype.JobRow{}
	return job, decodeInto(job, r)
}

func decodeInto(job *rivertype.JobRow, r *jobstore.Row) error {
	*job = rivertype.JobRow{
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
	return firstErr
}

// utc sets the location of a time, if there is one.
func utc(t *time.Time) *time.Time {
	if t != nil {
		*t = t.UTC()
	}
	return t
}
