package jobstore

import (
	"context"
	"time"
)

// followPause is how often a followed job is looked at.
const followPause = 250 * time.Millisecond

// LogReader is what Follow reads through.
type LogReader interface {
	Get(ctx context.Context, id int64) (Job, error)
	Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]LogChunk, error)
}

// Follow passes the output of a job on, from what is there after a chunk to what
// comes. With an attempt it returns when that one is over; with 0 it begins with
// the newest and goes on through those that follow it until the job has finished.
// It ends with the first error, ErrNotFound when the job is removed meanwhile.
func Follow(ctx context.Context, reader LogReader, id int64, attempt, afterSeq int, pass func([]LogChunk) error) error {
	shown := attempt
	for begun := false; ; begun = true {
		// The job before its output: what an attempt wrote is stored when it ends.
		job, err := reader.Get(ctx, id)
		if err != nil {
			return err
		}
		if attempt == 0 && !begun {
			shown = job.LastAttempt()
		}
		for {
			if afterSeq, err = passOn(ctx, reader, id, shown, afterSeq, pass); err != nil {
				return err
			}
			if attempt != 0 || shown >= job.LastAttempt() {
				break
			}
			shown, afterSeq = shown+1, 0
		}
		if !job.FinalizedAt.IsZero() || attempt != 0 && job.ended(attempt) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followPause):
		}
	}
}

// passOn passes on what is there after a chunk, and returns the last one's number.
func passOn(ctx context.Context, reader LogReader, id int64, attempt, afterSeq int, pass func([]LogChunk) error) (int, error) {
	for {
		chunks, err := reader.Logs(ctx, id, attempt, afterSeq)
		if err != nil || len(chunks) == 0 {
			return afterSeq, err
		}
		if err := pass(chunks); err != nil {
			return afterSeq, err
		}
		afterSeq = chunks[len(chunks)-1].Seq
	}
}

// LastAttempt is the newest attempt that began, 0 for none. One that was
// interrupted or snoozed runs again under the same number, which the job has not
// reached until it does.
func (j Job) LastAttempt() int {
	last := j.Attempt
	for _, attempt := range j.Attempts {
		last = max(last, attempt.Attempt)
	}
	return last
}

// ended tells whether an attempt writes no more. One that is to run again under
// the same number does.
func (j Job) ended(attempt int) bool {
	return j.Attempt > attempt || j.Attempt == attempt && j.State != "running"
}
