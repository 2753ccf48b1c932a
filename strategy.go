package forge

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/mailbox"
	"github.com/forge-scheduler/forge/roles"
)

// byLease says that the database may be reached through a pooler in transaction
// mode alone: nothing of a session lasts there, so that leaders are elected by
// their rows, nodes are known to live by their heartbeats, and what notifications
// would tell is looked for.
func (n *Node) byLease() bool { return n.election().ByLease() }

// poll is how often to look for what notifications tell elsewhere; 0: they are
// heard.
func (n *Node) poll() time.Duration {
	if !n.byLease() {
		return 0
	}
	return mailbox.Interval(n.election().CheckInterval.Std())
}

// openSession opens the node's election session, by the strategy.
func (n *Node) openSession(ctx context.Context) (roles.Session, error) {
	return roles.OpenSession(ctx, n.sessionConfig(), n.roleNames(), n.byLease())
}
