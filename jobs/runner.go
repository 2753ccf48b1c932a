package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

const (
	// fetchCooldown is the minimum time between two fetches of one queue by River's client.
	fetchCooldown = 2 * time.Millisecond
	// fetchPollInterval is River's fallback. It finds no jobs here, because claims cause the
	// fetches.
	fetchPollInterval = time.Hour
	// defaultTimeout is the timeout of a job that sets none. River's default is the same.
	defaultTimeout = time.Minute
	// defaultDrain is the default of DrainTimeout.
	defaultDrain = 30 * time.Second
	defaultQueue = "default"
	// defaultSchema is the default schema of River's and forge's tables.
	defaultSchema = "public"
)

// Options are the settings and dependencies of a Runner.
type Options struct {
	Pool        *pgxpool.Pool
	NodeID      string
	Incarnation string
	// Schema contains the tables; empty means public. It must match the pool's
	// search_path.
	Schema string
	// Jobs are the jobs without code, by name. The name is the kind.
	Jobs map[string]config.Job
	// Queues is the maximum number of concurrent jobs in each queue. New adds the queue
	// "default" with all slots if it is missing.
	Queues map[string]int
	// Reserved is how many of Slots only jobs of a queue may use, by queue.
	Reserved map[string]int
	// Slots is the maximum number of concurrent jobs in all queues together.
	Slots int
	// Workers are a Go program's own workers; nil means none. New adds to them. With
	// Workers, River's client runs, which costs dozens of wake-ups a second, because the
	// program may have subscribed to its events.
	Workers *river.Workers
	// DrainTimeout is how long Run waits for running jobs before it cancels them; 0 means
	// 30 s.
	DrainTimeout time.Duration
	// ClusterURL is the database of sql jobs that set none.
	ClusterURL string
	// AllowedCommands limits the programs of shell jobs; empty means any program.
	AllowedCommands config.AllowedCommands
	// AllowPrivateTargets lets http jobs connect to loopback and private addresses.
	AllowPrivateTargets bool
	// AllowTargets are otherwise blocked ranges that http jobs may connect to.
	AllowTargets []netip.Prefix
	// Notifier receives notifications. The default is a notifier for this Runner alone.
	Notifier *postgres.Notifier
	// Middleware is the Go program's own, for inserts and for workers.
	Middleware []rivertype.Middleware
	// Tracer creates the spans of inserts and attempts; nil means none.
	Tracer  *tracing.Tracer
	Logger  *slog.Logger
	Metrics *metrics.Metrics

	starter *starter
}

// Runner runs jobs on this node.
type Runner struct {
	*Inserter
	pilot       *riveradapter.Pilot
	definitions *definitions
	executor    *executor
	engine      *engine
	logs        *logWriter
	finished    *summary
	starter     *starter
	logger      *slog.Logger

	mu      sync.Mutex
	options Options // as of the last Replace
}

// New registers every kind and creates the client. It runs nothing yet. An error names
// the invalid job.
func New(options Options) (*Runner, error) {
	options = options.withDefaults()
	workers, own := options.Workers, options.Workers != nil
	if !own {
		workers = river.NewWorkers()
	}
	named, err := newWorkers(options)
	if err != nil {
		return nil, err
	}
	configured := &definitions{}
	configured.current.Store(&named)
	events, err := addEventsWorker(workers)
	if err != nil {
		return nil, err
	}
	logs, finished := newLogWriter(jobstore.New(options.Pool), options.Logger), newSummary(options.Logger)
	recorder := newRecorder(options, logs, finished)
	executor := newExecutor(recorder, configured, options.Logger)
	executor.outer = workerMiddleware(options.Middleware)
	p := newPilot(options, executor)
	executor.pilot, executor.guests.keepTrace, events.next = p, p.KeepTrace, p.AnnouncedJobs
	if own {
		p.Announce(eventsKind)
	}
	options.starter.load.left, options.starter.load.observe = p.MoreRoom, observeStarts(options.Metrics)
	client, err := river.NewClient(p.Driver(), riverConfig(options, workers, &riverRecorder{recorder: recorder, guests: executor.guests, pilot: p}))
	if err != nil {
		return nil, fmt.Errorf("prepare the job client: %w", err)
	}
	executor.client = client
	executor.addKinds(p.Workers())
	r := &Runner{
		Inserter: &Inserter{client: client, defaults: configured.get},
		pilot:    p, definitions: configured, executor: executor, logs: logs, finished: finished, starter: options.starter,
		logger: options.Logger, options: options,
		engine: &engine{
			client: client, pilot: p, executor: executor, runsClient: own, drainTimeout: options.DrainTimeout,
			logger: options.Logger, ready: make(chan struct{}),
		},
	}
	if !own {
		r.engine.becomeReady()
	}
	if err := r.checkKinds(named); err != nil {
		return nil, err
	}
	startAtZero(options.Metrics, r.Kinds())
	return r, nil
}

func newPilot(options Options, executor *executor) *riveradapter.Pilot {
	return riveradapter.New(riveradapter.Options{
		Pool: options.Pool, NodeID: options.NodeID, Incarnation: options.Incarnation,
		ClientID: nodestore.ClientID(options.NodeID, options.Incarnation),
		Schema:   options.Schema, NotifyEvery: fetchCooldown, Slots: options.Slots, Queues: options.Queues, Reserved: options.Reserved, Logger: options.Logger,
		Claims: options.Metrics.AssignmentClaims, Refused: options.Metrics.AssignmentRefused,
		Notifier: options.Notifier,
		Room:     func() int { return options.starter.load.room(time.Now()) },
		Fenced:   func(kind string) { options.Metrics.JobFinished.WithLabelValues(kind, outcomeFenced).Inc() },
		Start:    executor.start, Cancel: executor.cancel, Unfetched: executor.guests.refuse,
		NextRetry: executor.nextRetryOf,
	})
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
	if o.starter == nil {
		o.starter = newStarter()
	}
	return o
}

// unbounded is the limit that River enforces for a queue. The pilot enforces the actual
// limit, which may change while the client runs.
var unbounded = river.QueueConfig{MaxWorkers: river.QueueNumWorkersMax}

func riverConfig(options Options, workers *river.Workers, recording *riverRecorder) *river.Config {
	outer := make([]rivertype.Middleware, 0, len(options.Middleware))
	for _, program := range workerMiddleware(options.Middleware) {
		outer = append(outer, riverMiddleware{program, recording})
	}
	queues := make(map[string]river.QueueConfig, len(options.Queues))
	for queue := range options.Queues {
		queues[queue] = unbounded
	}
	return &river.Config{
		ID:                     nodestore.ClientID(options.NodeID, options.Incarnation),
		FetchCooldown:          fetchCooldown,
		FetchPollInterval:      fetchPollInterval,
		JobTimeout:             defaultTimeout,
		LeaderElectionDisabled: true,
		Logger:                 quietLogger(options.Logger),
		Middleware:             slices.Concat([]rivertype.Middleware{recording}, options.insertMiddleware(), outer),
		Queues:                 queues,
		Schema:                 options.Schema,
		SkipUnknownJobCheck:    true, // another node may have a worker for the kind
		Workers:                workers,
	}
}

// Run runs jobs until ctx ends, then drains: it claims no more jobs, waits up to
// DrainTimeout for running jobs, cancels the rest, and returns when all have stopped. An
// attempt that the drain cancels does not count, and its job becomes available again. Run
// waits for a Go program's worker even if it ignores its context.
func (r *Runner) Run(ctx context.Context) error {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	helpers.Go(func() { r.pilot.Report(background) })
	helpers.Go(func() { r.pilot.Search(background) })
	helpers.Go(func() { r.pilot.Listen(background) })
	helpers.Go(func() { r.logs.run(background) })
	helpers.Go(func() { r.finished.run(background) })
	helpers.Go(func() { removeUnusedReports(background) })
	defer r.starter.close()
	r.executor.logPaths(ctx)
	return r.engine.run(ctx)
}

// Ready is closed when River's client has started, if the program has its own workers.
// From then on, calls such as QueuePause work, and subscribers receive their events.
// Without such workers, the client does not run, and Ready is closed from the start.
func (r *Runner) Ready() <-chan struct{} { return r.engine.ready }

// Abandon cancels the running jobs and claims no more, because the cluster has given this
// node's jobs to other nodes and would reject its results. It returns when all jobs have
// stopped or ctx ends.
func (r *Runner) Abandon(ctx context.Context) {
	r.pilot.Drain()
	r.logs.abandon()
	if err := r.engine.abandon(ctx); err != nil {
		r.logger.WarnContext(ctx, "abandoned jobs still run", "error", err)
	}
}

// Replace replaces the jobs without code, the queues, their reserved slots and the slots while the node runs.
// Running attempts keep their definitions. If Replace returns an error, nothing has
// changed.
func (r *Runner) Replace(jobs map[string]config.Job, queues, reserved map[string]int, slots int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.options
	next.Jobs, next.Queues, next.Reserved, next.Slots = jobs, queues, reserved, slots
	next = next.withDefaults()
	named, err := newWorkers(next)
	if err != nil {
		return err
	}
	if err := r.checkKinds(named); err != nil {
		return err
	}
	for _, queue := range slices.Sorted(maps.Keys(next.Queues)) {
		if err := r.engine.addQueue(queue); err != nil {
			return err
		}
	}
	startAtZero(next.Metrics, slices.Sorted(maps.Keys(named)))
	r.definitions.current.Store(&named)
	r.pilot.Resize(next.Slots, next.Queues, next.Reserved)
	r.options = next
	return nil
}

// Kinds returns all kinds that this node has a worker for, sorted.
func (r *Runner) Kinds() []string {
	kinds := slices.Concat(r.definitions.names(), r.executor.programsKinds())
	slices.Sort(kinds)
	return kinds
}

// checkKinds rejects configured jobs whose kinds the program has workers for.
func (r *Runner) checkKinds(named map[string]*worker) error {
	for _, kind := range r.executor.programsKinds() {
		if _, taken := named[kind]; taken {
			return fmt.Errorf("job %q: the program has its own worker for this kind", kind)
		}
	}
	return nil
}

// Queues returns the maximum number of concurrent jobs in each queue.
func (r *Runner) Queues() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.options.Queues)
}

// Reserved returns the number of slots that only jobs of a queue may use, by queue.
func (r *Runner) Reserved() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.options.Reserved)
}

// Running returns the number of jobs that this node is claiming or running.
func (r *Runner) Running() int { return r.pilot.Running() }

// Client returns River's client, for all of River's other functions.
func (r *Runner) Client() *river.Client[pgx.Tx] {
	r.pilot.MayBeSubscribed()
	return r.client
}

// quietLogger drops River's messages below the level of warnings, because forge logs jobs
// itself.
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
