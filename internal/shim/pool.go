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
	// maxIdle is the number of shims that wait for a command, and idleFor how long each
	// waits.
	maxIdle = 8
	idleFor = 10 * time.Second
)

// Pool keeps clean shims for the next command: starting a shim costs several times as
// much as starting a command. A nil Pool keeps none.
type Pool struct {
	mu     sync.Mutex
	idle   []*handle // most recently used last
	closed bool
	ending sync.WaitGroup
}

// Start runs the command under a shim until it ends, Stop is called, its leash runs out
// or this process is gone. It returns before the command has started. Wait must be called
// once.
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

// order sends the command to a shim. A shim that ended while it was idle has not started
// anything: order then takes the next one.
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

// put keeps an idle shim, or ends it.
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

// Close ends the idle shims, and every other shim with its command.
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

// errNoReport reports that a shim ended, or was killed, before the end of its command was
// known.
var errNoReport = errors.New("the shim ended without a report")
