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

// gate opens when the node is ready and closes when it begins to stop.
type gate struct {
	once sync.Once
	ch   chan struct{}
	shut atomic.Bool
}

func (g *gate) opened() <-chan struct{} {
	g.once.Do(func() { g.ch = make(chan struct{}) })
	return g.ch
}

func (g *gate) open() { g.opened(); close(g.ch) }

func (g *gate) close() { g.shut.Store(true) }

// err says why the node is not ready, or nothing.
func (g *gate) err() error {
	select {
	case <-g.opened():
	default:
		return errors.New("workers: the node is starting")
	}
	if g.shut.Load() {
		return errors.New("workers: the node is stopping")
	}
	return nil
}

// admission turns away new connections of a node that was fenced: what it still
// had in flight ended with its old ones.
type admission struct{ joined atomic.Bool }

func (a *admission) check(incarnation string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if !a.joined.Load() || failpoint.Off("jobs/attempt-fence") {
			return nil
		}
		if err := nodestore.Admit(ctx, conn, incarnation); err != nil {
			return fmt.Errorf("check in with the cluster: %w", err)
		}
		return nil
	}
}
