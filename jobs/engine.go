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

const (
	// restartPause is the pause between attempts to start the client while the database does
	// not answer.
	restartPause = 200 * time.Millisecond
	// resultTimeout is how long a stopping node waits for the database to take another result
	// after the last job has ended.
	resultTimeout = 10 * time.Second
	// drainCheckInterval is how often a stopping node checks whether it has stopped.
	drainCheckInterval = 10 * time.Millisecond
)

// engine runs the offered jobs on the executor and, if the program has workers, on River's
// client.
type engine struct {
	client   *river.Client[pgx.Tx]
	pilot    *riveradapter.Pilot
	executor *executor
	// runsClient is true if the program has workers. River's client then always runs,
	// because the program may have subscribed to its events.
	runsClient   bool
	drainTimeout time.Duration
	logger       *slog.Logger

	// ready is closed when the client has started, or at once if it does not run.
	ready     chan struct{}
	readyOnce sync.Once

	mu        sync.Mutex // held while the client starts
	running   bool       // the client
	abandoned bool
}

// run runs the offered jobs until ctx ends, then drains.
func (e *engine) run(ctx context.Context) error {
	defer e.pilot.Drain()
	if e.runsClient && !e.startClient(ctx) {
		<-ctx.Done()
		return nil
	}
	e.executor.setParent(context.WithoutCancel(ctx))
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { e.pilot.Work(working) })
	defer work.Wait()
	defer stop()

	err := e.await(ctx)
	e.pilot.Drain()
	e.drain(ctx)
	e.awaitResults(ctx, stop)
	e.stopClient(ctx)
	return err
}

func (e *engine) becomeReady() { e.readyOnce.Do(func() { close(e.ready) }) }

// await waits until ctx ends, or until River's client stops unexpectedly.
func (e *engine) await(ctx context.Context) error {
	if !e.runsClient {
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-e.client.Stopped():
		if e.isAbandoned() {
			<-ctx.Done()
			return nil
		}
		return errors.New("the job client stopped unexpectedly")
	}
}

// startClient starts River's client. It returns false if ctx has ended or the node was
// abandoned.
func (e *engine) startClient(ctx context.Context) bool {
	for ctx.Err() == nil && !e.isAbandoned() {
		err := e.tryStart(ctx)
		if err == nil {
			return !e.isAbandoned()
		}
		e.logger.WarnContext(ctx, "starting the job client failed; retrying", "error", err)
		watchdog.Sleep(ctx, restartPause)
	}
	return false
}

func (e *engine) tryStart(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.abandoned {
		return nil
	}
	if err := e.client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start working jobs: %w", err)
	}
	e.running = true
	e.becomeReady()
	return nil
}

// drain waits for the running jobs, and cancels them after the drain timeout.
func (e *engine) drain(ctx context.Context) {
	timeout := time.After(e.drainTimeout)
	for e.pilot.Running() > 0 {
		select {
		case <-timeout:
			e.cancelAll(ctx)
			timeout = nil
		case <-time.After(drainCheckInterval):
		}
	}
}

// cancelAll cancels the running jobs: those of River's client first. It decides by its own context
// whether the worker of a job with resumable steps, which is a guest of it, was interrupted.
func (e *engine) cancelAll(ctx context.Context) {
	e.mu.Lock()
	running := e.running
	e.mu.Unlock()
	if running {
		over, stop := context.WithCancel(context.WithoutCancel(ctx))
		stop()                           // do not wait for the jobs
		_ = e.client.StopAndCancel(over) // the error is that of over
	}
	e.executor.cancelAll(errStopped)
	if running {
		e.pilot.ReleaseUnfetched()
	}
}

// awaitResults waits until the database has taken all results. It abandons those that the
// database does not take.
func (e *engine) awaitResults(ctx context.Context, abandon func()) {
	began := time.Now()
	for {
		since, left := e.pilot.LastProgress()
		if left == 0 {
			return
		}
		if time.Since(since) > resultTimeout && time.Since(began) > resultTimeout {
			e.logger.WarnContext(ctx, "the database takes no results of finished jobs; other nodes will run these jobs again", "jobs", left)
			e.pilot.AbandonResults()
			abandon()
			return
		}
		time.Sleep(drainCheckInterval)
	}
}

// stopClient stops River's client, which has no jobs any more.
func (e *engine) stopClient(ctx context.Context) {
	if !e.runsClient {
		return
	}
	e.pilot.CloseAnnouncements()
	if err := e.client.Stop(context.WithoutCancel(ctx)); err != nil {
		e.logger.WarnContext(ctx, "stopping the job client failed", "error", err)
	}
	<-e.client.Stopped()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// abandon cancels the running jobs and prevents a start of the client. It returns when all
// jobs have stopped or ctx ends.
func (e *engine) abandon(ctx context.Context) error {
	e.mu.Lock()
	e.abandoned = true
	e.mu.Unlock()
	e.cancelAll(ctx)
	for e.pilot.Running() > 0 {
		if !watchdog.Sleep(ctx, drainCheckInterval) {
			return ctx.Err()
		}
	}
	return nil
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
