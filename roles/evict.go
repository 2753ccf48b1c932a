package roles

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/forge-scheduler/forge/leaderstore"
)

// evictor is a session that can end another's that holds a role beyond its lease:
// the backup for a server that does not do it by itself.
type evictor interface {
	Evict(ctx context.Context) ([]leaderstore.Eviction, error)
}

// evict ends the sessions that hold roles beyond their lease. A role that is got
// free so is tried again and again for a short while.
func (b *bout) evict(ctx context.Context) error {
	session, ok := b.session.(evictor)
	if !ok {
		return nil
	}
	sending, cancel := b.bounded(ctx)
	defer cancel()
	evictions, err := session.Evict(sending)
	for _, eviction := range evictions {
		b.tell(ctx, eviction)
		if eviction.Ended {
			b.Hurry(leaderstore.End{})
		}
	}
	return err
}

// tell logs an eviction, and once for each holder that there can be none.
func (c *Campaign) tell(ctx context.Context, eviction leaderstore.Eviction) {
	logger := c.opts.Logger.With("role", eviction.Role, "term", eviction.Term, "pid", eviction.PID, "holder", eviction.Holder)
	switch obstacle := fmt.Sprint(eviction.Role, eviction.PID, eviction.Refused); {
	case eviction.Ended:
		logger.WarnContext(ctx, "evicted a leader whose lease had run out; the server should have ended its session")
	case c.obstacles[obstacle]:
	case eviction.Refused:
		c.obstacles[obstacle] = true
		logger.WarnContext(ctx, "no right to end the session of a leader whose lease has run out; "+
			"let all nodes log in as one role, or grant them pg_signal_backend")
	case strings.HasPrefix(eviction.Holder, "forge:"):
		c.obstacles[obstacle] = true
		logger.WarnContext(ctx, "another forge cluster holds this role's lock; give one of the two another cluster.lock_namespace",
			"schema", cmp.Or(eviction.Schema, "unknown"))
	default:
		c.obstacles[obstacle] = true
		logger.WarnContext(ctx, "another application holds this role's lock; set cluster.lock_namespace to move forge out of its way, "+
			"and see docs/security.md on who may connect")
	}
}
