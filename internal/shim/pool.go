//go:build unix

package shim

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// maxIdle is how many shims wait for a command, and idleFor for how long each.
	maxIdle = 8
	idleFor = 10 * time.Second
)

// Pool keeps shims that have ended a command and have no process left, for the
// next one: to start a shim costs several times what it costs to start a command.
// A nil Pool keeps none.
type Pool struct {
	mu     sync.Mutex
	idle   []*handle // the one that was used last is at the end
	closed bool
	ending sync.WaitGroup
}

// Start runs the command under a shim until it ends, Stop is called, its leash
// runs out or this process is gone. It returns before the command has started.
// Wait must be called once.
func (p *Pool) Start(spec Spec, stdout, stderr io.Writer) (*Process, error) {
	outputs, err := openOutputs(stdout, stderr)
	if err != nil {
		return nil, fmt.Errorf("open the command's outputs: %w", err)
	}
	h, err := p.order(spec, outputs)
	outputs.closeRemotes()
	if err != nil {
		outputs.closeOwn()
		return nil, err
	}
	outputs.copy()
	return &Process{grace: spec.Grace, handle: h, pool: p, outputs: outputs, open: true}, nil
}

// order gives the command to a shim. One that has ended while it was idle has
// not begun anything: the next one is taken.
func (p *Pool) order(spec Spec, outputs *outputs) (*handle, error) {
	for {
		h := p.take()
		reused := h != nil
		if !reused {
			var err error
			if h, err = launch(); err != nil {
				return nil, err
			}
		}
		err := h.socket.send(order{Spec: &spec}, startTimeout, outputs.remotes...)
		if err == nil {
			return h, nil
		}
		h.discard()
		if !reused {
			return nil, fmt.Errorf("give the shim its order: %w", err)
		}
	}
}

// take returns an idle shim, or nil.
func (p *Pool) take() *handle {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	h := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	h.idle.Stop()
	return h
}

// put keeps a shim that has nothing to do, or ends it.
func (p *Pool) put(h *handle) {
	if p == nil || !p.keep(h) {
		h.discard()
	}
}

func (p *Pool) keep(h *handle) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		return false
	}
	h.idle = time.AfterFunc(idleFor, func() { p.expire(h) })
	p.idle = append(p.idle, h)
	return true
}

func (p *Pool) expire(h *handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, h); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.ending.Go(h.discard)
	}
}

// Close ends the shims that are idle, and each other one with its command.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for _, h := range p.idle {
		h.idle.Stop()
		p.ending.Go(h.discard)
	}
	p.idle = nil
	p.mu.Unlock()
	p.ending.Wait()
}

// errNoReport says that a shim ended, or was killed, before its command's end
// was known.
var errNoReport = errors.New("the shim ended without a report")
