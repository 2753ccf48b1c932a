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
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/wire"
)

// River announces inserts itself, but its limiter swallows those that follow
// another too soon, whether or not that one committed. The same payload twice in
// a transaction is delivered once.
const announceSQL = `SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload`

const defaultQueue = "default"

// refusedError says that a job of a batch could not be inserted.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return "insert jobs: " + e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// newJob makes the job of a tick that fires. The term is 0 when no leader fires
// it.
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

// announce adds to a batch what wakes whoever assigns the jobs of the plans, once the
// transaction commits.
func (l *ledger) announce(batch *pgx.Batch, plans []*plan) {
	var payloads []string
	for _, p := range plans {
		if !p.fires() {
			continue
		}
		if payload := insertPayload(p.definition.spec.Queue); !slices.Contains(payloads, payload) {
			payloads = append(payloads, payload)
		}
	}
	if len(payloads) > 0 {
		batch.Queue(announceSQL, wire.Channel(l.schema, wire.RiverInsertChannel), payloads)
	}
}

// insert inserts the jobs of the first rows. With careful set, jobs that are
// refused turn their rows into failed ones.
func (l *ledger) insert(ctx context.Context, tx pgx.Tx, rows []cronstore.Tick, jobs []jobstore.NewJob, careful bool) error {
	if len(jobs) == 0 {
		return nil
	}
	if !careful {
		if err := l.insertMany(ctx, tx, jobs); err != nil {
			return classify(tx, err)
		}
		return nil
	}
	firing := rows[:len(jobs)]
	if err := l.insertCarefully(ctx, tx, firing, jobs); err != nil {
		return err
	}
	failed := slices.DeleteFunc(slices.Clone(firing), func(row cronstore.Tick) bool { return row.Verdict != cronstore.Failed })
	if len(failed) == 0 {
		return nil
	}
	return cronstore.MarkFailed(ctx, tx, failed)
}

// insertMany makes sure that the jobs got the ids that stand in the ledger.
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

// insertCarefully halves the jobs until those that are refused stand alone, each
// part in a savepoint.
func (l *ledger) insertCarefully(ctx context.Context, tx pgx.Tx, rows []cronstore.Tick, jobs []jobstore.NewJob) error {
	progress.Report(ctx)
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := l.insertMany(ctx, tx, jobs); err != nil {
			return classify(tx, err)
		}
		return nil
	})
	refused, ok := errors.AsType[*refusedError](err)
	switch {
	case !ok:
		return err
	case len(jobs) == 1:
		rows[0].JobID, rows[0].Verdict = 0, cronstore.Failed
		rows[0].Reason = fmt.Sprintf("The job could not be inserted: %v.", refused.err)
		return nil
	}
	half := len(jobs) / 2
	if err := l.insertCarefully(ctx, tx, rows[:half], jobs[:half]); err != nil {
		return err
	}
	return l.insertCarefully(ctx, tx, rows[half:], jobs[half:])
}

// insertPayload is River's own, to the letter.
func insertPayload(queue string) string {
	if queue == "" {
		queue = defaultQueue
	}
	return fmt.Sprintf("{\"queue\": %q}", queue)
}

// classify tells a job that was refused, which would be refused again, from
// trouble with the database, which passes.
func classify(tx pgx.Tx, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || tx.Conn().IsClosed() {
		return fmt.Errorf("insert jobs: %w", err)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && passes(pgErr.Code) {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return &refusedError{err}
}

// passes says whether an SQLSTATE is trouble that passes. One that is shorter than a
// class is no statement about a job: a pooler answers so.
func passes(code string) bool { return len(code) < 2 || passing[code[:2]] }

// passing are the classes of SQLSTATE that say nothing against the job:
// connection, transaction, rollback, resources, prerequisites, operator, system
// and internal errors.
var passing = map[string]bool{
	"08": true, "25": true, "40": true, "53": true, "55": true, "57": true, "58": true, "XX": true,
}
