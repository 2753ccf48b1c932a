package rescue

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// nodeLost begins the error of an attempt whose node is gone; how it went follows. The
// node's id is recorded beside it: dead letters are grouped by their errors.
const nodeLost = "node lost: "

// orphan is a running job whose node is gone.
type orphan struct {
	id          int64
	kind        string
	queue       string
	attempt     int
	maxAttempts int
	attemptedAt time.Time
	// cancelAsked: someone asked for its cancellation.
	cancelAsked bool
}

// verdict is what becomes of an orphan.
type verdict struct {
	id       int64
	state    string
	err      []byte // River's AttemptError
	metadata []byte // to be merged
}

// next is the state of the job after its lost attempt.
func (o orphan) next() rivertype.JobState {
	switch {
	case o.cancelAsked:
		return rivertype.JobStateCancelled
	case o.attempt >= o.maxAttempts:
		return rivertype.JobStateDiscarded
	default:
		return rivertype.JobStateAvailable
	}
}

// judge decides about an orphan of a process at the database's time now. The
// lost attempt counts: a job that kills its nodes must come to an end.
func (o orphan) judge(process lostProcess, now time.Time) (verdict, error) {
	failure := nodeLost + process.how
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
