package jobstore

import (
	"context"
	"time"
)

// followPause is how often a followed job is read.
const followPause = 250 * time.Millisecond

// LogReader reads jobs and their output for Follow.
type LogReader interface {
	Get(ctx context.Context, id int64) (Job, error)
	Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]LogChunk, error)
}

// Follow passes on the output of a job after a chunk, as it is written. With an
// attempt it returns when that attempt has ended. With 0 it starts with the newest
// attempt and continues with later ones until the job has finished. It returns the
// first error, and ErrNotFound if the job is removed meanwhile.
func Follow(ctx context.Context, reader LogReader, id int64, attempt, afterSeq int, pass func([]LogChunk) error) error {
	shown := attempt
	for begun := false; ; begun = true {
		// The job is read before its output: the output of an attempt is stored
		// before the attempt ends.
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

// passOn passes on the stored chunks after a chunk, and returns the number of the
// last one.
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

// LastAttempt returns the newest attempt that began, 0 if there is none. An attempt
// that was interrupted or snoozed runs again with the same number, which the job
// reaches only when it does.
func (j Job) LastAttempt() int {
	last := j.Attempt
	for _, attempt := range j.Attempts {
		last = max(last, attempt.Attempt)
	}
	return last
}

// ended reports whether an attempt writes no more output. An attempt that will run
// again with the same number has not ended.
func (j Job) ended(attempt int) bool {
	return j.Attempt > attempt || j.Attempt == attempt && j.State != "running"
}
