package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

// eventsKind is the kind of the worker that passes events to River's client.
const eventsKind = "forge:events"

// eventsWorker passes the results of forge's executor to River's client, which sends them
// to its subscribers. River's client also needs at least one worker.
type eventsWorker struct {
	river.WorkerDefaults[args]

	next func() []riveradapter.Announcement
}

// addEventsWorker adds the worker. It converts River's panic, which reports that the kind
// already exists, to an error.
func addEventsWorker(workers *river.Workers) (w *eventsWorker, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("register the worker of events: %v; each node needs its own river.Workers", problem)
		}
	}()
	w = &eventsWorker{}
	river.AddWorkerArgs(workers, args{kind: eventsKind}, w)
	return w, nil
}

// Timeout implements river.Worker.
func (w *eventsWorker) Timeout(*river.Job[args]) time.Duration { return -1 }

// Work implements river.Worker. It ignores the end of ctx, because the last attempts of
// forge's executor end later.
func (w *eventsWorker) Work(ctx context.Context, _ *river.Job[args]) error {
	if err := river.MetadataSet(ctx, riveradapter.MetadataAnnounced, true); err != nil {
		return err
	}
	return resultsError(w.next())
}

// resultsError is an error with the results of many jobs, as River's executor accepts
// it.
type resultsError []riveradapter.Announcement

// Error implements error.
func (r resultsError) Error() string { return fmt.Sprintf("results of %d jobs", len(r)) }

// Jobs returns the current rows to River.
func (r resultsError) Jobs() []*rivertype.JobRow {
	rows := make([]*rivertype.JobRow, len(r))
	for i := range r {
		rows[i] = r[i].Job
	}
	return rows
}

// ErrorsByID returns the errors of the jobs that did not succeed to River.
func (r resultsError) ErrorsByID() map[int64]error {
	failed := map[int64]error{}
	for i := range r {
		if r[i].Err != nil {
			failed[r[i].Job.ID] = r[i].Err
		}
	}
	return failed
}
