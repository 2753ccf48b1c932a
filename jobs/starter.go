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
	// startsPerCPU is how many commands a node starts at a time, for each CPU that
	// it may use.
	startsPerCPU = 2
	// startBacklog is how much work of starting a node takes on in advance.
	startBacklog = time.Second
	// slowStart is when a start that has not ended lets the next one begin: its
	// program may be on a file system that does not answer.
	slowStart = 10 * time.Second
	// maxStart is the longest time that a start may take, unless the job's timeout is
	// longer.
	maxStart = time.Minute
	// commandNice is how much lower than the node's the CPU priority of commands is.
	commandNice = 5
)

// starter starts commands, a few at a time: a burst of them must not take the
// processor from what keeps the node alive.
type starter struct {
	pool   *shim.Pool
	places chan struct{}
	load   *startLoad
}

func newStarter() *starter {
	places := startsPerCPU * runtime.GOMAXPROCS(0)
	return &starter{pool: &shim.Pool{}, places: make(chan struct{}, places), load: newStartLoad(places)}
}

// run waits for its turn, starts the command and returns when no process of it is
// left. The timeout counts from the start. Of a command that never ran there is no
// result.
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

// start returns a command that has started or could not be. One that has not started
// within a time is stopped.
func (s *starter) start(ctx context.Context, spec shim.Spec, within time.Duration, stdout, stderr io.Writer) (*shim.Process, error) {
	s.load.enter()
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		s.load.leave()
		return nil, fmt.Errorf("the command waited for its start: %w", context.Cause(ctx))
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

// startLoad knows how long starts take and how many wait, and so how many more
// jobs the node should take: what it cannot start soon had better wait in the
// database, where another node may take it.
type startLoad struct {
	places int
	// observe is told how many wait and how long starts take, left that there may
	// be more room.
	observe func(waiting int, took time.Duration)
	left    func()

	mu       sync.Mutex
	pending  int // wait or are being started
	starting map[*time.Time]struct{}
	took     time.Duration // of late, smoothed
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

// leave is of one that did not begin.
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

// room is how many more jobs the node should take now: as many as it starts within
// startBacklog, less those that wait already. An idle node takes as many as it
// starts at a time.
func (l *startLoad) room(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := max(l.took, time.Microsecond)
	for began := range l.starting { // which have taken that long already
		took = max(took, now.Sub(*began))
	}
	most := max(l.places, int(time.Duration(l.places)*startBacklog/took))
	return max(0, most-l.pending)
}
