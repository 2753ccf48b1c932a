package crons

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Inserter inserts and cancels jobs in a transaction. InsertMany returns the ids of the
// jobs in order. Cancel returns no error for a job that has ended or does not exist.
type Inserter interface {
	InsertMany(ctx context.Context, tx pgx.Tx, jobs []jobstore.NewJob) ([]int64, error)
	Cancel(ctx context.Context, tx pgx.Tx, id int64) error
}

// Options are the dependencies of a Firer. All are required except Schema and Notifier.
type Options struct {
	Pool     *pgxpool.Pool
	Inserter Inserter
	Metrics  *metrics.Metrics
	Logger   *slog.Logger
	// Schema is the schema of forge's tables. It is the prefix of the notification
	// channels. Empty means the current schema of the connections.
	Schema string
	// Notifier receives notifications. The default is a notifier for this Firer alone.
	Notifier *postgres.Notifier
}

// Firer fires crons while this node leads the scheduler's role.
type Firer struct {
	options Options
	meter   *meter
	cache   *termCache // used by one Lead at a time
}

// New returns a Firer that does nothing until Lead is called.
func New(options Options) *Firer {
	if options.Notifier == nil {
		options.Notifier = postgres.NewNotifier(options.Pool, options.Logger)
	}
	return &Firer{options: options, meter: newMeter(options.Metrics), cache: newTermCache()}
}

const currentSchemaSQL = `SELECT current_schema()`

// Lead fires crons for a term until ctx ends or the term is over. It returns nil if ctx
// ended, and leaderstore.ErrDeposed if the term is over. Once it has started, it logs and
// retries database errors. Only one Lead may run at a time. All goroutines that Lead
// starts have stopped when it returns.
func (f *Firer) Lead(ctx context.Context, fence leaderstore.Fence) error {
	logger := f.options.Logger.With("role", fence.Role, "node", fence.NodeID, "term", fence.Term)
	ctx, end := watchdog.Begin(ctx, "crons")
	defer end()
	schema, err := f.resolveSchema(ctx)
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	changes := make(chan struct{}, 1)
	listening, stop := context.WithCancel(ctx)
	changeListener := &listener{
		notifier: f.options.Notifier, pool: f.options.Pool, channel: wire.Channel(schema, wire.CronChannel), changes: changes,
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { changeListener.run(watchdog.Detach(listening)) })
	defer func() {
		stop()
		waiting.Wait()
	}()
	tickLedger := newLedger(f.options, fence, f.meter, logger)
	loop := newFireLoop(tickLedger, f.meter, logger)
	tickLedger.termCache, loop.termCache = f.cache, f.cache
	return ignoreEnd(ctx, loop.run(ctx, changes))
}

func (f *Firer) resolveSchema(ctx context.Context) (string, error) {
	if f.options.Schema != "" {
		return f.options.Schema, nil
	}
	var schema string
	if err := f.options.Pool.QueryRow(ctx, currentSchemaSQL).Scan(&schema); err != nil {
		return "", fmt.Errorf("find the schema: %w", err)
	}
	return schema, nil
}

// ignoreEnd returns nil if ctx has ended, and err otherwise.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
