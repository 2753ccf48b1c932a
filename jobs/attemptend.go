package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/tidwall/gjson"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

// keySnoozes is River's metadata key for how often a job was snoozed.
const keySnoozes = "snoozes"

// attemptEnd is how the worker of an attempt ended.
type attemptEnd struct {
	err             error // errPanic for a panic
	cause           error // why the attempt was cancelled; nil if it was not
	panicked, trace string
}

// result returns the job's new state as River's executor would set it.
func (e *executor) result(t *task, started time.Time, end attemptEnd, recorded jobstore.Attempt) riveradapter.Result {
	now := time.Now()
	if end.err != nil && end.trace == "" && errors.Is(end.cause, rivertype.ErrJobCancelledRemotely) {
		end.err = end.cause
	}
	if !recorded.Plain() {
		t.updates()[jobstore.KeyAttempt+strconv.Itoa(t.job.Attempt)] = recorded
	}
	snooze, snoozed := errors.AsType[*rivertype.JobSnoozeError](end.err)
	if snoozed {
		t.updates()[keySnoozes] = gjson.GetBytes(t.job.Metadata, keySnoozes).Int() + 1
	}
	metadata, err := t.encodedUpdates(recorded)
	if err != nil && end.err == nil {
		end.err = err
	}
	switch {
	case end.err == nil:
		return riveradapter.Completed(t.job, now, metadata)
	case snoozed:
		return riveradapter.Snoozed(t.job, now, snooze.Duration, metadata)
	default:
		return e.failed(t, started, now, end, metadata)
	}
}

// encodedUpdates returns the updates of the job's metadata; nil if there are none. If the
// worker's own values cannot be encoded, it returns the attempt's result and an error.
func (t *task) encodedUpdates(recorded jobstore.Attempt) ([]byte, error) {
	if t.metadata == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(t.metadata)
	if err == nil {
		return encoded, nil
	}
	alone, _ := json.Marshal(map[string]any{jobstore.KeyAttempt + strconv.Itoa(t.job.Attempt): recorded}) // plain data
	return alone, fmt.Errorf("encode the job's metadata: %w", err)
}

func (e *executor) failed(t *task, started, now time.Time, end attemptEnd, metadata []byte) riveradapter.Result {
	job, err := t.job, end.err
	_, cancelled := errors.AsType[*rivertype.JobCancelError](err)
	if !cancelled && errors.Is(end.cause, errStopped) && (errors.Is(err, context.Canceled) || errors.Is(err, errStopped)) {
		return riveradapter.Interrupted(job, now, metadata)
	}
	failure := rivertype.AttemptError{At: started.UTC(), Attempt: job.Attempt, Error: err.Error(), Trace: end.trace}
	if end.trace != "" {
		failure.Error = end.panicked
		e.logger.Error("the worker panicked", "job_id", job.ID, "job", job.Kind, "panic", end.panicked)
	}
	text, _ := json.Marshal(failure) // plain data
	switch {
	case cancelled:
		return riveradapter.Cancelled(job, now, text, metadata)
	case job.Attempt >= job.MaxAttempts, isDiscard(err):
		return riveradapter.Discarded(job, now, text, metadata)
	}
	return riveradapter.Retried(job, now, e.nextRetry(t, now), text, metadata)
}

// nextRetry returns when a failed job is due again.
func (e *executor) nextRetry(t *task, now time.Time) time.Time {
	var due time.Time
	if t.decoded {
		due = e.workersRetry(t)
	}
	if !due.IsZero() && due.Before(now) {
		e.logger.Warn("the worker's NextRetry is in the past; the default is used", "job_id", t.job.ID, "job", t.job.Kind, "next_retry", due)
	}
	if due.Before(now) { // also if it is zero
		due = e.retry.NextRetry(t.job)
	}
	return due
}

// nextRetryOf returns when a job whose attempt has ended is due again.
func (e *executor) nextRetryOf(job *rivertype.JobRow) time.Time {
	e.mu.Lock()
	t := &task{job: job, unit: e.unitOf(job)}
	e.mu.Unlock()
	if t.unit != nil {
		end := isolate(t.unit.decode)
		t.decoded = end.returned && end.err == nil
	}
	return e.nextRetry(t, time.Now())
}

// workersRetry returns when the worker wants the next attempt; zero if it panics.
func (e *executor) workersRetry(t *task) (due time.Time) {
	defer func() {
		if value := recover(); value != nil {
			e.logger.Error("the worker's NextRetry panicked; the default is used", "job_id", t.job.ID, "job", t.job.Kind, "panic", truncateText(fmt.Sprint(value)))
			due = time.Time{}
		}
	}()
	return t.unit.nextRetry()
}
