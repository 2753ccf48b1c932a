//go:build unix

package shim

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// handle is the node's side of a shim.
type handle struct {
	cmd    *exec.Cmd
	socket *socket
	// idle ends the shim after it has been idle for idleFor.
	idle *time.Timer
}

// launch starts a shim: this binary again, in its own process group, so that Ctrl-C on
// the node's terminal reaches only the node.
func launch() (*handle, error) {
	path, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	own, remote, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = remote.Close() }()
	cmd := exec.Command(path) //nolint:noctx // it outlives the command that it is started for
	cmd.Args = []string{argv0}
	cmd.Env = environment()
	cmd.ExtraFiles = []*os.File{remote}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		own.close()
		return nil, fmt.Errorf("start the shim: %w", err)
	}
	return &handle{cmd: cmd, socket: own}, nil
}

// discard ends a shim that runs no command and waits for its end.
func (h *handle) discard() {
	h.socket.close()
	last := time.AfterFunc(hardStop, h.kill)
	defer last.Stop()
	_ = h.cmd.Wait()
}

// kill ends the shim; the kernel then kills its command.
func (h *handle) kill() { _ = h.cmd.Process.Kill() }
