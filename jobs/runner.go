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
	"github.com/forge-scheduler/forge/internal/hearing"
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
	defaultIdle  = 15 * time.Second
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
	// IdleAfter is how long River's client runs on without work, which costs
	// dozens of wake-ups a second; 0 means 15 s. With Workers it always runs: a
	// program may have subscribed to its events, and River ends subscriptions
	// with the client.
	IdleAfter time.Duration
	// ClusterURL is where sql jobs without a database of their own run.
	ClusterURL string
	// AllowedCommands bound what shell jobs run; empty: any program.
	AllowedCommands config.AllowedCommands
	// AllowPrivateTargets lets http jobs reach loopback and private addresses.
	AllowPrivateTargets bool
	// AllowTargets are ranges that http jobs may reach though they are closed.
	AllowTargets []netip.Prefix
	// Poll is how often to look for offers and for what operators want of jobs,
	// where notifications are not heard: behind a pooler in transaction mode. 0:
	// they are.
	Poll time.Duration
	// Hub hears notifications. Default: one of the runner's own.
	Hub     *hearing.Hub
	Logger  *slog.Logger
	Metrics *metrics.Metrics

	starter *starter
}

// Runner runs jobs on this node.
type Runner struct {
	*Inserter
	pilot       *pilot.Pilot
	definitions *definitions
	engine      *engine
	logs        *logWriter
	finished    *summary
	starter     *starter
	logger      *slog.Logger

	mu      sync.Mutex
	options Options // as Replace last changed them
}

// New registers every kind and makes the client; nothing runs yet. An error
// names the job that is at fault.
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
	if err := configured.register(workers); err != nil {
		return nil, err
	}
	p := newPilot(options, configured)
	options.starter.load.left, options.starter.load.observe = p.MoreRoom, observeStarts(options.Metrics)
	logs, finished := newLogWriter(logTable{options.Pool}, options.Logger), newSummary(options.Logger)
	client, err := river.NewClient(p.Driver(), riverConfig(options, workers, newRecorder(options, configured, logs, p.KeepTrace, finished)))
	if err != nil {
		return nil, fmt.Errorf("prepare the job client: %w", err)
	}
	r := &Runner{
		Inserter: &Inserter{client: client, defaults: configured.get},
		pilot:    p, definitions: configured, logs: logs, finished: finished, starter: options.starter, logger: options.Logger, options: options,
		engine: &engine{
			client: client, pilot: p, steady: own, idleAfter: options.IdleAfter, logger: options.Logger,
			ready: make(chan struct{}),
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

func newPilot(options Options, configured *definitions) *pilot.Pilot {
	return pilot.New(pilot.Options{
		Pool: options.Pool, NodeID: options.NodeID, Incarnation: options.Incarnation,
		ClientID: nodestore.ClientID(options.NodeID, options.Incarnation),
		Schema:   options.Schema, Slots: options.Slots, Queues: options.Queues, Logger: options.Logger,
		Claims: options.Metrics.AssignmentClaims, Refused: options.Metrics.AssignmentRefused,
		Poll: options.Poll, Hub: options.Hub,
		Room:    func() int { return options.starter.load.room(time.Now()) },
		Fenced:  func(kind string) { options.Metrics.JobFinished.WithLabelValues(kind, outcomeFenced).Inc() },
		Claimed: configured.claimed, Finished: configured.finished,
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
	if o.IdleAfter <= 0 {
		o.IdleAfter = defaultIdle
	}
	if o.starter == nil {
		o.starter = newStarter()
	}
	return o
}

// unbounded is the bound that River keeps for a queue. The pilot keeps the real
// one, which may change while the client runs.
var unbounded = river.QueueConfig{MaxWorkers: river.QueueNumWorkersMax}

func riverConfig(options Options, workers *river.Workers, recording rivertype.Middleware) *river.Config {
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
		Middleware:             []rivertype.Middleware{recording, counting(options.Metrics), reserved},
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
	var helpers sync.WaitGroup
	defer helpers.Wait()
	helping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	helpers.Go(func() { r.pilot.Report(helping) })
	helpers.Go(func() { r.pilot.Search(helping) })
	helpers.Go(func() { r.pilot.Listen(helping) })
	helpers.Go(func() { r.logs.run(helping) })
	helpers.Go(func() { r.finished.run(helping) })
	defer r.starter.close()
	return r.engine.run(ctx)
}

// Ready is closed once River's client of a program with workers of its own has started, so that
// it takes orders such as QueuePause and its subscribers hear of them. Without such workers the
// client runs only while there are jobs, and Ready is closed from the beginning.
func (r *Runner) Ready() <-chan struct{} { return r.engine.ready }

// Abandon cancels what runs and claims no more: the cluster has given this
// node's jobs to others, and nothing that it finishes would count. It returns
// when all has stopped or ctx ends.
func (r *Runner) Abandon(ctx context.Context) {
	r.pilot.Drain()
	r.logs.abandon()
	if err := r.engine.abandon(ctx); err != nil {
		r.logger.WarnContext(ctx, "abandoned jobs still run", "error", err)
	}
}

// Replace puts other jobs without code, queues and slots in force, without a
// pause. Attempts that run go on as they began. After an error nothing has
// changed.
func (r *Runner) Replace(jobs map[string]config.Job, queues map[string]int, slots int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.options
	next.Jobs, next.Queues, next.Slots = jobs, queues, slots
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
	r.pilot.Resize(next.Slots, next.Queues)
	r.options = next
	return nil
}

// Kinds are all kinds that this node has a worker for, sorted.
func (r *Runner) Kinds() []string {
	kinds := r.definitions.names()
	for _, kind := range r.pilot.Kinds() {
		if kind != configuredKind {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// checkKinds refuses jobs of the file that the program has workers for.
func (r *Runner) checkKinds(named map[string]*worker) error {
	for _, kind := range r.pilot.Kinds() {
		if _, taken := named[kind]; taken {
			return fmt.Errorf("job %q: the program has a worker of its own for this kind", kind)
		}
	}
	return nil
}

// Queues is the most jobs of each queue that this node runs at once.
func (r *Runner) Queues() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.options.Queues)
}

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
