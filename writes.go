package forge

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// writesInterval is how often a node checks that the database accepts its writes,
	// independent of the number of probes: 200 nodes check 20 times a second.
	writesInterval = 10 * time.Second
	// writesTimeout limits a check. A slower server is busy, which is no reason to take the
	// node out of service.
	writesTimeout = 5 * time.Second
)

// writeCheck checks whether this node can write. Reads do not detect a full disk, revoked
// privileges, missing tables or a read-only database.
type writeCheck struct {
	probe  func(ctx context.Context) error
	logger *slog.Logger
	// report is called after each check with its result.
	report func(ok bool)
	// lastRefusal is the error of the last check that the server answered, if it rejected
	// the write.
	lastRefusal atomic.Pointer[error]
}

func (n *Node) newWriteCheck() *writeCheck {
	return &writeCheck{
		probe:  func(ctx context.Context) error { return postgres.CheckWrites(ctx, n.pool, n.cfg.Database.Schema) },
		logger: n.logger,
		report: n.reportReady,
	}
}

// reportReady sets the readiness metric to the result of /readyz.
func (n *Node) reportReady(ok bool) {
	ready := 0.0
	if ok && n.readiness.err() == nil {
		ready = 1
	}
	n.metrics.NodeReady.Set(ready)
}

// run checks periodically until ctx ends.
func (w *writeCheck) run(ctx context.Context) error {
	for watchdog.Sleep(ctx, writesInterval) {
		w.check(ctx)
	}
	return nil
}

// check runs one check. It ignores connection errors, because readiness also pings.
func (w *writeCheck) check(ctx context.Context) {
	checking, cancel := context.WithTimeout(ctx, writesTimeout)
	defer cancel()
	err := w.probe(checking)
	defer func() { w.report(err == nil) }()
	switch before := w.err(); {
	case isWriteRefusal(err):
		w.lastRefusal.Store(&err)
		if before == nil {
			w.logger.ErrorContext(ctx, "this node cannot work: the database rejects its writes", "error", err)
		}
	case err == nil && before != nil:
		w.lastRefusal.Store(nil)
		w.logger.InfoContext(ctx, "this node can work again")
	}
}

// isWriteRefusal reports whether the server answered and rejected the write.
func isWriteRefusal(err error) bool {
	_, disk := errors.AsType[*postgres.DiskError](err)
	_, rights := errors.AsType[*postgres.RightsError](err)
	_, tables := errors.AsType[*postgres.TablesError](err)
	return disk || rights || tables || errors.Is(err, postgres.ErrWritesRejected)
}

// err returns why the node cannot work, by the last check.
func (w *writeCheck) err() error {
	err := w.lastRefusal.Load()
	if err == nil {
		return nil
	}
	return cluster.UnreadyError{Public: "database: it rejects this node's writes", Err: *err}
}
