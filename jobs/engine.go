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

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/jobs/internal/riveradapter"
)

// restartPause is the pause between attempts to start the client while the database does
// not answer.
const restartPause = 200 * time.Millisecond

// resultTimeout is how long a stopping node waits for the database to take another result
// after the last job has ended.
const resultTimeout = 10 * time.Second

// drainCheckInterval is how often a stopping node checks whether results are taken.
const drainCheckInterval = 100 * time.Millisecond

// engine runs River's client while there is work for it.
type engine struct {
	client *river.Client[pgx.Tx]
	pilot  *riveradapter.Pilot
	// alwaysOn keeps the client running without work. Otherwise it stops after idleAfter.
	alwaysOn  bool
	idleAfter time.Duration
	logger    *slog.Logger

	// ready is closed when an always-on client has started, or at once for other clients.
	ready     chan struct{}
	readyOnce sync.Once

	mu        sync.Mutex // held while the client starts
	running   bool
	abandoned bool
}

// run runs the offered jobs until ctx ends, then drains.
func (e *engine) run(ctx context.Context) error {
	defer e.pilot.Drain()
	for e.awaitWork(ctx) {
		started, err := e.start(ctx)
		switch {
		case started:
			if err := e.runClient(ctx); err != nil {
				return err
			}
		case err == nil: // abandoned: other nodes have this node's jobs, and the process is about to end
			<-ctx.Done()
		case ctx.Err() == nil:
			e.logger.WarnContext(ctx, "starting the job client failed; retrying", "error", err)
			watchdog.Sleep(ctx, restartPause)
		}
	}
	return nil
}

func (e *engine) becomeReady() { e.readyOnce.Do(func() { close(e.ready) }) }

// awaitWork waits for work. It returns false if ctx has ended.
func (e *engine) awaitWork(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if e.alwaysOn || e.pilot.IdleSince().IsZero() {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-e.pilot.Wanted():
		return true
	}
}

// start starts the client. It does nothing after abandon.
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

// runClient returns when the client has stopped: when it is idle, or after the drain at
// the end of ctx.
func (e *engine) runClient(ctx context.Context) error {
	stopped := e.client.Stopped()
	defer e.markStopped()
	for {
		select {
		case <-ctx.Done():
			e.pilot.Drain()
			e.awaitDrain(ctx, stopped)
			return nil
		case <-stopped:
			if ctx.Err() != nil || e.isAbandoned() {
				return nil
			}
			return errors.New("the job client stopped unexpectedly")
		case <-time.After(e.untilIdle()):
			if e.untilIdle() <= 0 {
				return e.stop(ctx)
			}
		}
	}
}

// awaitDrain waits until the client has stopped. It abandons the results that the database
// does not take: River would retry each of them for a long time.
func (e *engine) awaitDrain(ctx context.Context, stopped <-chan struct{}) {
	began := time.Now()
	for {
		select {
		case <-stopped:
			return
		case <-time.After(drainCheckInterval):
		}
		if since := e.pilot.LastProgress(); !since.IsZero() && time.Since(since) > resultTimeout && time.Since(began) > resultTimeout {
			break
		}
	}
	if n := e.pilot.AbandonResults(); n > 0 {
		e.logger.WarnContext(ctx, "the database takes no results of finished jobs; other nodes will run these jobs again", "jobs", n)
	}
	<-stopped
}

// untilIdle returns how long the client must at least keep running.
func (e *engine) untilIdle() time.Duration {
	since := e.pilot.IdleSince()
	if since.IsZero() || e.alwaysOn {
		return e.idleAfter
	}
	return time.Until(since.Add(e.idleAfter))
}

// stop stops an idle client. Offers that arrive in the meantime wait for the next start.
func (e *engine) stop(ctx context.Context) error {
	if err := e.client.Stop(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("stop working jobs: %w", err)
	}
	return nil
}

func (e *engine) markStopped() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// abandon cancels the running jobs and prevents further starts.
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

// addQueue adds a queue to the client.
func (e *engine) addQueue(queue string) error {
	var known *river.QueueAlreadyAddedError
	err := e.client.Queues().Add(queue, unbounded)
	if err != nil && !errors.As(err, &known) {
		return fmt.Errorf("add queue %q: %w", queue, err)
	}
	return nil
}
