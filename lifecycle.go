package forge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// service is a long-running part of a node. run blocks until ctx ends and returns once
// everything that it started has stopped.
type service struct {
	name string
	run  func(ctx context.Context) error
}

// runServices runs tiers of services, the outermost first. When ctx ends or a service
// fails, it stops the innermost tier and waits for it, then the next one outwards: a tier
// runs until the tiers that depend on it have stopped.
func runServices(ctx context.Context, tiers ...[]service) error {
	running := make([]*tier, len(tiers))
	failed := make(chan struct{})
	var once sync.Once
	for i, services := range tiers {
		running[i] = startTier(ctx, services, func() { once.Do(func() { close(failed) }) })
	}
	select {
	case <-ctx.Done():
	case <-failed:
	}
	var errs []error
	for _, t := range slices.Backward(running) {
		errs = append(errs, t.stop())
	}
	return errors.Join(errs...)
}

type tier struct {
	cancel context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

func startTier(ctx context.Context, services []service, failed func()) *tier {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &tier{cancel: cancel}
	for _, s := range services {
		t.wait.Go(func() {
			if err := s.run(working); err != nil {
				t.mu.Lock()
				t.errs = append(t.errs, fmt.Errorf("%s: %w", s.name, err))
				t.mu.Unlock()
				failed()
			}
		})
	}
	return t
}

func (t *tier) stop() error {
	t.cancel()
	t.wait.Wait()
	return errors.Join(t.errs...)
}
