package singleton

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/shim"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Exit codes of commands that never ran, as shells have them.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// margin of the lease, as a divisor, in which a killed command has to be gone.
const margin = 10

// Options are what a Runner needs; all are required.
type Options struct {
	Role   string
	Lock   leaderstore.Lock
	NodeID string
	// Command is the program and its arguments, Environ what it sees beside
	// FORGE_ROLE, FORGE_TERM and FORGE_NODE. Without one the role is only held, for
	// those who read KeepFile's file.
	Command        []string
	Environ        []string
	Stdout, Stderr io.Writer

	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// TakeoverDelay is how long the command waits after the lead changed hands,
	// unless the predecessor went in order.
	TakeoverDelay time.Duration
	CheckInterval, LeaseDuration,
	RefreshInterval time.Duration

	Open func(ctx context.Context) (roles.Session, error)
	// History tells how predecessors ended.
	History leaderstore.RowQueryer
	// KeepFile, if set, keeps a file that names the leader until ctx ends; changes tells
	// when this process' leadership changed.
	KeepFile func(ctx context.Context, changes <-chan struct{}) error
	// Signals are handed on to the command; SIGINT and SIGTERM end it and the
	// run, SIGHUP and SIGQUIT end a run that has none.
	Signals <-chan os.Signal
	Logger  *slog.Logger
}

// Runner runs one command while it leads one role.
type Runner struct {
	opts Options
	stop context.CancelFunc
	over func() bool // the run is

	mu       sync.Mutex
	sent     time.Time     // of the last renewal that was confirmed
	renewed  chan struct{} // it has changed
	changed  chan struct{} // this process' leadership has
	process  *shim.Process // nil while none runs
	stopWith syscall.Signal
	exit     int // of the command; -1 while none has ended the run
}

// New returns a Runner that has not started.
func New(opts Options) *Runner {
	return &Runner{opts: opts, renewed: make(chan struct{}, 1), changed: make(chan struct{}, 1), stopWith: syscall.SIGTERM, exit: -1}
}

// Run stands for the role until the command has ended by itself, a signal or ctx
// asks for the end, or the database cannot hold elections, which is an error. It
// returns when no process of the command is left, with the exit code that the
// command gave, or that a shell would.
func (r *Runner) Run(ctx context.Context) (exit int, err error) {
	if code := r.findCommand(); code != 0 {
		return code, errors.New("run " + r.opts.Command[0] + ": no such program, or it cannot be executed")
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	r.stop, r.over = stop, func() bool { return running.Err() != nil }
	var listening sync.WaitGroup
	listening.Go(func() { r.heed(running) })
	keeping, endKeeping := context.WithCancel(context.WithoutCancel(ctx)) // until the role is resigned
	defer endKeeping()
	listening.Go(func() { r.keepFile(keeping) })
	err = r.campaign().Run(running)
	stop()
	endKeeping()
	listening.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		return 1, err
	case r.exit < 0: // no command ran when the end came
		return 128 + int(r.stopWith), nil
	}
	return r.exit, nil
}

// keepFile keeps the file that names the leader, if one is wanted.
func (r *Runner) keepFile(ctx context.Context) {
	if r.opts.KeepFile == nil {
		return
	}
	if err := r.opts.KeepFile(ctx, r.changed); err != nil {
		r.opts.Logger.WarnContext(ctx, "leader file not removed", "error", err)
	}
}

// findCommand refuses a command that cannot run before it wins a role.
func (r *Runner) findCommand() int {
	if len(r.opts.Command) == 0 {
		return 0
	}
	_, err := exec.LookPath(r.opts.Command[0])
	switch {
	case err == nil:
		return 0
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return exitNotFound
	default:
		return exitCannotRun
	}
}

func (r *Runner) campaign() *roles.Campaign {
	contest := roles.Contest{
		Role: roles.Role(r.opts.Role), LockID: r.opts.Lock.ID, BySchema: r.opts.Lock.BySchema,
		Duty:     roles.Unwatched(r.lead),
		Takeover: roles.AfterTakeover(r.opts.TakeoverDelay, r.opts.History, r.opts.Logger),
		Patience: r.opts.Grace + r.opts.LeaseDuration,
		Trusted:  r.trusted,
	}
	return roles.New(roles.Options{
		NodeID: r.opts.NodeID, Contests: []roles.Contest{contest}, Open: r.opts.Open,
		CheckInterval: r.opts.CheckInterval, LeaseDuration: r.opts.LeaseDuration, RefreshInterval: r.opts.RefreshInterval,
		OnChange: r.leadershipChanged,
		Metrics:  metrics.New(""), Logger: r.opts.Logger,
	})
}

func (r *Runner) leadershipChanged() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// heed hands signals on until the run is over, and ends it for some.
func (r *Runner) heed(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case received := <-r.opts.Signals:
			sig, ok := received.(syscall.Signal)
			if !ok {
				continue
			}
			handedOn := sig != syscall.SIGINT && sig != syscall.SIGTERM && r.forward(sig)
			if !handedOn && sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 {
				r.mu.Lock()
				r.stopWith = sig
				r.mu.Unlock()
				r.stop()
				return
			}
		}
	}
}

// forward hands a signal on to the command and says whether there is one.
func (r *Runner) forward(sig syscall.Signal) bool {
	r.mu.Lock()
	process := r.process
	r.mu.Unlock()
	if process != nil {
		process.Signal(sig)
	}
	return process != nil
}

// trusted notes a renewal; the leash is moved by another goroutine than the
// election's.
func (r *Runner) trusted(sent time.Time) {
	r.mu.Lock()
	r.sent = sent
	r.mu.Unlock()
	select {
	case r.renewed <- struct{}{}:
	default:
	}
}

func (r *Runner) leash() shim.Leash {
	r.mu.Lock()
	sent := r.sent
	r.mu.Unlock()
	lease := r.opts.LeaseDuration
	return shim.NewLeash(sent.Add(roles.TrustWindow(lease)), sent.Add(max(lease, r.opts.TakeoverDelay)-lease/margin))
}

// errEnded gives the role up: this process has no command to lead it with.
var errEnded = errors.New("the command ended because its lease was not renewed in time")

// lead is one term: it runs the command until it ends or the term does.
func (r *Runner) lead(ctx context.Context, fence leaderstore.Fence) error {
	if len(r.opts.Command) == 0 {
		<-ctx.Done()
		return nil
	}
	logger := r.opts.Logger.With("role", fence.Role, "term", fence.Term)
	leash := r.leash()
	process, err := shim.Start(shim.Spec{
		Argv: r.opts.Command, Env: r.environ(fence), Grace: r.opts.Grace, Leash: &leash,
	}, r.opts.Stdout, r.opts.Stderr)
	if err != nil {
		return r.finish(ctx, exitCannotRun)
	}
	logger.InfoContext(ctx, "command started", "command", strings.Join(r.opts.Command, " "))
	result, err := r.accompany(ctx, process)
	logger.InfoContext(ctx, "command ended", "exit_code", result.ExitCode, "error", err)
	switch {
	case errors.Is(err, shim.ErrNotStarted):
		return r.finish(ctx, exitCannotRun)
	case ctx.Err() == nil && result.Expired:
		return errEnded
	case ctx.Err() == nil && err != nil:
		return r.finish(ctx, 1) // somebody killed its supervisor
	case ctx.Err() == nil, r.over():
		return r.finish(ctx, result.ExitCode)
	}
	return nil // a standby again
}

// accompany moves the leash with every renewal until the command has ended, and
// ends it with the term.
func (r *Runner) accompany(ctx context.Context, process *shim.Process) (result shim.Result, err error) {
	r.set(process)
	defer r.set(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result, err = process.Wait()
	}()
	done := ctx.Done()
	for {
		select {
		case <-ended:
			return result, err
		case <-r.renewed:
			process.Extend(r.leash())
		case <-done:
			done = nil
			r.mu.Lock()
			sig := r.stopWith
			r.mu.Unlock()
			process.Stop(sig)
		}
	}
}

func (r *Runner) set(process *shim.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.process = process
}

// finish ends the run with the command's exit code; the role is resigned in
// order.
func (r *Runner) finish(ctx context.Context, exit int) error {
	r.mu.Lock()
	r.exit = exit
	r.mu.Unlock()
	r.stop()
	<-ctx.Done()
	return nil
}

// environ is the command's whole environment.
func (r *Runner) environ(fence leaderstore.Fence) []string {
	own := []string{
		"FORGE_ROLE=" + fence.Role,
		"FORGE_TERM=" + strconv.FormatInt(fence.Term, 10),
		"FORGE_NODE=" + fence.NodeID,
	}
	env := make([]string, 0, len(r.opts.Environ)+len(own))
	for _, pair := range r.opts.Environ {
		name, _, _ := strings.Cut(pair, "=")
		if name != "FORGE_ROLE" && name != "FORGE_TERM" && name != "FORGE_NODE" {
			env = append(env, pair)
		}
	}
	return append(env, own...)
}
