package shim

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// argv0 is the name under which this binary becomes a shim.
const argv0 = "forge-shim"

// socketFD is the shim's end of the socket to its node.
const socketFD = 3

// hardStop is the time that the shim has after the grace before it is killed itself.
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
	// Credential is the user to run as; nil means the node's own.
	Credential *Credential `json:"credential,omitempty"`
	// Nice is how much the command's CPU priority is below the node's, 0 to 19, where the
	// system allows it.
	Nice int `json:"nice,omitempty"`
	// Leash, if set, is how long the command may run unless it is extended.
	Leash *Leash `json:"leash,omitempty"`
}

// Credential is a user with its groups. Switching to it needs root.
type Credential struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups"`
}

// Result is how the command ended.
type Result struct {
	// ExitCode is the command's exit code, or 128 plus the signal's number as in a shell.
	ExitCode int `json:"exit_code"`
	// Signal is the signal that ended the command, or 0.
	Signal syscall.Signal `json:"signal,omitempty"`
	// StartError is the reason why the command could not be started.
	StartError string `json:"start_error,omitempty"`
	// Expired is true when the leash ran out and nothing else had requested the command's
	// end.
	Expired bool `json:"expired,omitempty"`
}

// Leash limits how long a command may run, by a clock that all processes of the machine
// share.
type Leash struct {
	// StopAt is when the command gets SIGTERM, KillBy when it gets SIGKILL, whatever the
	// grace.
	StopAt time.Duration `json:"stop_at"`
	KillBy time.Duration `json:"kill_by"`
}

// ErrNotStarted reports that the command never ran: not found, not executable, no such
// directory.
var ErrNotStarted = errors.New("the command could not be started")

// order is a message from the node to a shim. The end of all orders means that the shim
// stops the command and exits.
type order struct {
	// Spec is the command to start; its outputs come with the message.
	Spec  *Spec  `json:"spec,omitempty"`
	Leash *Leash `json:"leash,omitempty"`
	// Stop ends the command, with this signal first.
	Stop syscall.Signal `json:"stop,omitempty"`
	// Signal is sent to the command.
	Signal syscall.Signal `json:"signal,omitempty"`

	outputs []int
}

// reply is a shim's report: that the command has started, then its end.
type reply struct {
	Started bool    `json:"started,omitempty"`
	Result  *Result `json:"result,omitempty"`
	// Clean is true when no process of the command is left and the shim accepts another
	// one.
	Clean bool `json:"clean,omitempty"`
}

// Run runs the command to its end and returns when no process of it is left.
// When ctx ends, the command gets SIGTERM, after spec.Grace SIGKILL, and Run
// returns the cause wrapped. stdout and stderr are written from one goroutine
// each.
func Run(ctx context.Context, spec Spec, stdout, stderr io.Writer) (Result, error) {
	return (*Pool)(nil).Run(ctx, spec, stdout, stderr)
}

// Run does the same as the function Run, with a shim of the pool.
func (p *Pool) Run(ctx context.Context, spec Spec, stdout, stderr io.Writer) (Result, error) {
	process, err := p.Start(spec, stdout, stderr)
	if err != nil {
		return Result{}, err
	}
	return process.WaitContext(ctx)
}

// Start starts the command as Pool.Start does, with its own shim.
func Start(spec Spec, stdout, stderr io.Writer) (*Process, error) {
	return (*Pool)(nil).Start(spec, stdout, stderr)
}
