package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

// Inserter adds jobs of any kind, including kinds that this process cannot run.
type Inserter struct {
	client *river.Client[pgx.Tx]
	// defaults returns a configured job; it may be nil.
	defaults func(kind string) (config.Job, bool)
	// noMetrics means that this process has no metrics, so the nodes count its inserts.
	noMetrics bool
}

// NewInserter returns an Inserter that needs no node. An empty schema means public.
func NewInserter(pool *pgxpool.Pool, schema string) (*Inserter, error) {
	client, err := newInsertClient(pool, schema, river.FetchCooldownMin, reserved)
	if err != nil {
		return nil, err
	}
	return &Inserter{client: client, noMetrics: true}, nil
}

// newInsertClient returns a client that runs no jobs. notifyEvery is the minimum time
// between two notifications that River sends for a queue.
func newInsertClient(pool *pgxpool.Pool, schema string, notifyEvery time.Duration, middleware ...rivertype.Middleware) (*river.Client[pgx.Tx], error) {
	schema = cmp.Or(schema, defaultSchema)
	client, err := river.NewClient(riveradapter.NewInsertDriver(pool, schema, notifyEvery), &river.Config{
		Schema:            schema,
		FetchCooldown:     notifyEvery,
		FetchPollInterval: max(notifyEvery, river.FetchPollIntervalDefault),
		Logger:            slog.New(slog.DiscardHandler),
		Middleware:        middleware,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to insert jobs: %w", err)
	}
	return client, nil
}

// seldom is the minimum time between River's notifications if the caller sends its own.
const seldom = 24 * time.Hour

// SilentInserter returns an Inserter like the Runner's own, for a caller that sends the
// notifications of its jobs itself. It omits River's notifications, each of which is a
// round trip, except for the first job of a queue each day.
func (r *Runner) SilentInserter() (*Inserter, error) {
	options := r.options
	options.Tracer = nil // the scheduler has a span for each tick
	client, err := newInsertClient(options.Pool, options.Schema, seldom, options.insertMiddleware()...)
	if err != nil {
		return nil, err
	}
	return &Inserter{client: client, defaults: r.defaults}, nil
}

// InsertMany adds the jobs in tx and returns their ids in order.
func (i *Inserter) InsertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) ([]int64, error) {
	params, err := i.params(jobs)
	if err != nil || len(params) == 0 {
		return nil, err
	}
	results, err := i.client.InsertManyTx(withReserved(ctx, jobs), tx, params)
	ids, err := idsOf(results, err)
	if err != nil {
		return nil, err
	}
	return ids, i.recordInserts(ctx, tx, results)
}

// recordInserts records the inserted jobs, so that nodes count them.
func (i *Inserter) recordInserts(ctx context.Context, tx pgx.Tx, results []*rivertype.JobInsertResult) error {
	if !i.noMetrics {
		return nil
	}
	var kinds []string
	for _, result := range results {
		if !result.UniqueSkippedAsDuplicate {
			kinds = append(kinds, result.Job.Kind)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return jobstore.New(tx).NoteEnqueued(ctx, kinds)
}

// Cancel cancels a job when tx commits. A running job is told to stop. Cancel does
// nothing for a job that has ended or does not exist.
func (i *Inserter) Cancel(ctx context.Context, tx pgx.Tx, id int64) error {
	if _, err := i.client.JobCancelTx(ctx, tx, id); err != nil && !errors.Is(err, rivertype.ErrNotFound) {
		return fmt.Errorf("cancel job %d: %w", id, err)
	}
	return nil
}

// Insert adds one job in its own transaction and returns its id.
func (i *Inserter) Insert(ctx context.Context, job jobstore.NewJob) (int64, error) {
	params, err := i.params([]jobstore.NewJob{job})
	if err != nil {
		return 0, err
	}
	ids, err := idsOf(i.client.InsertMany(withReserved(ctx, []jobstore.NewJob{job}), params))
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// InsertOnce adds one job in tx. It reports whether a duplicate existed, by the job's
// unique key or by the uniqueness rules of its kind.
func (i *Inserter) InsertOnce(ctx context.Context, tx pgx.Tx, job jobstore.NewJob) (jobstore.Enqueued, error) {
	params, err := i.params([]jobstore.NewJob{job})
	if err != nil {
		return jobstore.Enqueued{}, err
	}
	results, err := i.client.InsertManyTx(withReserved(ctx, []jobstore.NewJob{job}), tx, params)
	ids, err := idsOf(results, err)
	if err != nil {
		return jobstore.Enqueued{}, err
	}
	if err := i.recordInserts(ctx, tx, results); err != nil {
		return jobstore.Enqueued{}, err
	}
	row, existing := results[0].Job, results[0].UniqueSkippedAsDuplicate
	answer := jobstore.AnswerOf(row.Metadata, existing)
	return jobstore.Enqueued{
		ID: ids[0], Kind: job.Kind, Existing: existing, Verdict: answer.Verdict, State: string(row.State), Queue: row.Queue,
		ScheduledAt: row.ScheduledAt, Merged: answer.Merged, AcceptsAt: answer.AcceptsAt,
	}, nil
}

func idsOf(results []*rivertype.JobInsertResult, err error) ([]int64, error) {
	if err != nil {
		return nil, fmt.Errorf("insert jobs: %w", err)
	}
	ids := make([]int64, len(results))
	for n, result := range results {
		ids[n] = result.Job.ID
	}
	return ids, nil
}

func (i *Inserter) params(jobs []jobstore.NewJob) ([]river.InsertManyParams, error) {
	params := make([]river.InsertManyParams, len(jobs))
	for n, job := range jobs {
		metadata, err := metadataOf(job)
		if err != nil {
			return nil, fmt.Errorf("encode metadata of a %s job: %w", job.Kind, err)
		}
		if err := config.CheckArgs(job.Args); err != nil {
			return nil, fmt.Errorf("a job of kind %s: %w", job.Kind, err)
		}
		if job.UniqueBy.Args && job.Unique == "" {
			if job.Args, err = uniqueArgs(job.Args); err != nil {
				return nil, fmt.Errorf("a job of kind %s: %w", job.Kind, err)
			}
		}
		var defaults config.Job
		if i.defaults != nil {
			defaults, _ = i.defaults(job.Kind)
		}
		params[n] = river.InsertManyParams{
			Args: args{kind: job.Kind, body: job.Args},
			InsertOpts: &river.InsertOpts{
				Queue:       cmp.Or(job.Queue, defaults.Queue),
				Priority:    cmp.Or(job.Priority, defaults.Priority),
				MaxAttempts: cmp.Or(job.MaxAttempts, defaults.Retry.MaxAttempts),
				ScheduledAt: job.ScheduledAt,
				Metadata:    metadata,
				UniqueOpts:  uniqueOpts(job),
			},
		}
	}
	return params, nil
}

// metadataOf returns the job's metadata with its rule for duplicates.
func metadataOf(job jobstore.NewJob) ([]byte, error) {
	metadata := job.Metadata
	if job.Duplicates.Set() {
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata[jobstore.KeyUnique] = jobstore.NewRule(job.Duplicates, job.Given)
	}
	if len(metadata) == 0 {
		return nil, nil
	}
	return json.Marshal(metadata)
}

type reservedKey struct{}

// withReserved passes the jobs to the reserved middleware. River's parameters have no
// fields for the reserved id, the ready time and the caller's unique key.
func withReserved(ctx context.Context, jobs []jobstore.NewJob) context.Context {
	return context.WithValue(ctx, reservedKey{}, jobs)
}

// reserved is the middleware that sets the fields that River's parameters lack. It has no
// effect on inserts by a program's worker.
var reserved = river.JobInsertMiddlewareFunc(func(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	jobs, _ := ctx.Value(reservedKey{}).([]jobstore.NewJob)
	for n := range min(len(jobs), len(params)) {
		if jobs[n].ID != 0 {
			params[n].ID = &jobs[n].ID
		}
		if !jobs[n].ReadyAt.IsZero() {
			params[n].ScheduledAt = &jobs[n].ReadyAt
		}
		switch job := jobs[n]; {
		case job.Unique != "":
			params[n].UniqueKey, params[n].UniqueStates = riveradapter.OwnKey(job.Kind, job.Unique), riveradapter.UniqueStates
		case len(job.UniqueBy.ArgNames) > 0:
			key, err := keyByNames(job, params[n])
			if err != nil {
				return nil, fmt.Errorf("a job of kind %s: %w", job.Kind, err)
			}
			params[n].UniqueKey, params[n].UniqueStates = key, riveradapter.StatesMask(job.UniqueBy.States)
		}
	}
	return insert(context.WithValue(ctx, reservedKey{}, nil)) // jobs that a hook inserts are not affected
})

// countInserts counts the jobs that a client inserts: forge's own and those of the
// program. River returns no rows for jobs that are inserted with COPY.
func countInserts(m *metrics.Metrics) rivertype.Middleware {
	return river.JobInsertMiddlewareFunc(func(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
		results, err := insert(ctx)
		if err != nil {
			return results, err
		}
		for n, job := range params {
			if n >= len(results) || results[n] == nil || !results[n].UniqueSkippedAsDuplicate {
				m.JobEnqueued.WithLabelValues(m.KindLabel(job.Kind)).Inc()
			}
		}
		return results, nil
	})
}

// uniqueOpts returns River's options for the job. They are empty if the caller sets a
// unique key, or names the arguments that count.
func uniqueOpts(job jobstore.NewJob) river.UniqueOpts {
	if job.Unique != "" || len(job.UniqueBy.ArgNames) > 0 {
		return river.UniqueOpts{}
	}
	opts := river.UniqueOpts{ByArgs: job.UniqueBy.Args, ByPeriod: job.UniqueBy.Period, ByQueue: job.UniqueBy.Queue}
	for _, state := range job.UniqueBy.States {
		opts.ByState = append(opts.ByState, rivertype.JobState(state))
	}
	return opts
}

// args carries the arguments of a job whose kind is known only at run time.
type args struct {
	kind string
	body json.RawMessage
}

// Kind implements river.JobArgs.
func (a args) Kind() string { return a.kind }

// KindAtRunTime tells the adapter that the kind is not that of the type.
func (a args) KindAtRunTime() {}

// MarshalJSON returns the arguments unchanged, or {} if there are none.
func (a args) MarshalJSON() ([]byte, error) {
	if len(a.body) == 0 {
		return []byte("{}"), nil
	}
	return a.body, nil
}

// UnmarshalJSON stores the arguments unchanged.
func (a *args) UnmarshalJSON(body []byte) error {
	a.body = append(json.RawMessage(nil), body...)
	return nil
}
