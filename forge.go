// Package forge is a job scheduler on PostgreSQL. It provides one node of a cluster, which
// the forge command runs, or which a Go program embeds with its own workers.
//
//	cfg, err := forge.LoadConfig("forge.toml")
//	...
//	workers := river.NewWorkers()
//	river.AddWorker(workers, &GreetWorker{})
//	node, err := forge.New(cfg, forge.WithWorkers(workers))
//	...
//	err = node.Run(ctx) // until ctx ends: drains, hands over, leaves
//
// While the node runs, the program can insert jobs in its own transactions:
//
//	_, err = node.Client().InsertTx(ctx, tx, GreetArgs{Name: "Ada"}, nil)
//	_, err = node.Client().InsertManyTx(ctx, tx, []river.InsertManyParams{{Args: GreetArgs{Name: "Bo"}}})
package forge

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/repeats"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Config is the content of forge.toml. docs/configuration.md documents its fields.
type Config = config.Config

// ErrFenced means that the cluster declared this node dead and gave its jobs to other
// nodes. The process itself is intact: a new Node may join at once.
var ErrFenced = nodestore.ErrFenced

// Example is an example configuration with a cron of each kind.
//
//go:embed forge.toml.example
var Example string

// LoadConfig reads the file at path, $FORGE_CONFIG or ./forge.toml, and applies the FORGE_*
// variables. The error lists every mistake with its position. New checks the conditions of
// alerts.
func LoadConfig(path string) (*Config, error) {
	cfg, _, err := config.Load(path, config.LoadOptions{})
	return cfg, err
}

// ParseConfig parses the text of a forge.toml. Its errors use name as the file name.
func ParseConfig(name, text string) (*Config, error) {
	cfg, _, err := config.Parse(name, []byte(text), config.LoadOptions{})
	return cfg, err
}

// Option configures a node.
type Option func(*options)

type options struct {
	workers *river.Workers
	logger  *slog.Logger
	version string
	apply   bool
	ready   func()
	file    file

	roles     []customRole
	callbacks Callbacks
	alerts    AlertEngine // nil without WithAlerts
}

// WithWorkers adds the program's workers, registered as for River.
func WithWorkers(workers *river.Workers) Option {
	return func(o *options) { o.workers = workers }
}

// WithLogger sets the logger; the default is slog.Default. Repeated warnings and errors are
// counted and logged once a minute with the attribute repeated.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithVersion sets the program version that pages and metrics show.
func WithVersion(version string) Option { return func(o *options) { o.version = version } }

// WithApply applies the file's crons even if a newer file has superseded them, as a
// roll-back. It does not confirm a file that would remove most crons; forge apply --yes and
// ApplyConfirmed do.
func WithApply() Option { return func(o *options) { o.apply = true } }

// WithReady sets a function that is called when the node is ready: it has joined the
// cluster and listens. The call blocks the node, so it must be short.
func WithReady(ready func()) Option { return func(o *options) { o.ready = ready } }

// Node is one process of the cluster.
type Node struct {
	// cfg is the configuration of New; current is the one in use.
	cfg             *Config
	current         atomic.Pointer[Config]
	reloadRequested chan struct{} // set by Reload
	unconfirmedHash string        // hash of the configuration that waits for confirmation, or empty
	opts            options
	incarnation     string
	logger          *slog.Logger
	repeats         *repeats.Handler // the handler of logger
	pool            *pgxpool.Pool
	heartbeatPool   *pgxpool.Pool      // a single connection for heartbeats
	notifier        *postgres.Notifier // receives the notifications for all parts
	metrics         *metrics.Metrics
	runner          *jobs.Runner
	elections       *roles.Elections
	deputy          *roles.Deputy // nil without candidacies, and with the lease strategy
	broadcaster     *broadcaster
	callbackLoop    *callbackLoop
	healthWatcher   *healthWatcher
	writes          *writeCheck
	readiness       *readiness
	admission       *admission
	self            nodestore.Node
	metadata        map[string]json.RawMessage // of custom roles, published with each term
	receivers       atomic.Pointer[alerts.Sender]
	differences     sync.Map // descriptions of the differences by pair of hashes
}

// New returns a node that is not running and not connected. cfg comes from LoadConfig or
// ParseConfig. The error names missing or wrong settings. A node whose Run is not called
// must be closed.
func New(cfg *Config, opts ...Option) (*Node, error) {
	if err := cfg.RequireDatabase(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:             cfg,
		opts:            options{logger: slog.Default(), version: "dev", ready: func() {}},
		incarnation:     nodestore.NewIncarnation(),
		broadcaster:     newBroadcaster(),
		readiness:       &readiness{},
		admission:       &admission{},
		reloadRequested: make(chan struct{}, 1),
	}
	n.current.Store(cfg)
	for _, opt := range opts {
		opt(&n.opts)
	}
	if err := n.checkAlerts(cfg); err != nil {
		return nil, err
	}
	n.repeats = repeats.New(n.opts.logger.Handler())
	n.logger = slog.New(n.repeats)
	n.metrics = metrics.New(n.opts.version)
	n.healthWatcher = n.newHealthWatcher()
	n.writes = n.newWriteCheck()
	n.callbackLoop = newCallbackLoop(n.opts.callbacks, n.incarnation, n.electionConfig().CheckInterval.Std(), n.readLeaders)
	if err := n.assemble(context.Background()); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Close releases the resources of a node whose Run is not called. Run calls it itself.
// Further calls do nothing.
func (n *Node) Close() {
	n.repeats.Flush()
	if n.pool != nil {
		n.pool.Close()
	}
}

// Client returns the node's River client, which also inserts jobs in the program's own
// transactions. It works once Run has migrated the database.
func (n *Node) Client() *river.Client[pgx.Tx] { return n.runner.Client() }

func (n *Node) readLeaders(ctx context.Context) ([]leaderstore.Leader, error) {
	return leaderstore.New(n.pool).Leaders(ctx)
}

// Ready returns a channel that is closed once the node works jobs and takes part in
// elections.
func (n *Node) Ready() <-chan struct{} { return n.readiness.readyChan() }
