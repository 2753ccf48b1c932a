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
	"github.com/forge-scheduler/forge/internal/redact"
	"github.com/forge-scheduler/forge/internal/shim"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Exit codes of commands that never ran, as shells use them.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// A killed command has to end within the lease divided by leaseMarginDivisor.
const leaseMarginDivisor = 10

// Options holds what a Runner needs; all are required.
type Options struct {
	Role   string
	Lock   leaderstore.Lock
	NodeID string
	// Command is the program and its arguments. Environ is its environment in
	// addition to FORGE_ROLE, FORGE_TERM and FORGE_NODE. Without a command the role
	// is only held, for readers of KeepFile's file.
	Command        []string
	Environ        []string
	Stdout, Stderr io.Writer

	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// TakeoverDelay is how long the command waits after a change of leadership,
	// unless the predecessor resigned in order.
	TakeoverDelay time.Duration
	CheckInterval, LeaseDuration,
	RefreshInterval time.Duration

	OpenSession func(ctx context.Context) (roles.Session, error)
	// TakeoverWait is that of leaderstore.Store.
	TakeoverWait func(ctx context.Context, fence leaderstore.Fence, delay time.Duration) (time.Duration, error)
	// KeepFile, if set, keeps a file that names the leader until ctx ends. It
	// receives from changes when the leadership of this process changed.
	KeepFile func(ctx context.Context, changes <-chan struct{}) error
	// Signals are forwarded to the command. SIGINT and SIGTERM also end the run;
	// SIGHUP and SIGQUIT end a run without a command.
	Signals <-chan os.Signal
	Logger  *slog.Logger
}

// Runner runs one command while it leads one role.
type Runner struct {
	opts     Options
	stop     context.CancelFunc
	finished func() bool // whether the run has ended

	mu       sync.Mutex
	sent     time.Time     // when the last confirmed renewal was sent
	renewed  chan struct{} // sent has changed
	changed  chan struct{} // the leadership of this process has changed
	process  *shim.Process // nil while no command runs
	stopWith syscall.Signal
	exit     int // exit code of the command; -1 while none has ended the run
}

// New returns a Runner that has not started.
func New(opts Options) *Runner {
	return &Runner{opts: opts, renewed: make(chan struct{}, 1), changed: make(chan struct{}, 1), stopWith: syscall.SIGTERM, exit: -1}
}

// Run campaigns for the role until the command has ended by itself, a signal or ctx
// ends the run, or the database cannot hold elections, which is an error. It
// returns when no process of the command is left, with the exit code of the
// command, or the exit code that a shell would return; without a command, 0.
func (r *Runner) Run(ctx context.Context) (exit int, err error) {
	if code := r.findCommand(); code != 0 {
		return code, errors.New("run " + r.opts.Command[0] + ": no such program, or it cannot be executed")
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	r.stop, r.finished = stop, func() bool { return running.Err() != nil }
	var listening sync.WaitGroup
	listening.Go(func() { r.handleSignals(running) })
	keeping, endKeeping := context.WithCancel(context.WithoutCancel(ctx)) // until the role is resigned
	defer endKeeping()
	listening.Go(func() { r.keepFile(keeping) })
	err = r.elections().Run(running)
	stop()
	endKeeping()
	listening.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		return 1, err
	case len(r.opts.Command) == 0:
		return 0, nil
	case r.exit < 0: // no command was running at the end
		return 128 + int(r.stopWith), nil
	}
	return r.exit, nil
}

// keepFile keeps the file that names the leader, if KeepFile is set.
func (r *Runner) keepFile(ctx context.Context) {
	if r.opts.KeepFile == nil {
		return
	}
	if err := r.opts.KeepFile(ctx, r.changed); err != nil {
		r.opts.Logger.WarnContext(ctx, "leader file not removed", "error", err)
	}
}

// findCommand returns an exit code if the command cannot run, before the process
// acquires a role.
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

func (r *Runner) elections() *roles.Elections {
	roleConfig := roles.RoleConfig{
		Role: roles.Role(r.opts.Role), LockID: r.opts.Lock.ID, BySchema: r.opts.Lock.BySchema,
		Lead:          roles.Unwatched(r.lead),
		TakeoverDelay: r.opts.TakeoverDelay,
		StopTimeout:   r.opts.Grace + r.opts.LeaseDuration,
		OnRenewed:     r.noteRenewal,
	}
	return roles.NewElections(roles.Options{
		NodeID: r.opts.NodeID, Roles: []roles.RoleConfig{roleConfig}, OpenSession: r.opts.OpenSession,
		CheckInterval: r.opts.CheckInterval, LeaseDuration: r.opts.LeaseDuration, RefreshInterval: r.opts.RefreshInterval,
		TakeoverWait: r.opts.TakeoverWait, OnChange: r.leadershipChanged,
		Metrics: metrics.New(""), Logger: r.opts.Logger,
	})
}

func (r *Runner) leadershipChanged() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// handleSignals forwards signals until the run ends, and ends the run on some of
// them.
func (r *Runner) handleSignals(ctx context.Context) {
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
			if !handedOn && ends(sig) {
				r.mu.Lock()
				r.stopWith = sig
				r.mu.Unlock()
				r.stop()
				return
			}
		}
	}
}

// forward sends a signal to the command and reports whether there is one.
func (r *Runner) forward(sig syscall.Signal) bool {
	r.mu.Lock()
	process := r.process
	r.mu.Unlock()
	if process != nil {
		process.Signal(sig)
	}
	return process != nil
}

// noteRenewal records a renewal. The leash is moved by another goroutine than that
// of the election.
func (r *Runner) noteRenewal(sent time.Time) {
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
	return shim.NewLeash(sent.Add(roles.TrustWindow(lease)), sent.Add(max(lease, r.opts.TakeoverDelay)-lease/leaseMarginDivisor))
}

// errEnded resigns the role: this process has no command to lead it with.
var errEnded = errors.New("the command ended because its lease was not renewed in time")

// lead runs the command for one term, until the command or the term ends.
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
	logger.InfoContext(ctx, "command started", "command", strings.Join(redact.Words(r.opts.Command), " "))
	result, err := r.supervise(ctx, process)
	logger.InfoContext(ctx, "command ended", "exit_code", result.ExitCode, "error", err)
	switch {
	case errors.Is(err, shim.ErrNotStarted):
		return r.finish(ctx, exitCannotRun)
	case ctx.Err() == nil && result.Expired:
		return errEnded
	case ctx.Err() == nil && err != nil:
		return r.finish(ctx, 1) // its supervisor was killed
	case ctx.Err() == nil, r.finished():
		return r.finish(ctx, result.ExitCode)
	}
	return nil // this process is a standby again
}

// supervise moves the leash with every renewal until the command has ended, and
// ends the command with the term.
func (r *Runner) supervise(ctx context.Context, process *shim.Process) (result shim.Result, err error) {
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

// finish ends the run with the command's exit code; the role is resigned in order.
func (r *Runner) finish(ctx context.Context, exit int) error {
	r.mu.Lock()
	r.exit = exit
	r.mu.Unlock()
	r.stop()
	<-ctx.Done()
	return nil
}

// environ returns the complete environment of the command.
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
