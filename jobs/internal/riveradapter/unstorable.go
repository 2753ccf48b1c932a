package riveradapter

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// latest is the latest time at which a job is due: later ones cannot be written as RFC 3339.
var latest = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// storableTimes returns the times at which jobs are due in a form that can be stored.
func storableTimes(times []*time.Time) []*time.Time {
	all := make([]*time.Time, len(times))
	for i, at := range times {
		if all[i] = at; at != nil && at.After(latest) {
			all[i] = &latest
		}
	}
	return all
}

// storableResult returns what is written in place of a result that PostgreSQL rejects, for
// example because of half a surrogate pair in the worker's metadata. The metadata is dropped,
// except the record of the attempt. An attempt that had not failed has failed.
func (p *Pilot) storableResult(ctx context.Context, rejected Result, reason error) Result {
	job, now := rejected.Job, time.Now()
	if postgres, ok := errors.AsType[*pgconn.PgError](reason); ok {
		reason = postgres // without what was done
	}
	p.logger.WarnContext(ctx, "the result of a job cannot be stored; its metadata is dropped", "job_id", job.ID, "job", job.Kind, "error", reason)
	text := ""
	if rejected.Params.ErrData == nil {
		text = "the job's result cannot be stored: " + reason.Error()
	}
	metadata := recordOf(job, rejected.Params.MetadataUpdates, text)
	if text == "" {
		params := *rejected.Params
		params.MetadataUpdates, params.MetadataDoMerge = metadata, metadata != nil
		return Result{job, rejected.End, &params}
	}
	failure, _ := json.Marshal(rivertype.AttemptError{At: rejected.End.UTC(), Attempt: job.Attempt, Error: text}) // plain data
	if job.Attempt >= job.MaxAttempts {
		return Discarded(job, now, failure, metadata)
	}
	return Retried(job, now, p.nextRetry(job), failure, metadata)
}

// recordOf returns the record of the attempt alone, as a failure if there is a text; nil if the
// metadata has none.
func recordOf(job *rivertype.JobRow, metadata []byte, text string) []byte {
	key := jobstore.KeyAttempt + strconv.Itoa(job.Attempt)
	var all map[string]json.RawMessage
	var record jobstore.Attempt
	if json.Unmarshal(metadata, &all) != nil || json.Unmarshal(all[key], &record) != nil {
		return nil
	}
	if text != "" {
		record.Outcome, record.Error = jobstore.OutcomeFailed, text
	}
	alone, _ := json.Marshal(map[string]jobstore.Attempt{key: record}) // plain data
	return alone
}

// setStateOfEach is setStateIn outside of a transaction for results some of which cannot be
// stored: it writes each half by itself.
func (p *Pilot) setStateOfEach(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	jobs, err := p.setStateIn(ctx, nil, params)
	if !jobstore.IsUnstorable(err) {
		return jobs, err
	}
	if len(params.ID) == 1 {
		row := p.buffer.rows(params.ID)[0]
		if row == nil {
			return nil, err
		}
		one := Result{Job: row, End: time.Now(), Params: &riverdriver.JobSetStateIfRunningParams{
			ID: params.ID[0], Attempt: params.Attempt[0], ErrData: params.ErrData[0], FinalizedAt: params.FinalizedAt[0],
			MetadataUpdates: params.MetadataUpdates[0], ScheduledAt: params.ScheduledAt[0], State: params.State[0],
		}}
		return p.setStateIn(ctx, nil, paramsOf([]Result{p.storableResult(ctx, one, err)}))
	}
	half := len(params.ID) / 2
	first, failed := p.setStateOfEach(ctx, selected(params, func(i int) bool { return i < half }))
	if failed != nil {
		return nil, failed
	}
	second, failed := p.setStateOfEach(ctx, selected(params, func(i int) bool { return i >= half }))
	return append(first, second...), failed
}
