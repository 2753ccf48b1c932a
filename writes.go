package forge

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/forge-scheduler/forge/dashboard"
	"github.com/forge-scheduler/forge/internal/dbcheck"
	"github.com/forge-scheduler/forge/internal/progress"
)

const (
	// writesInterval is how often a node checks that the database takes what it writes,
	// however many probes ask: 200 nodes check 20 times a second.
	writesInterval = 10 * time.Second
	// writesTimeout bounds a check. A server that is slower is busy, which is not why it
	// would be taken out of service.
	writesTimeout = 5 * time.Second
)

// writeCheck knows whether this node can work: reading says nothing of a full disk, of
// rights that were revoked or of a database that was made read-only.
type writeCheck struct {
	ask    func(ctx context.Context) error
	logger *slog.Logger
	// report is called after each check with whether it went well.
	report func(well bool)
	// refusal is what the server refused at the last check that it answered.
	refusal atomic.Pointer[error]
}

func (n *Node) newWriteCheck() *writeCheck {
	return &writeCheck{
		ask:    func(ctx context.Context) error { return dbcheck.Writes(ctx, n.pool, n.cfg.Database.Schema) },
		logger: n.logger,
		report: n.reportReady,
	}
}

// reportReady shows in the metrics what /readyz says.
func (n *Node) reportReady(well bool) {
	ready := 0.0
	if well && n.gate.err() == nil {
		ready = 1
	}
	n.metrics.NodeReady.Set(ready)
}

// run checks again and again until ctx ends.
func (w *writeCheck) run(ctx context.Context) error {
	for progress.Sleep(ctx, writesInterval) {
		w.check(ctx)
	}
	return nil
}

// check asks once. An error of the connection changes nothing: readiness pings as well.
func (w *writeCheck) check(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, writesTimeout)
	defer cancel()
	err := w.ask(asking)
	defer func() { w.report(err == nil) }()
	switch before := w.err(); {
	case refused(err):
		w.refusal.Store(&err)
		if before == nil {
			w.logger.ErrorContext(ctx, "this node cannot work: the database refuses its writes", "error", err)
		}
	case err == nil && before != nil:
		w.refusal.Store(nil)
		w.logger.InfoContext(ctx, "this node can work again")
	}
}

// refused says whether the server answered, and refuses what a node writes.
func refused(err error) bool {
	_, disk := errors.AsType[*dbcheck.DiskError](err)
	_, rights := errors.AsType[*dbcheck.RightsError](err)
	return disk || rights || errors.Is(err, dbcheck.ErrReadOnly)
}

// err is why the node cannot work, as of the last check.
func (w *writeCheck) err() error {
	err := w.refusal.Load()
	if err == nil {
		return nil
	}
	return dashboard.UnreadyError{Public: "database: it refuses what this node writes", Err: *err}
}
