package jobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivershared/uniquestates"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// Inserter adds jobs of any kind, also of kinds that this process cannot run.
type Inserter struct {
	client *river.Client[pgx.Tx]
	// defaults looks up a configured job; may be nil.
	defaults func(kind string) (config.Job, bool)
	// alone: this process has no metrics, nodes count what it inserts in transactions.
	alone bool
}

// NewInserter returns an Inserter that needs no node. An empty schema means
// public.
func NewInserter(pool *pgxpool.Pool, schema string) (*Inserter, error) {
	client, err := newInsertClient(pool, schema, river.FetchCooldownMin, reserved)
	if err != nil {
		return nil, err
	}
	return &Inserter{client: client, alone: true}, nil
}

// newInsertClient returns a client that works no jobs. notifyEvery bounds how often River
// sends a notification of jobs in a queue.
func newInsertClient(pool *pgxpool.Pool, schema string, notifyEvery time.Duration, middleware ...rivertype.Middleware) (*river.Client[pgx.Tx], error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:            cmp.Or(schema, defaultSchema),
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

// seldom is how often River may send a notification for a queue when the caller does so.
const seldom = 24 * time.Hour

// SilentInserter returns an Inserter like the Runner's own, for a caller that sends the
// notifications of its jobs itself: it does without River's, each of which is a round
// trip, except for the first job of a queue in a day.
func (r *Runner) SilentInserter() (*Inserter, error) {
	client, err := newInsertClient(r.options.Pool, r.options.Schema, seldom, counting(r.options.Metrics), reserved)
	if err != nil {
		return nil, err
	}
	return &Inserter{client: client, defaults: r.defaults}, nil
}

// InsertMany adds the jobs within tx and returns their ids in order.
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
	return ids, i.note(ctx, tx, results)
}

// note notes what was inserted for nodes to count.
func (i *Inserter) note(ctx context.Context, tx pgx.Tx, results []*rivertype.JobInsertResult) error {
	if !i.alone {
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
	return jobstore.NoteEnqueued(ctx, tx, kinds)
}

// Cancel cancels a job when tx commits: a running one is told to stop. A job
// that has ended, or is gone, is left alone.
func (i *Inserter) Cancel(ctx context.Context, tx pgx.Tx, id int64) error {
	if _, err := i.client.JobCancelTx(ctx, tx, id); err != nil && !errors.Is(err, rivertype.ErrNotFound) {
		return fmt.Errorf("cancel job %d: %w", id, err)
	}
	return nil
}

// Insert adds one job in a transaction of its own and returns its id.
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

// InsertOnce adds one job within tx, and says whether it was there already, by its
// unique key or by what is unique of its kind.
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
	if err := i.note(ctx, tx, results); err != nil {
		return jobstore.Enqueued{}, err
	}
	row := results[0].Job
	return jobstore.Enqueued{
		ID: ids[0], Kind: job.Kind, Existing: results[0].UniqueSkippedAsDuplicate, State: string(row.State), Queue: row.Queue,
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
		metadata, err := json.Marshal(job.Metadata)
		if err != nil {
			return nil, fmt.Errorf("encode metadata of a %s job: %w", job.Kind, err)
		}
		if len(job.Metadata) == 0 {
			metadata = nil
		}
		if err := config.CheckArgs(job.Args); err != nil {
			return nil, fmt.Errorf("a job of kind %s: %w", job.Kind, err)
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

type reservedKey struct{}

// withReserved carries the jobs to reserved: River's parameters have no place for
// their ids, nor for when an available one is ready, nor for a key of the caller's.
func withReserved(ctx context.Context, jobs []jobstore.NewJob) context.Context {
	return context.WithValue(ctx, reservedKey{}, jobs)
}

// reserved is the middleware that gives jobs what River's parameters have no
// place for. An insert of the program's own within a worker has nothing of it.
var reserved = river.JobInsertMiddlewareFunc(func(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	jobs, _ := ctx.Value(reservedKey{}).([]jobstore.NewJob)
	for n := range min(len(jobs), len(params)) {
		if jobs[n].ID != 0 {
			params[n].ID = &jobs[n].ID
		}
		if !jobs[n].ReadyAt.IsZero() {
			params[n].ScheduledAt = &jobs[n].ReadyAt
		}
		if jobs[n].Unique != "" {
			params[n].UniqueKey, params[n].UniqueStates = uniqueKey(jobs[n]), uniqueStates
		}
	}
	return insert(context.WithValue(ctx, reservedKey{}, nil)) // those that a hook inserts have others
})

// counting counts what a client inserts, forge's own jobs and those of the program. River
// returns no rows for those that are copied in.
func counting(m *metrics.Metrics) rivertype.Middleware {
	return river.JobInsertMiddlewareFunc(func(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
		results, err := insert(ctx)
		if err != nil {
			return results, err
		}
		for n, job := range params {
			if n >= len(results) || results[n] == nil || !results[n].UniqueSkippedAsDuplicate {
				m.JobEnqueued.WithLabelValues(job.Kind).Inc()
			}
		}
		return results, nil
	})
}

// uniqueOpts are River's for the job; a key of the caller's goes before them.
func uniqueOpts(job jobstore.NewJob) river.UniqueOpts {
	if job.Unique != "" {
		return river.UniqueOpts{}
	}
	opts := river.UniqueOpts{ByArgs: job.UniqueBy.Args, ByPeriod: job.UniqueBy.Period, ByQueue: job.UniqueBy.Queue}
	for _, state := range job.UniqueBy.States {
		opts.ByState = append(opts.ByState, rivertype.JobState(state))
	}
	return opts
}

// uniqueStates are River's own choice: all but cancelled and discarded.
var uniqueStates = uniquestates.UniqueStatesToBitmask(rivertype.UniqueOptsByStateDefault())

// uniqueKey is apart from those that River computes, and of each kind its own.
func uniqueKey(job jobstore.NewJob) []byte {
	sum := sha256.Sum256([]byte("forge:" + job.Kind + "\x00" + job.Unique))
	return sum[:]
}

// args carries the arguments of a job whose kind is only known at run time.
type args struct {
	kind string
	body json.RawMessage
}

// Kind is part of river.JobArgs.
func (a args) Kind() string { return a.kind }

// MarshalJSON gives the arguments as they are, {} when there are none.
func (a args) MarshalJSON() ([]byte, error) {
	if len(a.body) == 0 {
		return []byte("{}"), nil
	}
	return a.body, nil
}

// UnmarshalJSON takes the arguments as they are.
func (a *args) UnmarshalJSON(body []byte) error {
	a.body = append(json.RawMessage(nil), body...)
	return nil
}
