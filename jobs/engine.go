package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/jobs/internal/pilot"
)

// restartPause is between two tries to start the client while the database does
// not answer.
const restartPause = 200 * time.Millisecond

// engine runs River's client while there is work for it.
type engine struct {
	client *river.Client[pgx.Tx]
	pilot  *pilot.Pilot
	// steady keeps the client running without work, else it stops idleAfter.
	steady    bool
	idleAfter time.Duration
	logger    *slog.Logger

	// ready is closed once a steady client has started; without one, at once.
	ready     chan struct{}
	readyOnce sync.Once

	mu        sync.Mutex // held while the client starts
	running   bool
	abandoned bool
}

// run works what is offered until ctx ends, then drains.
func (e *engine) run(ctx context.Context) error {
	defer e.pilot.Drain()
	for e.awaitWork(ctx) {
		started, err := e.start(ctx)
		switch {
		case started:
			if err := e.fly(ctx); err != nil {
				return err
			}
		case err == nil: // others have this node's jobs, and it is about to end
			<-ctx.Done()
		case ctx.Err() == nil:
			e.logger.WarnContext(ctx, "offered jobs cannot be worked yet", "error", err)
			progress.Sleep(ctx, restartPause)
		}
	}
	return nil
}

func (e *engine) becomeReady() { e.readyOnce.Do(func() { close(e.ready) }) }

// awaitWork returns false when ctx ended first.
func (e *engine) awaitWork(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if e.steady || e.pilot.IdleSince().IsZero() {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-e.pilot.Wanted():
		return true
	}
}

// start reports whether the client runs; it does not once it was abandoned.
func (e *engine) start(ctx context.Context) (started bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.abandoned {
		return false, nil
	}
	if err := e.client.Start(ctx); err != nil {
		return false, fmt.Errorf("start working jobs: %w", err)
	}
	e.running = true
	e.becomeReady()
	return true, nil
}

// fly returns when the client has stopped: idle, or in order at the end of ctx.
func (e *engine) fly(ctx context.Context) error {
	stopped := e.client.Stopped()
	defer e.landed()
	for {
		select {
		case <-ctx.Done():
			e.pilot.Drain()
			<-stopped
			return nil
		case <-stopped:
			if ctx.Err() != nil || e.isAbandoned() {
				return nil
			}
			return errors.New("the job client stopped by itself")
		case <-time.After(e.untilIdle()):
			if e.untilIdle() <= 0 {
				return e.stop(ctx)
			}
		}
	}
}

// untilIdle is how long the client has to run on at least.
func (e *engine) untilIdle() time.Duration {
	since := e.pilot.IdleSince()
	if since.IsZero() || e.steady {
		return e.idleAfter
	}
	return time.Until(since.Add(e.idleAfter))
}

// stop ends a client that has nothing to do. Offers that come meanwhile wait
// for the next start.
func (e *engine) stop(ctx context.Context) error {
	if err := e.client.Stop(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("stop working jobs: %w", err)
	}
	return nil
}

func (e *engine) landed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// abandon cancels what runs, and lets nothing start again.
func (e *engine) abandon(ctx context.Context) error {
	e.mu.Lock()
	e.abandoned = true
	running := e.running
	e.mu.Unlock()
	if !running {
		return nil
	}
	return e.client.StopAndCancel(ctx)
}

func (e *engine) isAbandoned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.abandoned
}

// addQueue has the client look after one queue more.
func (e *engine) addQueue(queue string) error {
	var known *river.QueueAlreadyAddedError
	err := e.client.Queues().Add(queue, unbounded)
	if err != nil && !errors.As(err, &known) {
		return fmt.Errorf("add queue %q: %w", queue, err)
	}
	return nil
}
