package rescue

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// nodeLost is the prefix of the error of an attempt whose node is lost; the cause
// follows. The node id is stored separately, because dead letters are grouped by their
// errors.
const nodeLost = "node lost: "

// nextState returns the state of the job after its lost attempt.
func nextState(o jobstore.Orphan) rivertype.JobState {
	switch {
	case o.CancelRequested:
		return rivertype.JobStateCancelled
	case o.Attempt >= o.MaxAttempts:
		return rivertype.JobStateDiscarded
	default:
		return rivertype.JobStateAvailable
	}
}

// namedJobs is how many jobs an event names.
const namedJobs = 100

// appendRescued appends an event about released orphans of a process. Nothing else finds them
// later without reading every job.
func appendRescued(ctx context.Context, tx postgres.DB, fence leaderstore.Fence, process lostProcess, orphans []jobstore.Orphan) error {
	rescued := eventstore.Rescued{Incarnation: process.incarnation, Cause: process.cause, Jobs: len(orphans)}
	counts := map[rivertype.JobState]*int{
		rivertype.JobStateAvailable: &rescued.Available, rivertype.JobStateCancelled: &rescued.Cancelled, rivertype.JobStateDiscarded: &rescued.Discarded,
	}
	for _, o := range orphans {
		*counts[nextState(o)]++
		if len(rescued.IDs) < namedJobs {
			rescued.IDs = append(rescued.IDs, o.ID)
		}
	}
	return eventstore.New(tx).Append(ctx, eventstore.Event{
		Type: eventstore.JobsRescued, NodeID: process.nodeID, Role: fence.Role, Term: fence.Term,
	}, rescued)
}

// verdictOn returns the new state of an orphan of a process; now is the database's time. The
// lost attempt counts, so that a job that kills its nodes is discarded in the end.
func verdictOn(o jobstore.Orphan, process lostProcess, now time.Time) (jobstore.Verdict, error) {
	failure := nodeLost + process.cause
	attemptError, err := json.Marshal(rivertype.AttemptError{At: now.UTC(), Attempt: o.Attempt, Error: failure})
	if err != nil {
		return jobstore.Verdict{}, fmt.Errorf("encode the error of job %d: %w", o.ID, err)
	}
	metadata, err := json.Marshal(map[string]jobstore.Attempt{
		jobstore.KeyAttempt + strconv.Itoa(o.Attempt): {
			Attempt: o.Attempt, NodeID: process.nodeID, StartedAt: o.AttemptedAt.UTC(),
			DurationMS: float64(now.Sub(o.AttemptedAt)) / float64(time.Millisecond), Outcome: jobstore.OutcomeLost, Error: failure,
		},
	})
	if err != nil {
		return jobstore.Verdict{}, fmt.Errorf("encode the attempt of job %d: %w", o.ID, err)
	}
	return jobstore.Verdict{ID: o.ID, State: string(nextState(o)), Error: attemptError, Metadata: metadata}, nil
}
