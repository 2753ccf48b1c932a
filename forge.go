// Package forge is a job scheduler on PostgreSQL. It provides one node of a cluster, which
// the forge command runs, or which a Go program embeds with its own workers.
//
//	cfg, err := forge.LoadConfig("forge.toml")
//	...
//	workers := river.NewWorkers()
//	forge.AddWorker(workers, &GreetWorker{}) // or river.AddWorker
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
	_ "embed"
	"log/slog"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/otel/trace"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/jobs"
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

	middleware []rivertype.Middleware
	tracing    trace.TracerProvider // nil without WithTracing

	roles      []customRole
	callbacks  Callbacks
	alerts     AlertEngine // nil without WithAlerts
	oidc       OIDC        // nil without WithOIDC
	kubernetes Kubernetes  // nil without WithKubernetes
}

// AddWorker adds a worker as river.AddWorker does. forge's own executor runs its jobs, at
// about half the cost of River's. All that a worker of River can do works; docs/river.md
// lists the details that differ. If the arguments of the kind have hooks or plugins for the
// work, or the worker has resumable steps, River's client runs the jobs, as it does for
// workers that were added with river.AddWorker. AddWorker panics if the kind has a worker.
func AddWorker[T river.JobArgs](workers *river.Workers, worker river.Worker[T]) {
	jobs.AddWorker(workers, worker)
}

// WithWorkers adds the program's workers, registered with AddWorker or as for River.
func WithWorkers(workers *river.Workers) Option {
	return func(o *options) { o.workers = workers }
}

// WithMiddleware adds River's middleware of the program. That for inserts is called for the
// jobs that this node inserts: with its Client, through its API and pages, and for the crons
// while it leads the scheduler. That for workers is called around the workers of all kinds,
// outside of the worker's own.
func WithMiddleware(middleware ...rivertype.Middleware) Option {
	return func(o *options) { o.middleware = append(o.middleware, middleware...) }
}

// WithTracing creates spans with the program's provider: for inserts, attempts, ticks,
// assignments and elections. The default is none, also if OpenTelemetry has a global provider.
func WithTracing(provider trace.TracerProvider) Option {
	return func(o *options) { o.tracing = provider }
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
