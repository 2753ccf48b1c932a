package forge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// readiness records that the node is ready, and then that it stops.
type readiness struct {
	once     sync.Once
	ch       chan struct{}
	stopping atomic.Bool
}

func (r *readiness) readyChan() <-chan struct{} {
	r.once.Do(func() { r.ch = make(chan struct{}) })
	return r.ch
}

func (r *readiness) setReady() { r.readyChan(); close(r.ch) }

func (r *readiness) setStopping() { r.stopping.Store(true) }

// err returns why the node is not ready, or nil.
func (r *readiness) err() error {
	select {
	case <-r.readyChan():
	default:
		return errors.New("workers: the node is starting")
	}
	if r.stopping.Load() {
		return errors.New("workers: the node is stopping")
	}
	return nil
}

// admission rejects new connections of a fenced node. Its pending work ended with the old
// connections.
type admission struct{ joined atomic.Bool }

func (a *admission) check(incarnation string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if !a.joined.Load() || failpoint.Off("jobs/attempt-fence") {
			return nil
		}
		if err := nodestore.New(conn).Admit(ctx, incarnation); err != nil {
			return fmt.Errorf("check that the node is not fenced: %w", err)
		}
		return nil
	}
}
