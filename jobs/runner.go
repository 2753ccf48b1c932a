package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/jobs/internal/pilot"
)

const (
	// fetchCooldown is the least time between two claims of one queue: it
	// bounds the statements of a burst and costs that much latency.
	fetchCooldown = 2 * time.Millisecond
	// fetchPollInterval is River's fallback. It finds nothing here: offers
	// drive the claims.
	fetchPollInterval = time.Hour
	// defaultTimeout is that of a job that names none, and River's own.
	defaultTimeout = time.Minute
	// defaultDrain is how long a drain waits when the options do not say.
	defaultDrain = 30 * time.Second
	defaultQueue = "default"
	// defaultSchema is where River's and forge's tables are.
	defaultSchema = "public"
)

// Options are what a node needs to run jobs.
type Options struct {
	Pool        *pgxpool.Pool
	NodeID      string
	Incarnation string
	// Schema holds the tables; empty means public. The pool's search_path
	// must agree.
	Schema string
	// Jobs are the jobs without code, by name; the name is the kind.
	Jobs map[string]config.Job
	// Queues is the most jobs of each queue that run at once. The queue
	// "default" is added if it is missing, with all slots.
	Queues map[string]int
	// Slots is the most jobs that run at once in all.
	Slots int
	// Workers are a Go program's own; nil means none. New adds to them.
	Workers *river.Workers
	// DrainTimeout is how long Run waits for running jobs before it cancels
	// them; 0 means 30 s.
	DrainTimeout time.Duration
	// ClusterURL is where sql jobs without a database of their own run.
	ClusterURL string
	// AllowPrivateTargets lets http jobs reach loopback and private addresses.
	AllowPrivateTargets bool
	Logger              *slog.Logger
	Metrics             *metrics.Metrics
}

// Runner runs jobs on this node.
type Runner struct {
	*Inserter
	pilot     *pilot.Pilot
	queues    map[string]int
	logger    *slog.Logger
	abandoned atomic.Bool
}

// New registers every kind and makes the client; nothing runs yet. An error
// names the job that is at fault.
func New(options Options) (*Runner, error) {
	options = options.withDefaults()
	workers := options.Workers
	if workers == nil {
		workers = river.NewWorkers()
	}
	if err := register(workers, options); err != nil {
		return nil, err
	}
	p := pilot.New(pilot.Options{
		Pool: options.Pool, NodeID: options.NodeID, Incarnation: options.Incarnation,
		ClientID: nodestore.ClientID(options.NodeID, options.Incarnation),
		Schema:   options.Schema, Slots: options.Slots, Queues: options.Queues, Logger: options.Logger,
		Claims: options.Metrics.AssignmentClaims, Refused: options.Metrics.AssignmentRefused,
		Fenced: func(kind string) { options.Metrics.JobFinished.WithLabelValues(kind, outcomeFenced).Inc() },
	})
	client, err := river.NewClient(p.Driver(), riverConfig(options, workers))
	if err != nil {
		return nil, fmt.Errorf("prepare the job client: %w", err)
	}
	startAtZero(options.Metrics, p.Kinds())
	return &Runner{
		Inserter: &Inserter{client: client, jobs: options.Jobs, metrics: options.Metrics},
		pilot:    p, queues: options.Queues, logger: options.Logger,
	}, nil
}

func (o Options) withDefaults() Options {
	o.Queues = maps.Clone(o.Queues)
	if o.Queues == nil {
		o.Queues = map[string]int{}
	}
	for queue, workers := range o.Queues {
		if workers <= 0 {
			o.Queues[queue] = o.Slots
		}
	}
	if o.Queues[defaultQueue] == 0 {
		o.Queues[defaultQueue] = o.Slots
	}
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = defaultDrain
	}
	return o
}

func riverConfig(options Options, workers *river.Workers) *river.Config {
	queues := make(map[string]river.QueueConfig, len(options.Queues))
	for queue, most := range options.Queues {
		queues[queue] = river.QueueConfig{MaxWorkers: most}
	}
	return &river.Config{
		ID:                     nodestore.ClientID(options.NodeID, options.Incarnation),
		FetchCooldown:          fetchCooldown,
		FetchPollInterval:      fetchPollInterval,
		JobTimeout:             defaultTimeout,
		LeaderElectionDisabled: true,
		Logger:                 quietLogger(options.Logger),
		Middleware:             []rivertype.Middleware{newRecorder(options)},
		Queues:                 queues,
		Schema:                 options.Schema,
		SkipUnknownJobCheck:    true, // another node may hold the kind
		SoftStopTimeout:        options.DrainTimeout,
		Workers:                workers,
	}
}

// Run works jobs until ctx ends, then drains: it claims no more, waits up to
// DrainTimeout for what runs, cancels the rest, and returns when all of it has
// stopped. An attempt that the drain cuts is available again and not burnt. A
// worker of a Go program that ignores its context holds Run up.
func (r *Runner) Run(ctx context.Context) error {
	if len(r.Kinds()) == 0 { // River would refuse to start
		r.logger.InfoContext(ctx, "no jobs configured, running none")
		<-ctx.Done()
		return nil
	}
	if err := r.client.Start(ctx); err != nil {
		if ctx.Err() != nil { // told to stop before it had started
			return nil
		}
		return fmt.Errorf("start working jobs: %w", err)
	}
	var reporting sync.WaitGroup
	reportCtx, stopReport := context.WithCancel(context.WithoutCancel(ctx))
	reporting.Go(func() { r.pilot.Report(reportCtx) })
	defer reporting.Wait()
	defer stopReport()

	select {
	case <-ctx.Done():
		r.pilot.Drain()
		<-r.client.Stopped()
		return nil
	case <-r.client.Stopped():
		if ctx.Err() != nil || r.abandoned.Load() {
			return nil
		}
		return errors.New("the job client stopped by itself")
	}
}

// Abandon cancels what runs and claims no more: the cluster has given this
// node's jobs to others, and nothing that it finishes would count. It returns
// when all has stopped or ctx ends.
func (r *Runner) Abandon(ctx context.Context) {
	r.abandoned.Store(true)
	r.pilot.Drain()
	if err := r.client.StopAndCancel(ctx); err != nil {
		r.logger.WarnContext(ctx, "abandoned jobs still run", "error", err)
	}
}

// Kinds are all kinds that this node has a worker for, sorted.
func (r *Runner) Kinds() []string { return slices.Clone(r.pilot.Kinds()) }

// Queues is the most jobs of each queue that this node runs at once.
func (r *Runner) Queues() map[string]int { return maps.Clone(r.queues) }

// Running is how many jobs this node holds now.
func (r *Runner) Running() int { return r.pilot.Running() }

// Client is River's client, for everything River can do beside.
func (r *Runner) Client() *river.Client[pgx.Tx] { return r.client }

// quietLogger keeps River's chatter out: forge tells of jobs itself.
func quietLogger(logger *slog.Logger) *slog.Logger {
	return slog.New(warnings{logger.Handler()})
}

type warnings struct{ slog.Handler }

func (h warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{h.Handler.WithAttrs(attrs)}
}

func (h warnings) WithGroup(name string) slog.Handler { return warnings{h.Handler.WithGroup(name)} }
