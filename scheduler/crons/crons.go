package crons

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Inserter inserts jobs in a transaction and returns their ids in order, and
// cancels them. To cancel a job that has ended, or is gone, is no error.
type Inserter interface {
	InsertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) ([]int64, error)
	Cancel(ctx context.Context, tx pgx.Tx, id int64) error
}

// Options are what a Firer works with. All but Schema, Poll and Hub are required.
type Options struct {
	Pool     *pgxpool.Pool
	Inserter Inserter
	Metrics  *metrics.Metrics
	Logger   *slog.Logger
	// Schema is where forge's tables are, as it prefixes the channels of
	// notifications; empty means the connections' current schema.
	Schema string
	// Poll is how often to look for changes of crons where notifications are not
	// heard: behind a pooler in transaction mode. 0: they are.
	Poll time.Duration
	// Hub hears notifications. Default: one of the Firer's own.
	Hub *hearing.Hub
}

// Firer fires crons while this node leads the scheduler's role.
type Firer struct {
	options Options
	meter   *meter
	memory  *memory // of one Lead at a time
}

// New returns a Firer that rests until it leads.
func New(options Options) *Firer {
	if options.Hub == nil {
		options.Hub = hearing.New(options.Pool, options.Logger)
	}
	return &Firer{options: options, meter: newMeter(options.Metrics), memory: newMemory()}
}

const currentSchemaSQL = `SELECT current_schema()`

// Lead fires crons in the name of a term until ctx ends, which is no error, or
// until the term is over: then the error is leaderstore.ErrDeposed. Trouble with
// the database, once it has begun, is logged and tried again. One Lead runs at a time; when it
// returns all that it started has stopped.
func (f *Firer) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := f.options.Logger.With("role", fence.Role, "node", fence.NodeID, "term", fence.Term)
	ctx, end := progress.Begin(ctx, "crons")
	defer end()
	schema, err := f.schema(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	changes := make(chan struct{}, 1)
	listening, stop := context.WithCancel(ctx)
	ear := &listener{
		hub: f.options.Hub, pool: f.options.Pool, channel: wire.Channel(schema, wire.CronChannel), poll: f.options.Poll,
		changes: changes, logger: logger,
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { ear.run(progress.Detach(listening)) })
	defer func() {
		stop()
		waiting.Wait()
	}()
	desk := newLedger(f.options, schema, fence, f.meter, logger)
	term := newTerm(desk, f.meter, logger)
	desk.memory, term.memory = f.memory, f.memory
	return ignoreEnd(ctx, term.run(ctx, changes))
}

func (f *Firer) schema(ctx context.Context) (string, error) {
	if f.options.Schema != "" {
		return f.options.Schema, nil
	}
	var schema string
	if err := f.options.Pool.QueryRow(ctx, currentSchemaSQL).Scan(&schema); err != nil {
		return "", fmt.Errorf("find the schema: %w", err)
	}
	return schema, nil
}

// ignoreEnd returns nil for whatever an ended context left behind.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
