package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// process is a node, or a client of the peer.
type process struct {
	id   string
	cmd  *exec.Cmd
	done chan struct{}
	log  string
}

// start runs a program with its output in a file of the run's directory.
func (b *bench) start(id string, env []string, program string, args ...string) (*process, error) {
	p := &process{id: id, done: make(chan struct{}), log: filepath.Join(b.dir, id+".log")}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	defer func() { _ = out.Close() }()     // the process has its own descriptor
	p.cmd = exec.Command(program, args...) //nolint:noctx,gosec // ended by close; our own program
	p.cmd.Env = append(environment(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	go func() {
		_ = p.cmd.Wait() // how a broken process ends means nothing
		close(p.done)
	}()
	b.nodes = append(b.nodes, p)
	return p, nil
}

// environment is this process's, without what forge would read from it.
func environment() []string {
	var kept []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "FORGE_") && !strings.HasPrefix(pair, "DATABASE_URL=") {
			kept = append(kept, pair)
		}
	}
	return kept
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.id, err)
	}
	return nil
}

// kill ends the process whatever state it is in.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.done
}

// alive explains the end of a process that should run.
func (p *process) alive() error {
	select {
	case <-p.done:
		body, _ := os.ReadFile(p.log) //nolint:gosec // our own file
		return fmt.Errorf("%s has ended: %s", p.id, body[max(0, len(body)-1000):])
	default:
		return nil
	}
}
