// Package forge is a job scheduler on PostgreSQL: one node of it, to be run by
// the forge command or embedded in a Go program with workers of its own.
//
//	cfg, err := forge.LoadConfig("forge.toml")
//	...
//	workers := river.NewWorkers()
//	river.AddWorker(workers, &GreetWorker{})
//	node, err := forge.New(cfg, forge.WithWorkers(workers))
//	...
//	err = node.Run(ctx) // until ctx ends: drains, hands over, leaves
//
// While it runs the program may insert jobs in its own transactions:
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
	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/notify"
	"github.com/forge-scheduler/forge/internal/repeats"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Config is forge.toml. Its fields are documented in docs/configuration.md.
type Config = config.Config

// ErrFenced says that the cluster took this node for dead and gave its jobs to
// others. The process is sound: a new Node may join at once.
var ErrFenced = nodestore.ErrFenced

// Example is a configuration with a cron of each kind, for trying forge out.
//
//go:embed forge.toml.example
var Example string

// LoadConfig reads the file at path, or at $FORGE_CONFIG, or ./forge.toml, and
// applies FORGE_* variables. The error lists every mistake with its position.
func LoadConfig(path string) (*Config, error) {
	cfg, _, err := config.Load(path, config.LoadOptions{JudgeAlert: alerts.Judge})
	return cfg, err
}

// ParseConfig reads the text of a forge.toml; name stands in its errors.
func ParseConfig(name, text string) (*Config, error) {
	cfg, _, err := config.Parse(name, []byte(text), config.LoadOptions{JudgeAlert: alerts.Judge})
	return cfg, err
}

// Option changes what New builds.
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
}

// WithWorkers adds the program's own workers, registered as for River.
func WithWorkers(workers *river.Workers) Option {
	return func(o *options) { o.workers = workers }
}

// WithLogger sets where the node logs; the default is slog.Default. Repeats of a warning
// or an error are counted and logged once a minute, with the attribute repeated.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithVersion names the program's version on pages and in metrics.
func WithVersion(version string) Option { return func(o *options) { o.version = version } }

// WithApply puts the file's crons in force even if a newer file has superseded
// it: a roll-back. It does not confirm a file that would remove most crons: forge
// apply --yes and ApplyConfirmed do.
func WithApply() Option { return func(o *options) { o.apply = true } }

// WithReady has the program told when the node is ready: it has joined the cluster
// and listens. The call holds the node up, so it must be short.
func WithReady(ready func()) Option { return func(o *options) { o.ready = ready } }

// Node is one process of the cluster.
type Node struct {
	// cfg is what the node was made with; current is what it runs now.
	cfg         *Config
	current     atomic.Pointer[Config]
	asked       chan struct{} // by Reload
	held        string        // hash of the configuration that waits for confirmation, or empty
	opts        options
	incarnation string
	logger      *slog.Logger
	repeats     *repeats.Handler // of logger
	pool        *pgxpool.Pool
	beats       *pgxpool.Pool // of one connection, for heartbeats
	hub         *hearing.Hub  // hears notifications for every part
	metrics     *metrics.Metrics
	runner      *jobs.Runner
	campaign    *roles.Campaign
	deputy      *roles.Deputy // nil on a node that stands for no role, and by lease
	changes     *changes
	herald      *herald
	vigil       *vigil
	writes      *writeCheck
	gate        *gate
	admission   *admission
	self        nodestore.Node
	metadata    map[string]json.RawMessage // of its own roles, with every term
	receivers   atomic.Pointer[notify.Receivers]
	differences sync.Map // of two hashes, in words
}

// New returns a node that has not started; it does not connect yet. cfg comes
// from LoadConfig or ParseConfig. An error says what is missing or wrong. A node that
// is not Run must be Closed.
func New(cfg *Config, opts ...Option) (*Node, error) {
	if err := cfg.RequireDatabase(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:         cfg,
		opts:        options{logger: slog.Default(), version: "dev", ready: func() {}},
		incarnation: nodestore.NewIncarnation(),
		changes:     newChanges(),
		gate:        &gate{},
		admission:   &admission{},
		asked:       make(chan struct{}, 1),
	}
	n.current.Store(cfg)
	for _, opt := range opts {
		opt(&n.opts)
	}
	n.repeats = repeats.New(n.opts.logger.Handler())
	n.logger = slog.New(n.repeats)
	n.metrics = metrics.New(n.opts.version)
	n.vigil = n.newVigil()
	n.writes = n.newWriteCheck()
	n.herald = newHerald(n.opts.callbacks, n.incarnation, n.election().CheckInterval.Std(), n.readLeaders)
	if err := n.assemble(context.Background()); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Close releases what New has made, for a node whose Run is not called. Run does it
// by itself. Closing twice does nothing more.
func (n *Node) Close() {
	n.repeats.Flush()
	if n.pool != nil {
		n.pool.Close()
	}
}

// Client returns the node's River client, for inserting jobs also in the
// program's own transactions. It works once Run has migrated the database.
func (n *Node) Client() *river.Client[pgx.Tx] { return n.runner.Client() }

func (n *Node) readLeaders(ctx context.Context) ([]leaderstore.Leader, error) {
	return leaderstore.Leaders(ctx, n.pool)
}

// Ready returns a channel that is closed once the node works and campaigns.
func (n *Node) Ready() <-chan struct{} { return n.gate.opened() }
