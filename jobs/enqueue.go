package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// OnceInserter inserts a job within tx, or returns the existing duplicate.
type OnceInserter interface {
	InsertOnce(ctx context.Context, tx pgx.Tx, job jobstore.NewJob) (jobstore.Enqueued, error)
}

// Enqueuer adds jobs by hand, with the settings of their kind in the configuration in
// force, as the scheduler does for crons.
type Enqueuer struct {
	db       postgres.DB
	inserter OnceInserter
}

// NewEnqueuer returns an Enqueuer that inserts jobs with inserter.
func NewEnqueuer(db postgres.DB, inserter OnceInserter) *Enqueuer { return &Enqueuer{db, inserter} }

// Enqueue adds the job and appends an event, or returns the existing duplicate. With
// ownUnique, the job and not the configuration determines uniqueness. by is who requests
// the job, for the event log.
func (e *Enqueuer) Enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (added jobstore.Enqueued, err error) {
	if err := e.complete(ctx, &job, ownUnique); err != nil {
		return added, err
	}
	err = pgx.BeginFunc(ctx, e.db, func(tx pgx.Tx) error {
		if added, err = e.inserter.InsertOnce(ctx, tx, job); err != nil || added.Existing {
			return err
		}
		return eventstore.New(tx).Append(ctx, eventstore.Event{Type: eventstore.JobEnqueued},
			map[string]any{"id": added.ID, "kind": added.Kind, "queue": added.Queue, "by": by})
	})
	if err != nil {
		return jobstore.Enqueued{}, fmt.Errorf("enqueue: %w", err)
	}
	return added, nil
}

// Kinds returns the kinds for which a live node has a worker, and the kinds that
// any node ever had, sorted.
func (e *Enqueuer) Kinds(ctx context.Context) (live, known []string, err error) {
	nodes, err := nodestore.New(e.db).List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, node := range nodes {
		if node.State == nodestore.Active || node.State == nodestore.Draining {
			live = append(live, node.Kinds...)
		}
		known = append(known, node.Kinds...)
	}
	slices.Sort(live)
	slices.Sort(known)
	return slices.Compact(live), slices.Compact(known), nil
}

// Fields returns the fields of the kind's schema in the configuration in force;
// none if it has no schema.
func (e *Enqueuer) Fields(ctx context.Context, kind string) ([]argschema.Field, error) {
	inForce, err := cronstore.New(e.db).ConfigInForce(ctx)
	if errors.Is(err, cronstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	schema, err := config.SchemaInForce(inForce.Body, kind)
	if err != nil || schema == "" {
		return nil, err
	}
	compiled, err := argschema.Compile([]byte(schema))
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", kind, err)
	}
	return compiled.Fields(), nil
}

// settings are the parts of an applied job that enqueuing needs.
type settings struct {
	Queue      string            `json:"queue"`
	Priority   int               `json:"priority"`
	Capability string            `json:"capability"`
	Tags       map[string]string `json:"tags"`
	Schema     json.RawMessage   `json:"schema"`
	Retry      struct {
		MaxAttempts int `json:"max_attempts"`
	} `json:"retry"`
}

// complete fills in the kind's settings from the applied configuration. The kinds
// of a Go program are not in it and get River's defaults. With uniqueGiven the
// caller has determined uniqueness.
func (e *Enqueuer) complete(ctx context.Context, job *jobstore.NewJob, uniqueGiven bool) error {
	inForce, err := cronstore.New(e.db).ConfigInForce(ctx)
	if errors.Is(err, cronstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var applied struct {
		Jobs map[string]settings `json:"jobs"`
	}
	if err := json.Unmarshal(inForce.Body, &applied); err != nil {
		return fmt.Errorf("read the applied configuration: %w", err)
	}
	own, ok := applied.Jobs[job.Kind]
	if !ok {
		return nil
	}
	if err := config.CheckArgsBy(config.Schema(own.Schema), job.Args); err != nil {
		return err
	}
	job.Queue = cmp.Or(job.Queue, own.Queue)
	job.Priority = cmp.Or(job.Priority, own.Priority)
	job.MaxAttempts = own.Retry.MaxAttempts
	job.Metadata = map[string]any{}
	if !uniqueGiven {
		if job.UniqueBy, err = uniqueInForce(inForce.Body, job.Kind); err != nil {
			return err
		}
	}
	if own.Capability != "" {
		job.Metadata[jobstore.KeyCapability] = own.Capability
	}
	if len(own.Tags) > 0 {
		job.Metadata[jobstore.KeyTags] = own.Tags
	}
	return nil
}

// uniqueInForce returns the uniqueness of the kind in the configuration in force.
func uniqueInForce(sections []byte, kind string) (jobstore.UniqueBy, error) {
	all, err := config.UniqueJobs(sections)
	if err != nil {
		return jobstore.UniqueBy{}, err
	}
	own := all[kind]
	return jobstore.UniqueBy{Args: own.ByArgs, Queue: own.ByQueue, Period: own.ByPeriod.Std(), States: own.ByState}, nil
}
