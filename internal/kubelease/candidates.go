package kubelease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// Options configure Candidates.
type Options struct {
	// Cluster is the first part of the Leases' names.
	Cluster string
	// Identity is the node's id. A Lease names its holder by it.
	Identity string
	// Duration is how long a Lease lasts without a renewal. In the object it is rounded up to
	// seconds.
	Duration time.Duration
	// Interval is the time between two requests for a Lease.
	Interval time.Duration
	Logger   *slog.Logger
}

// Candidates compete for the Leases of several roles.
type Candidates struct {
	opts    Options
	byRole  map[string]*candidate
	changed chan struct{} // has room for one
}

// FromConfig returns the Candidates of a process with a configuration.
func FromConfig(cfg *config.Config, roles []string, logger *slog.Logger) (*Candidates, error) {
	election := cfg.Cluster.LeaderElection
	client, err := NewClient(Kubeconfig(), election.LeaseDuration.Std())
	if err != nil {
		return nil, fmt.Errorf("cluster.leader_election.strategy = %q: %w", election.Strategy, err)
	}
	return New(client, roles, Options{
		Cluster: cfg.Cluster.Name, Identity: cfg.Node.ID,
		Duration: election.LeaseDuration.Std(), Interval: election.RefreshInterval.Std(), Logger: logger,
	}), nil
}

// New returns Candidates for roles, which send nothing before Run.
func New(client *Client, roles []string, opts Options) *Candidates {
	c := &Candidates{opts: opts, byRole: map[string]*candidate{}, changed: make(chan struct{}, 1)}
	for _, role := range roles {
		name := LeaseName(opts.Cluster, role)
		c.byRole[role] = &candidate{
			client: client, name: name, opts: &c.opts, onChange: c.noteChange, wake: make(chan struct{}, 1),
			logger: opts.Logger.With("lease", client.Namespace+"/"+name),
		}
	}
	return c
}

// Run competes for the Leases that are wanted until ctx ends, and then gives up those that are
// held. It returns no error.
func (c *Candidates) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, candidate := range c.byRole {
		running.Go(func() { candidate.run(ctx) })
	}
	running.Wait()
	return nil
}

func (c *Candidates) noteChange() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
