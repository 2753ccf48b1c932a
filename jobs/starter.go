package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/shim"
)

const (
	// startsPerCPU is how many commands a node starts at once for each CPU that it may
	// use.
	startsPerCPU = 2
	// startBacklog is how much starting work a node accepts in advance.
	startBacklog = time.Second
	// slowStart is how long a start may take before the next one may begin. The program
	// may be on a file system that does not answer.
	slowStart = 10 * time.Second
	// maxStart is the maximum time of a start, unless the job's timeout is longer.
	maxStart = time.Minute
	// commandNice is how much lower the CPU priority of commands is than the node's.
	commandNice = 5
)

// starter starts a few commands at a time, so that a burst of starts leaves processor
// time for the node itself.
type starter struct {
	pool   *shim.Pool
	places chan struct{}
	load   *startLoad
}

func newStarter() *starter {
	places := startsPerCPU * runtime.GOMAXPROCS(0)
	return &starter{pool: &shim.Pool{}, places: make(chan struct{}, places), load: newStartLoad(places)}
}

// run waits for a place, starts the command and returns when no process of it is left.
// The timeout begins with the start. run returns no result for a command that never ran.
func (s *starter) run(ctx context.Context, spec shim.Spec, timeout time.Duration, stdout, stderr io.Writer) (*shim.Result, error) {
	spec.Nice = commandNice
	process, err := s.start(ctx, spec, max(maxStart, timeout), stdout, stderr)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := process.WaitContext(running)
	if err != nil && running.Err() != nil && ctx.Err() == nil {
		err = &timeoutError{after: timeout, err: err}
	}
	if errors.Is(err, shim.ErrNotStarted) {
		return nil, err
	}
	return &result, err
}

// start returns a command that has started or failed to start. It stops a command that
// does not start in time.
func (s *starter) start(ctx context.Context, spec shim.Spec, within time.Duration, stdout, stderr io.Writer) (*shim.Process, error) {
	s.load.enter()
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		s.load.leave()
		return nil, fmt.Errorf("wait to start the command: %w", context.Cause(ctx))
	}
	began := s.load.begin(time.Now())
	leave := sync.OnceFunc(func() {
		s.load.end(began, time.Now()) // before the next one counts as starting
		<-s.places
	})
	defer leave()
	slow := time.AfterFunc(slowStart, leave)
	defer slow.Stop()

	process, err := s.pool.Start(spec, stdout, stderr)
	if err != nil {
		return nil, err
	}
	late := fmt.Errorf("it did not start within %s: %w", within, context.DeadlineExceeded)
	starting, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	process.AwaitStart(starting)
	if starting.Err() != nil {
		_, err := process.WaitContext(starting)
		return nil, err
	}
	return process, nil
}

// close ends the processes that wait for commands.
func (s *starter) close() { s.pool.Close() }

// startLoad measures how long starts take and how many wait. From that it computes how
// many more jobs the node should take. Jobs that the node cannot start soon should wait
// in the database, where another node may take them.
type startLoad struct {
	places int
	// observe is called with the number of waiting starts and the duration of starts.
	// left is called when there may be more room.
	observe func(waiting int, took time.Duration)
	left    func()

	mu       sync.Mutex
	pending  int // waiting or starting
	starting map[*time.Time]struct{}
	took     time.Duration // recent duration, smoothed
}

func newStartLoad(places int) *startLoad {
	return &startLoad{places: places, observe: func(int, time.Duration) {}, left: func() {}, starting: map[*time.Time]struct{}{}}
}

func (l *startLoad) enter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending++
	l.report()
}

// leave removes a command that waits or has ended its start.
func (l *startLoad) leave() {
	l.mu.Lock()
	l.pending--
	l.report()
	l.mu.Unlock()
	l.left()
}

func (l *startLoad) begin(now time.Time) *time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting[&now] = struct{}{}
	l.report()
	return &now
}

func (l *startLoad) end(began *time.Time, now time.Time) {
	l.mu.Lock()
	delete(l.starting, began)
	l.took += (now.Sub(*began) - l.took) / 8
	l.mu.Unlock()
	l.leave()
}

func (l *startLoad) report() { l.observe(l.pending-len(l.starting), l.took) }

// room returns how many more jobs the node should take: as many as it can start within
// startBacklog, minus those that wait already. An idle node takes at least as many as it
// starts at once.
func (l *startLoad) room(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := max(l.took, time.Microsecond)
	for began := range l.starting { // running starts have taken this long so far
		took = max(took, now.Sub(*began))
	}
	limit := max(l.places, int(time.Duration(l.places)*startBacklog/took))
	return max(0, limit-l.pending)
}
