package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Daemon is a program in a namespace, with which it ends. It writes to a log that each start
// continues.
type Daemon struct {
	line []string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

func newDaemon(dir, name string, line []string) *Daemon {
	return &Daemon{line: line, log: filepath.Join(dir, name+".log")}
}

// Start starts the program.
func (d *Daemon) Start(ctx context.Context) error {
	log, err := os.OpenFile(d.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.line[0], err)
	}
	defer func() { _ = log.Close() }()                                                // the program has its own descriptor
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), d.line[0], d.line[1:]...) //nolint:gosec // our own
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.Dir = log, log, "/"
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.line[0], err)
	}
	done, cmd := make(chan struct{}), d.cmd
	d.done = done
	go func() {
		defer close(done)
		_ = cmd.Wait() // its log says more
	}()
	return nil
}

// Signal sends a signal to the program.
func (d *Daemon) Signal(sig os.Signal) error { return d.cmd.Process.Signal(sig) }

// Kill ends the program at once.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill() // it may be gone
	<-d.done
}
