package forge

import (
	"context"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/roles"
)

// byLease reports whether the lease strategy is configured, for a database behind a pooler
// in transaction mode. There, no session state lasts: leaders are elected by their rows,
// heartbeats show that a node is alive, and polling replaces notifications.
func (n *Node) byLease() bool { return n.electionConfig().ByLease() }

func (n *Node) newNotifier() *postgres.Notifier {
	if n.byLease() {
		return postgres.NewPollingNotifier(n.pool, n.electionConfig().CheckInterval.Std(), n.logger)
	}
	return postgres.NewNotifier(n.pool, n.logger)
}

// openSession opens the node's election session with the configured strategy.
func (n *Node) openSession(ctx context.Context) (roles.Session, error) {
	return roles.OpenSession(ctx, n.sessionConfig(), n.roleNames(), n.byLease())
}
