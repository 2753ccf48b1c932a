package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
	own, err := e.settings(ctx, kind)
	if err != nil || len(own.Schema) == 0 {
		return nil, err
	}
	compiled, err := argschema.Compile(own.Schema)
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", kind, err)
	}
	return compiled.Fields(), nil
}

// settings are the parts of an applied job that enqueuing needs. forge_enqueue reads the same.
type settings struct {
	Queue       string            `json:"queue"`
	Priority    int               `json:"priority"`
	MaxAttempts int               `json:"max_attempts"`
	Capability  string            `json:"capability"`
	Tags        map[string]string `json:"tags"`
	Schema      json.RawMessage   `json:"schema"`
	Unique      json.RawMessage   `json:"unique"`
}

// settings returns the settings of a kind in the configuration in force. Those of a kind
// that it does not define are empty.
func (e *Enqueuer) settings(ctx context.Context, kind string) (own settings, err error) {
	body, err := cronstore.New(e.db).KindInForce(ctx, kind)
	if err != nil || body == nil {
		return own, err
	}
	if err := json.Unmarshal(body, &own); err != nil {
		return own, fmt.Errorf("read the settings of %s: %w", kind, err)
	}
	return own, nil
}

// givenBy returns the names of what the caller has set.
func givenBy(job jobstore.NewJob) (given []string) {
	if !job.ScheduledAt.IsZero() {
		given = append(given, jobstore.GivenAt)
	}
	if job.Priority != 0 {
		given = append(given, jobstore.GivenPriority)
	}
	if job.MaxAttempts != 0 {
		given = append(given, jobstore.GivenMaxAttempts)
	}
	return given
}

// complete fills in the kind's settings from the applied configuration. The kinds
// of a Go program are not in it and get River's defaults. With uniqueGiven the
// caller has determined uniqueness.
func (e *Enqueuer) complete(ctx context.Context, job *jobstore.NewJob, uniqueGiven bool) error {
	own, err := e.settings(ctx, job.Kind)
	if err != nil {
		return err
	}
	job.Given = givenBy(*job)
	if err := config.CheckArgsBy(config.Schema(own.Schema), job.Args); err != nil {
		return err
	}
	job.Queue = cmp.Or(job.Queue, own.Queue)
	job.Priority = cmp.Or(job.Priority, own.Priority)
	job.MaxAttempts = own.MaxAttempts
	job.Metadata = maps.Clone(job.Metadata)
	if job.Metadata == nil {
		job.Metadata = map[string]any{}
	}
	if !uniqueGiven && len(own.Unique) > 0 {
		unique, err := config.ReadUnique(own.Unique)
		if err != nil {
			return fmt.Errorf("read what is unique of %s: %w", job.Kind, err)
		}
		job.UniqueBy = jobstore.UniqueBy{
			Args: unique.ByArgs != "", ArgNames: unique.ByArgs.Names(), Queue: unique.ByQueue, Period: unique.ByPeriod.Std(), States: unique.ByState,
		}
		job.Duplicates = unique.Duplicates
	}
	if job.Duplicates.Debounce > 0 && !job.ScheduledAt.IsZero() {
		return jobstore.ErrDebouncedAt
	}
	if job.Weight > 0 {
		job.Metadata[jobstore.KeyWeight] = job.Weight
	}
	if own.Capability != "" {
		job.Metadata[jobstore.KeyCapability] = own.Capability
	}
	if len(own.Tags) > 0 {
		job.Metadata[jobstore.KeyTags] = own.Tags
	}
	if job.Weight == 0 && job.Queue == own.Queue {
		return nil // the file's check has compared the kind's weight with the rates
	}
	return jobstore.New(e.db).CheckWeight(ctx, cmp.Or(job.Queue, config.DefaultQueue), job.Kind, job.Weight)
}
