package roles

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/forge-scheduler/forge/leaderstore"
)

// evictor is a session that can end another session which holds a role beyond its lease, in
// case the server has not ended it.
type evictor interface {
	Evict(ctx context.Context) ([]leaderstore.Eviction, error)
}

// evict ends the sessions that hold roles beyond their lease, and then tries the freed
// locks at once.
func (l *electionLoop) evict(ctx context.Context) error {
	session, ok := l.session.(evictor)
	if !ok {
		return nil
	}
	sending, cancel := l.withLeaseTimeout(ctx)
	defer cancel()
	evictions, err := session.Evict(sending)
	for _, eviction := range evictions {
		l.logEviction(ctx, eviction)
		if eviction.Ended {
			l.ElectNow(leaderstore.SessionEnd{})
		}
	}
	return err
}

// logEviction logs each eviction. It logs a holder that cannot be evicted once.
func (es *Elections) logEviction(ctx context.Context, eviction leaderstore.Eviction) {
	logger := es.opts.Logger.With("role", eviction.Role, "term", eviction.Term, "pid", eviction.PID, "holder", eviction.Holder)
	switch obstacle := fmt.Sprint(eviction.Role, eviction.PID, eviction.Refused); {
	case eviction.Ended:
		logger.WarnContext(ctx, "evicted a leader whose lease had expired; the server should have ended its session")
	case es.loggedHolders[obstacle]:
	case eviction.Refused:
		es.loggedHolders[obstacle] = true
		logger.WarnContext(ctx, "not permitted to end the session of a leader whose lease has expired; "+
			"let all nodes log in as one role, or grant them pg_signal_backend")
	case strings.HasPrefix(eviction.Holder, "forge:"):
		es.loggedHolders[obstacle] = true
		logger.WarnContext(ctx, "another forge cluster holds this role's lock; give one of the two another cluster.lock_namespace",
			"schema", cmp.Or(eviction.Schema, "unknown"))
	default:
		es.loggedHolders[obstacle] = true
		logger.WarnContext(ctx, "another application holds this role's lock; set cluster.lock_namespace to move forge out of its way, "+
			"and see docs/security.md on who may connect")
	}
}
