package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

type options struct {
	cluster  string           // the first part of the Leases' names
	identity string           // the node's id, by which a Lease names its holder
	duration time.Duration    // how long a Lease lasts without a renewal; in the object it is rounded up to seconds
	interval time.Duration    // between two requests for a Lease
	metrics  *metrics.Metrics // may be nil
	logger   *slog.Logger
}

// candidates compete for the Leases of several roles.
type candidates struct {
	client  *client
	opts    options
	byRole  map[string]*candidate
	changed chan struct{} // has room for one
	// database is the DatabaseID, which is known once a session has tried to elect.
	database atomic.Pointer[string]
}

// Engine is what forge.WithKubernetes takes.
type Engine struct{}

// New returns the engine for forge.WithKubernetes.
func New() Engine { return Engine{} }

// NewLeases returns the Leases of a process with a configuration. The API server and the namespace
// are those of the kubeconfig that KUBECONFIG names, or of the pod. NewLeases sends no request.
// metrics may be nil.
func (Engine) NewLeases(cfg *config.Config, names []string, metrics *metrics.Metrics, logger *slog.Logger) (roles.Leases, error) {
	election := cfg.Cluster.LeaderElection
	client, err := newClient(os.Getenv("KUBECONFIG"), requestTimeout(election.LeaseDuration.Std()))
	if err != nil {
		return nil, fmt.Errorf("cluster.leader_election.strategy = %q: %w", election.Strategy, err)
	}
	return newCandidates(client, names, options{
		cluster: cfg.Cluster.Name, identity: cfg.Node.ID,
		duration: election.LeaseDuration.Std(), interval: election.RefreshInterval.Std(), metrics: metrics, logger: logger,
	}), nil
}

// newCandidates returns candidates that send nothing before Run.
func newCandidates(client *client, roles []string, opts options) *candidates {
	c := &candidates{client: client, opts: opts, byRole: map[string]*candidate{}, changed: make(chan struct{}, 1)}
	for _, role := range roles {
		name := leaseName(opts.cluster, role)
		c.byRole[role] = &candidate{
			client: client, name: name, opts: &c.opts, database: &c.database, onChange: c.noteChange, wake: make(chan struct{}, 1),
			logger:   opts.logger.With("lease", client.namespace+"/"+name),
			failures: prometheus.NewCounter(prometheus.CounterOpts{}),
		}
		if opts.metrics != nil {
			c.byRole[role].failures = opts.metrics.LeaderLeaseErrors.WithLabelValues(role, opts.identity)
		}
	}
	return c
}

// Run competes for the Leases that are wanted until ctx ends, and then gives up those that are
// held.
func (c *candidates) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, candidate := range c.byRole {
		running.Go(func() { candidate.run(ctx) })
	}
	running.Wait()
}

// Objects reads the Leases, within one requestTimeout for all.
func (c *candidates) Objects(ctx context.Context) []roles.LeaseObject {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout(c.opts.duration))
	defer cancel()
	var objects []roles.LeaseObject
	for role, candidate := range c.byRole {
		object := roles.LeaseObject{Role: role, Name: c.client.namespace + "/" + candidate.name}
		object.Holder, object.Database, object.Err = c.client.holder(ctx, candidate.name)
		objects = append(objects, object)
	}
	slices.SortFunc(objects, func(a, b roles.LeaseObject) int { return cmp.Compare(a.Name, b.Name) })
	return objects
}

func (c *candidates) noteChange() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// identify reads the DatabaseID once. No Lease is wanted before.
func (c *candidates) identify(ctx context.Context, store *leaderstore.Store) error {
	if c.database.Load() != nil {
		return nil
	}
	id, err := store.DatabaseID(ctx)
	if err == nil {
		c.database.Store(&id)
	}
	return err
}
