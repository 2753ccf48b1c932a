package rescue

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// nodeLost is the prefix of the error of an attempt whose node is lost; the cause
// follows. The node id is stored separately, because dead letters are grouped by their
// errors.
const nodeLost = "node lost: "

// orphan is a running job whose node is lost.
type orphan struct {
	id          int64
	kind        string
	queue       string
	attempt     int
	maxAttempts int
	attemptedAt time.Time
	// cancelRequested reports whether the job's cancellation was requested.
	cancelRequested bool
}

// verdict is the new state of an orphan.
type verdict struct {
	id       int64
	state    string
	err      []byte // River's AttemptError
	metadata []byte // to merge
}

// next returns the state of the job after its lost attempt.
func (o orphan) next() rivertype.JobState {
	switch {
	case o.cancelRequested:
		return rivertype.JobStateCancelled
	case o.attempt >= o.maxAttempts:
		return rivertype.JobStateDiscarded
	default:
		return rivertype.JobStateAvailable
	}
}

// verdict returns the new state of an orphan of a process; now is the database's time. The
// lost attempt counts, so that a job that kills its nodes is discarded in the end.
func (o orphan) verdict(process lostProcess, now time.Time) (verdict, error) {
	failure := nodeLost + process.cause
	attemptError, err := json.Marshal(rivertype.AttemptError{At: now.UTC(), Attempt: o.attempt, Error: failure})
	if err != nil {
		return verdict{}, fmt.Errorf("encode the error of job %d: %w", o.id, err)
	}
	metadata, err := json.Marshal(map[string]jobstore.Attempt{
		jobstore.KeyAttempt + strconv.Itoa(o.attempt): {
			Attempt: o.attempt, NodeID: process.nodeID, StartedAt: o.attemptedAt.UTC(),
			DurationMS: float64(now.Sub(o.attemptedAt)) / float64(time.Millisecond), Outcome: jobstore.OutcomeLost, Error: failure,
		},
	})
	if err != nil {
		return verdict{}, fmt.Errorf("encode the attempt of job %d: %w", o.id, err)
	}
	return verdict{id: o.id, state: string(o.next()), err: attemptError, metadata: metadata}, nil
}
