package forge

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// cleanup is a stack of the functions that close what New and Run have opened.
type cleanup struct {
	mu     sync.Mutex
	closes []func() error
}

// add pushes a function that closes the named resource.
func (c *cleanup) add(name string, closeIt func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closes = append(c.closes, func() error {
		if err := closeIt(); err != nil {
			return fmt.Errorf("close %s: %w", name, err)
		}
		return nil
	})
}

// run calls the functions, the last one first, and forgets them.
func (c *cleanup) run() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, closeIt := range slices.Backward(c.closes) {
		errs = append(errs, closeIt())
	}
	c.closes = nil
	return errors.Join(errs...)
}

func closePool(pool *pgxpool.Pool) func() error {
	return func() error { postgres.ClosePool(pool); return nil }
}

// closeListener returns a function that closes a listener that its server may have closed.
func closeListener(listener net.Listener) func() error {
	return func() error {
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}
