package forge

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/roles"
)

// Kubernetes elects with Lease objects. kubernetes.New of the package
// github.com/forge-scheduler/forge/kubernetes returns it.
type Kubernetes interface {
	// NewLeases returns the Leases of a process with the configuration. It sends no request.
	NewLeases(cfg *Config, roles []string, metrics *metrics.Metrics, logger *slog.Logger) (roles.Leases, error)
}

// WithKubernetes lets strategy = "kubernetes" elect the leaders:
//
//	forge.WithKubernetes(kubernetes.New())
//
// Without it, a program that imports forge compiles no client of Kubernetes. A file with this
// strategy is then an error of New.
func WithKubernetes(engine Kubernetes) Option { return func(o *options) { o.kubernetes = engine } }

var errNoKubernetes = errors.New("the configuration has cluster.leader_election.strategy = \"kubernetes\", and the program has no client of Kubernetes: " +
	"pass forge.WithKubernetes(kubernetes.New()) to forge.New")

// createLeases leaves the Leases nil unless they elect.
func (n *Node) createLeases() (err error) {
	switch {
	case !n.electionConfig().ByKubernetes():
		return nil
	case n.opts.kubernetes == nil:
		return errNoKubernetes
	}
	n.leases, err = n.opts.kubernetes.NewLeases(n.cfg, n.roleNames(), n.metrics, n.logger)
	return err
}

func (n *Node) runLeases(ctx context.Context) error {
	if n.leases != nil {
		n.leases.Run(ctx)
	}
	<-ctx.Done()
	return nil
}
