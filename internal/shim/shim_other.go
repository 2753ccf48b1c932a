//go:build !unix

package shim

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"time"
)

// errUnsupported is what all commands end with: this system has no sessions of processes, so not
// all processes of a command could be stopped.
var errUnsupported = fmt.Errorf("%w: commands do not run on %s", ErrNotStarted, runtime.GOOS)

// NewLeash returns a leash for commands that do not run here.
func NewLeash(time.Time, time.Time) Leash { return Leash{} }

// Pool starts no commands.
type Pool struct{}

// Start returns ErrNotStarted.
func (*Pool) Start(Spec, io.Writer, io.Writer) (*Process, error) { return nil, errUnsupported }

// Close has nothing to close.
func (*Pool) Close() {}

// Process is never started.
type Process struct{}

// AwaitStart returns at once.
func (*Process) AwaitStart(context.Context) {}

// Extend does nothing.
func (*Process) Extend(Leash) {}

// Signal does nothing.
func (*Process) Signal(syscall.Signal) {}

// Stop does nothing.
func (*Process) Stop(syscall.Signal) {}

// Wait returns ErrNotStarted.
func (*Process) Wait() (Result, error) { return Result{}, errUnsupported }

// WaitContext returns ErrNotStarted.
func (*Process) WaitContext(context.Context) (Result, error) { return Result{}, errUnsupported }
