//go:build unix

package shim

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"
)

const (
	// orderTimeout bounds a message to a shim that does not read, because the shim itself
	// is stopped.
	orderTimeout = time.Second
	// startTimeout bounds the message that starts a command; the shim may have to start
	// first.
	startTimeout = time.Minute
)

// Process is a running command.
type Process struct {
	grace   time.Duration
	handle  *handle
	pool    *Pool
	outputs *outputs
	early   *reply // the end of the command, if AwaitStart has read it
	failed  error

	mu   sync.Mutex
	open bool // the shim accepts further orders about this command
	torn bool // a message to the shim was sent only in part
	last *time.Timer
}

// AwaitStart returns when the command has started, or when Wait will return why it has
// not. When ctx ends first, the command is stopped. AwaitStart is called at most once,
// and before Wait.
func (p *Process) AwaitStart(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { p.Stop(syscall.SIGTERM) })
	defer stop()
	var r reply
	err := p.handle.socket.receive(&r)
	if err != nil || r.Result != nil {
		p.early, p.failed = &r, err
	}
}

// Extend replaces the leash.
func (p *Process) Extend(leash Leash) { p.say(order{Leash: &leash}) }

// Signal sends a signal to the command.
func (p *Process) Signal(sig syscall.Signal) { p.say(order{Signal: sig}) }

// Stop ends the command: with the signal first, and with SIGKILL after the grace or at
// the end of the leash.
func (p *Process) Stop(with syscall.Signal) {
	p.say(order{Stop: with})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open && p.last == nil { // for a shim that does not answer; the command ends with it
		p.last = time.AfterFunc(p.grace+hardStop, p.handle.kill)
	}
}

func (p *Process) say(message order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open || p.torn {
		return
	}
	if p.handle.socket.send(message, orderTimeout) != nil { // the message may be incomplete: end the shim
		p.torn = true
		p.handle.socket.finish()
	}
}

// Wait returns when no process of the command is left.
func (p *Process) Wait() (Result, error) { return p.wait(0) }

// WaitContext stops the command when ctx ends, and returns when no process of it is left.
// The error is then the cause, wrapped.
func (p *Process) WaitContext(ctx context.Context) (Result, error) {
	stop := context.AfterFunc(ctx, func() { p.Stop(syscall.SIGTERM) })
	defer stop()
	result, err := p.wait(p.grace + hardStop)
	if ctx.Err() != nil {
		return result, fmt.Errorf("command stopped: %w", context.Cause(ctx))
	}
	return result, err
}

// wait waits for the end of the outputs for at most delay after the command's end; 0
// means no limit.
func (p *Process) wait(delay time.Duration) (Result, error) {
	r, err := p.ended()
	p.end(err == nil && r.Clean)
	p.outputs.wait(delay)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("%w: %w", errNoReport, err)
	case r.Result.StartError != "":
		return *r.Result, fmt.Errorf("%w: %s", ErrNotStarted, r.Result.StartError)
	default:
		return *r.Result, nil
	}
}

// ended returns the shim's report.
func (p *Process) ended() (reply, error) {
	if p.early != nil {
		return *p.early, p.failed
	}
	for {
		var r reply
		if err := p.handle.socket.receive(&r); err != nil {
			return r, err
		}
		if r.Result != nil {
			return r, nil
		}
	}
}

// end releases the shim, which may run another command if it is clean.
func (p *Process) end(clean bool) {
	p.mu.Lock()
	p.open = false
	clean = clean && !p.torn && (p.last == nil || p.last.Stop())
	if p.last != nil {
		p.last.Stop()
	}
	p.mu.Unlock()
	if clean {
		p.pool.put(p.handle)
	} else {
		p.handle.discard()
	}
}
