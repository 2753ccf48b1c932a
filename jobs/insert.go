package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// Inserter adds jobs of any kind, also of kinds that this process cannot run.
type Inserter struct {
	client *river.Client[pgx.Tx]
	// jobs give the defaults of their kinds; may be nil.
	jobs    map[string]config.Job
	metrics *metrics.Metrics // may be nil
}

// NewInserter returns an Inserter that needs no node. An empty schema means
// public.
func NewInserter(pool *pgxpool.Pool, schema string) (*Inserter, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:        cmp.Or(schema, defaultSchema),
		FetchCooldown: river.FetchCooldownMin, // bounds the notifications of inserts
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare to insert jobs: %w", err)
	}
	return &Inserter{client: client}, nil
}

// InsertMany adds the jobs within tx and returns their ids in order.
func (i *Inserter) InsertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) ([]int64, error) {
	params, err := i.params(jobs)
	if err != nil || len(params) == 0 {
		return nil, err
	}
	return i.ids(i.client.InsertManyTx(ctx, tx, params))
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
	ids, err := i.ids(i.client.InsertMany(ctx, params))
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

func (i *Inserter) ids(results []*rivertype.JobInsertResult, err error) ([]int64, error) {
	if err != nil {
		return nil, fmt.Errorf("insert jobs: %w", err)
	}
	ids := make([]int64, len(results))
	for n, result := range results {
		ids[n] = result.Job.ID
		if i.metrics != nil {
			i.metrics.JobEnqueued.WithLabelValues(result.Job.Kind).Inc()
		}
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
		defaults := i.jobs[job.Kind]
		params[n] = river.InsertManyParams{
			Args: args{kind: job.Kind, body: job.Args},
			InsertOpts: &river.InsertOpts{
				Queue:       cmp.Or(job.Queue, defaults.Queue),
				Priority:    cmp.Or(job.Priority, defaults.Priority),
				MaxAttempts: cmp.Or(job.MaxAttempts, defaults.Retry.MaxAttempts),
				ScheduledAt: job.ScheduledAt,
				Metadata:    metadata,
			},
		}
	}
	return params, nil
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
