package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// Process is a node, or a client of the peer.
type Process struct {
	*nodes.Process

	ID  string
	log string
}

// Launch runs a program with env, its output in a file of the directory.
func Launch(dir, id string, env []string, line ...string) (*Process, error) {
	p := &Process{ID: id, log: filepath.Join(dir, id+".log")}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	defer func() { _ = out.Close() }() // the process has its own descriptor
	if p.Process, err = nodes.Start(line[0], out, env, line[1:]...); err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Signal sends one.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.Cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.ID, err)
	}
	return nil
}

// Log is what the process has printed so far.
func (p *Process) Log() ([]byte, error) {
	body, err := os.ReadFile(p.log) //nolint:gosec // our own file
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", p.ID, err)
	}
	return body, nil
}

// Alive explains the end of a process that should run.
func (p *Process) Alive() error {
	select {
	case <-p.Done():
		body, _ := p.Log() // then there is nothing to show
		return fmt.Errorf("%s has ended: %s", p.ID, body[max(0, len(body)-1000):])
	default:
		return nil
	}
}

// Start runs this program again with env, in the run's directory.
func (r *Rig) Start(id string, env ...string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return r.StartLine(id, []string{program}, env...)
}

// StartLine runs a command line with env, in the run's directory.
func (r *Rig) StartLine(id string, line []string, env ...string) (*Process, error) {
	p, err := Launch(r.Dir, id, env, line...)
	if err != nil {
		return nil, err
	}
	r.processes = append(r.processes, p)
	return p, nil
}

// Processes are all that were started and not killed by KillAll.
func (r *Rig) Processes() []*Process { return r.processes }

// Alive explains the end of the first that has ended.
func (r *Rig) Alive() error {
	for _, p := range r.processes {
		if err := p.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// StopAll asks every process to end and waits for it. A node hands over what it
// leads then, so that the next run's do not wait for it.
func (r *Rig) StopAll(ctx context.Context) error {
	for _, p := range r.processes {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for len(r.processes) > 0 {
		if err := r.End(ctx, r.processes[0]); err != nil {
			return err
		}
	}
	return nil
}

// End waits for the end of a process that ends by itself.
func (r *Rig) End(ctx context.Context, p *Process) error {
	select {
	case <-p.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(waitTimeout):
		return fmt.Errorf("waited %v in vain: the end of %s", waitTimeout, p.ID)
	}
	r.processes = slices.DeleteFunc(r.processes, func(other *Process) bool { return other == p })
	if err := p.Err(); err != nil {
		body, _ := p.Log() // then there is nothing to show
		return fmt.Errorf("%s: %w: %s", p.ID, err, body[max(0, len(body)-1000):])
	}
	return nil
}

// KillAll ends every process.
func (r *Rig) KillAll() {
	for _, p := range r.processes {
		p.Kill()
	}
	r.processes = nil
}
