package riveradapter

import (
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
)

// schedulerInterval is River's: a job that is due within it is made available with its
// time, not scheduled or retryable.
const schedulerInterval = 5 * time.Second

// Result is how an attempt on forge's executor ended. The functions below return the
// results that River's executor would set.
type Result struct {
	// Job is the row as claimed.
	Job *rivertype.JobRow
	End time.Time
	// Params are River's parameters of the new state; nil means that the job succeeded
	// without other changes.
	Params *riverdriver.JobSetStateIfRunningParams
}

// Completed returns a success. metadata contains updates of the job's metadata; nil means
// none, here and below.
func Completed(job *rivertype.JobRow, at time.Time, metadata []byte) Result {
	if metadata == nil {
		return Result{Job: job, End: at}
	}
	return Result{job, at, riverdriver.JobSetStateCompleted(job.ID, at, metadata)}
}

// Snoozed returns a result that lets the job run again later. The attempt does not count.
func Snoozed(job *rivertype.JobRow, at time.Time, wait time.Duration, metadata []byte) Result {
	params := riverdriver.JobSetStateSnoozed
	if wait <= schedulerInterval {
		params = riverdriver.JobSetStateSnoozedAvailable
	}
	return Result{job, at, params(job.ID, at.Add(wait), job.Attempt-1, metadata)}
}

// Interrupted returns a result that makes the job available again. The attempt does not
// count.
func Interrupted(job *rivertype.JobRow, at time.Time, metadata []byte) Result {
	return Result{job, at, riverdriver.JobSetStateInterrupted(job.ID, at, max(job.Attempt-1, 0), metadata)}
}

// Cancelled returns the result of a cancelled job. failure is River's document of the
// error, here and below.
func Cancelled(job *rivertype.JobRow, at time.Time, failure, metadata []byte) Result {
	return Result{job, at, riverdriver.JobSetStateCancelled(job.ID, at, failure, metadata)}
}

// Discarded returns the result of a job that has failed for the last time.
func Discarded(job *rivertype.JobRow, at time.Time, failure, metadata []byte) Result {
	return Result{job, at, riverdriver.JobSetStateDiscarded(job.ID, at, failure, metadata)}
}

// Retried returns the result of a failed job that is tried again at due.
func Retried(job *rivertype.JobRow, at, due time.Time, failure, metadata []byte) Result {
	params := riverdriver.JobSetStateErrorRetryable
	if due.Sub(at) <= schedulerInterval {
		params = riverdriver.JobSetStateErrorAvailable
	}
	return Result{job, at, params(job.ID, due, failure, metadata)}
}
