//go:build unix

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// argv0 is the name under which this binary becomes a shim.
const argv0 = "forge-shim"

// Descriptors of the shim's two pipes.
const (
	orderFD  = 3
	reportFD = 4
)

// hardStop is how long the shim has beyond the grace before it is killed
// itself.
const hardStop = 5 * time.Second

// Spec is the command to run.
type Spec struct {
	// Argv is the program and its arguments; no shell is involved. A program
	// without a slash is looked up in Env's PATH.
	Argv []string `json:"argv"`
	// Env is the whole environment, as KEY=value.
	Env []string `json:"env"`
	// Dir is the working directory; empty means the node's.
	Dir string `json:"dir"`
	// Grace is the time between SIGTERM and SIGKILL when the command is
	// stopped.
	Grace time.Duration `json:"grace"`
	// Credential is whom to run as; nil means as the node itself.
	Credential *Credential `json:"credential,omitempty"`
	// Leash, if set, is how long the command may live unless more is granted.
	Leash *Leash `json:"leash,omitempty"`
}

// Credential is a user with its groups. To take one on needs root.
type Credential struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"`
}

// Result is how the command ended.
type Result struct {
	// ExitCode is what the command returned, or 128 plus the signal's number
	// as a shell has it.
	ExitCode int `json:"exit_code"`
	// Signal is what ended the command, or 0.
	Signal syscall.Signal `json:"signal,omitempty"`
	// StartError says why the command could not be started at all.
	StartError string `json:"start_error,omitempty"`
	// Expired says that the leash ran out and nobody else had asked for the
	// command's end.
	Expired bool `json:"expired,omitempty"`
}

// ErrNotStarted says that the command never ran: not found, not executable, no
// such directory.
var ErrNotStarted = errors.New("the command could not be started")

// Run runs the command to its end and returns when no process of it is left.
// When ctx ends, the command gets SIGTERM, after spec.Grace SIGKILL, and Run
// returns the cause wrapped. stdout and stderr are written from one goroutine
// each.
func Run(ctx context.Context, spec Spec, stdout, stderr io.Writer) (Result, error) {
	cmd, order, report, err := launch(ctx, stdout, stderr, spec.Grace+hardStop)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = report.Close() }()
	if err := json.NewEncoder(order).Encode(spec); err != nil && ctx.Err() == nil {
		_ = order.Close() // the shim stops at once without a whole order
		return Result{}, errors.Join(fmt.Errorf("give the shim its order: %w", err), cmd.Wait())
	}
	return finish(ctx, cmd, order, report)
}

// launch starts a shim that waits for its order. Once ctx has ended or the shim
// has, its output is waited for no longer than waitDelay; 0: for ever.
func launch(ctx context.Context, stdout, stderr io.Writer, waitDelay time.Duration) (cmd *exec.Cmd, order, report *os.File, err error) {
	order, orderRemote, report, reportRemote, err := pipes()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open the shim's pipes: %w", err)
	}
	cmd, err = command(ctx, stdout, stderr, orderRemote, reportRemote)
	if err == nil {
		cmd.Cancel = order.Close // the shim reads the end of its order
		cmd.WaitDelay = waitDelay
		err = cmd.Start()
	}
	_, _ = orderRemote.Close(), reportRemote.Close()
	if err != nil {
		_, _ = order.Close(), report.Close()
		return nil, nil, nil, fmt.Errorf("start the shim: %w", err)
	}
	return cmd, order, report, nil
}

func finish(ctx context.Context, cmd *exec.Cmd, order, report *os.File) (Result, error) {
	waitErr := cmd.Wait()
	_ = order.Close() // closed already when ctx ended first
	result, err := readReport(report, waitErr)
	if ctx.Err() != nil {
		return result, fmt.Errorf("command stopped: %w", context.Cause(ctx))
	}
	return result, err
}

func readReport(report *os.File, waitErr error) (result Result, err error) {
	if err := json.NewDecoder(report).Decode(&result); err != nil {
		return result, fmt.Errorf("the shim ended without a report: %w", errors.Join(waitErr, err))
	}
	if result.StartError != "" {
		return result, fmt.Errorf("%w: %s", ErrNotStarted, result.StartError)
	}
	return result, nil
}

// command prepares this binary to run as a shim, in a process group of its own:
// a Ctrl-C on the node's terminal is the node's business.
func command(ctx context.Context, stdout, stderr io.Writer, files ...*os.File) (*exec.Cmd, error) {
	path, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = []string{argv0}
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

func pipes() (order, orderRemote, report, reportRemote *os.File, err error) {
	orderRemote, order, err = os.Pipe()
	if err != nil {
		return nil, nil, nil, nil, err
	}
	report, reportRemote, err = os.Pipe()
	if err != nil {
		_, _ = order.Close(), orderRemote.Close()
		return nil, nil, nil, nil, err
	}
	return order, orderRemote, report, reportRemote, nil
}
