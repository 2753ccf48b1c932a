//go:build unix

package shim

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// orderTimeout bounds a message to a shim that does not read: it is stopped
// itself then.
const orderTimeout = time.Second

// Process is a running command to which more can be said than its end.
type Process struct {
	grace  time.Duration
	cmd    *exec.Cmd
	report *os.File

	mu    sync.Mutex
	order *os.File // nil once it is closed
	last  *time.Timer
}

// Start runs the command under a shim until it ends, Stop is called, its leash
// runs out or this process is gone. Wait must be called once.
func Start(spec Spec, stdout, stderr io.Writer) (*Process, error) {
	cmd, order, report, err := launch(context.Background(), stdout, stderr, 0)
	if err != nil {
		return nil, err
	}
	p := &Process{grace: spec.Grace, cmd: cmd, report: report, order: order}
	p.say(spec) // a shim without a whole order stops at once
	return p, nil
}

// Extend moves the end of the leash.
func (p *Process) Extend(leash Leash) { p.say(order{Leash: &leash}) }

// Signal hands a signal on to the command.
func (p *Process) Signal(sig syscall.Signal) { p.say(order{Signal: sig}) }

// Stop ends the command: with the signal, and after the grace, or at the end of
// the leash, with SIGKILL.
func (p *Process) Stop(with syscall.Signal) {
	p.say(order{Stop: with})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil { // for a shim that does not answer; the command goes with it
		p.last = time.AfterFunc(p.grace+hardStop, func() { _ = p.cmd.Process.Kill() })
	}
}

func (p *Process) say(message any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.order == nil {
		return
	}
	err := p.order.SetWriteDeadline(time.Now().Add(orderTimeout))
	if err == nil {
		err = json.NewEncoder(p.order).Encode(message)
	}
	if err != nil { // half a message is none: end it all
		p.close()
	}
}

func (p *Process) close() {
	if p.order != nil {
		_ = p.order.Close()
		p.order = nil
	}
}

// Wait returns when no process of the command is left.
func (p *Process) Wait() (Result, error) {
	waitErr := p.cmd.Wait()
	p.mu.Lock()
	p.close()
	if p.last != nil {
		p.last.Stop()
	}
	p.mu.Unlock()
	defer func() { _ = p.report.Close() }()
	return readReport(p.report, waitErr)
}
