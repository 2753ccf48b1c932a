package crons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// rejectedError is the error of a job that cannot be inserted.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string { return "insert jobs: " + e.err.Error() }
func (e *rejectedError) Unwrap() error { return e.err }

// newJob returns the job of a tick that fires. term is 0 if no leader fires it.
func newJob(spec *cronstore.Spec, row cronstore.Tick, term int64) jobstore.NewJob {
	metadata := map[string]any{
		jobstore.KeyCron: row.Cron,
		jobstore.KeyTick: row.Tick.UTC().Format(time.RFC3339Nano),
	}
	if term != 0 {
		metadata[jobstore.KeyTerm] = term
	}
	if spec.Capability != "" {
		metadata[jobstore.KeyCapability] = spec.Capability
	}
	if len(spec.Tags) > 0 {
		metadata[jobstore.KeyTags] = spec.Tags
	}
	args := spec.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	return jobstore.NewJob{
		ID: row.JobID, Kind: spec.Job, Args: args, Queue: spec.Queue, Priority: spec.Priority, MaxAttempts: spec.MaxAttempts,
		Metadata: metadata,
	}
}

// firingQueues returns the queues that get jobs, for their notification. River notifies of
// inserts itself, but its limiter drops notifications that follow another one too soon, even
// if that one did not commit.
func firingQueues(updates []*cronUpdate) (queues []string) {
	for _, u := range updates {
		if u.fires() {
			queues = append(queues, u.timeline.Spec().Queue)
		}
	}
	return queues
}

// insert inserts the jobs of the first rows. If bisect is set, insert changes the rows of
// rejected jobs to failed.
func (l *ledger) insert(ctx context.Context, tx pgx.Tx, rows []cronstore.Tick, jobs []jobstore.NewJob, bisect bool) error {
	if len(jobs) == 0 {
		return nil
	}
	if !bisect {
		if err := l.insertMany(ctx, tx, jobs); err != nil {
			return classify(tx, err)
		}
		return nil
	}
	firing := rows[:len(jobs)]
	if err := l.insertBisecting(ctx, tx, firing, jobs); err != nil {
		return err
	}
	failed := slices.DeleteFunc(slices.Clone(firing), func(row cronstore.Tick) bool { return row.Verdict != cronstore.Failed })
	if len(failed) == 0 {
		return nil
	}
	return cronstore.New(tx).SetOutcomes(ctx, failed)
}

// insertMany inserts jobs and checks that they got the ids from the ledger.
func (l *ledger) insertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) error {
	ids, err := l.options.Inserter.InsertMany(ctx, tx, jobs)
	if err != nil {
		return err
	}
	if len(ids) != len(jobs) {
		return fmt.Errorf("got %d ids for %d jobs", len(ids), len(jobs))
	}
	for i, id := range ids {
		if id != jobs[i].ID {
			return fmt.Errorf("job %d was inserted as %d", jobs[i].ID, id)
		}
	}
	return nil
}

// insertBisecting inserts jobs in halves, each in a savepoint, until every rejected job
// is alone.
func (l *ledger) insertBisecting(ctx context.Context, tx pgx.Tx, rows []cronstore.Tick, jobs []jobstore.NewJob) error {
	watchdog.Report(ctx)
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := l.insertMany(ctx, tx, jobs); err != nil {
			return classify(tx, err)
		}
		return nil
	})
	rejected, ok := errors.AsType[*rejectedError](err)
	switch {
	case !ok:
		return err
	case len(jobs) == 1:
		rows[0].JobID, rows[0].Verdict = 0, cronstore.Failed
		rows[0].Reason = fmt.Sprintf("The job could not be inserted: %v.", rejected.err)
		return nil
	}
	half := len(jobs) / 2
	if err := l.insertBisecting(ctx, tx, rows[:half], jobs[:half]); err != nil {
		return err
	}
	return l.insertBisecting(ctx, tx, rows[half:], jobs[half:])
}

// classify separates rejected jobs, which fail again on a retry, from temporary database
// errors.
func classify(tx pgx.Tx, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || tx.Conn().IsClosed() {
		return fmt.Errorf("insert jobs: %w", err)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && isTransient(pgErr) {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return &rejectedError{err}
}

// isTransient reports whether the job did not cause an error. A code that is shorter than a class
// says nothing about a job: poolers return such codes. Without a table or a privilege, no job can be
// inserted, unless a function lacks it, such as a trigger that somebody has added for some jobs.
func isTransient(err *pgconn.PgError) bool {
	switch err.Code {
	case "3F000", "42501", "42P01": // invalid_schema_name, insufficient_privilege, undefined_table
		return err.Where == ""
	}
	return len(err.Code) < 2 || transientClasses[err.Code[:2]]
}

// transientClasses are the SQLSTATE classes of errors that the job did not cause:
// connection, transaction, rollback, resources, prerequisites, operator, system and
// internal errors.
var transientClasses = map[string]bool{
	"08": true, "25": true, "40": true, "53": true, "55": true, "57": true, "58": true, "XX": true,
}
