//go:build unix

package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// sweep is how often a stopping shim searches for remaining processes.
const sweep = 10 * time.Millisecond

func init() {
	if len(os.Args) > 0 && os.Args[0] == argv0 {
		os.Exit(main())
	}
}

// main runs a shim: one command after another. All processes of a command are gone before
// the next one starts.
func main() int {
	// PDEATHSIG of the commands is tied to this thread, which must not end.
	runtime.LockOSThread()
	socket, err := newSocket(socketFD)
	if err != nil {
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	orders := make(chan order)
	go read(socket, orders) // ends with the process
	for {
		select {
		case <-signals:
			return 0
		case o, open := <-orders:
			if !open {
				return 0 // the node is gone, or no longer needs this shim
			}
			if o.Spec != nil && !serve(socket, o, signals, orders) {
				return 0
			}
		}
	}
}

// read passes on the node's orders until the socket ends.
func read(socket *socket, orders chan<- order) {
	defer close(orders)
	for {
		var o order
		if socket.receive(&o) != nil {
			return
		}
		if o.Spec != nil {
			o.outputs = socket.outputs()
		}
		orders <- o
	}
}

// serve runs one command and reports its end. It returns false if no other command may
// follow.
func serve(socket *socket, o order, signals <-chan os.Signal, orders <-chan order) bool {
	result, clean := supervise(socket, o, signals, orders)
	return socket.send(reply{Result: &result, Clean: clean}, startTimeout) == nil && clean
}

func supervise(socket *socket, o order, signals <-chan os.Signal, orders <-chan order) (result Result, clean bool) {
	pid, err := start(*o.Spec, o.outputs)
	for _, fd := range o.outputs { // only the command and its descendants keep them open
		_ = syscall.Close(fd)
	}
	if err != nil {
		return Result{StartError: err.Error()}, true
	}
	exited := make(chan syscall.WaitStatus, 1)
	empty := make(chan struct{})
	go func() { // ends when no child is left
		reap(pid, exited)
		close(empty)
	}()
	s := &supervisor{pid: pid, grace: o.Spec.Grace, leash: o.Spec.Leash}
	if socket.send(reply{Started: true}, orderTimeout) != nil {
		s.quit = true // the report is incomplete or the node is gone; the end of its orders follows
	}
	result = resultOf(s.run(exited, signals, orders))
	clean = killAll(pid, empty) && !s.quit
	result.Expired = s.expired
	return result, clean
}

// killAll kills the remaining processes, repeatedly, because a process may fork during
// the search. It returns false if some do not end. Most commands leave nothing, and a
// search through all processes of the machine costs more than they do.
func killAll(pid int, empty <-chan struct{}) bool {
	giveUp := time.After(hardStop)
	select {
	case <-empty:
		return true
	case <-time.After(time.Millisecond):
	}
	for {
		for _, p := range descendants(pid) {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		select {
		case <-empty:
			return true
		case <-giveUp:
			return false
		case <-time.After(sweep):
		}
	}
}

// reap collects every child, the command's orphans included, until none is left, and
// sends the command's own status.
func reap(pid int, exited chan<- syscall.WaitStatus) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			return
		case got == pid && (status.Exited() || status.Signaled()):
			exited <- status
		}
	}
}

func start(spec Spec, outputs []int) (int, error) {
	if len(spec.Argv) == 0 {
		return 0, errors.New("empty command")
	}
	if len(outputs) != maxRights {
		return 0, fmt.Errorf("got %d outputs, want %d", len(outputs), maxRights)
	}
	if err := becomeReaper(); err != nil {
		return 0, err
	}
	path, err := lookPath(spec)
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	attr := &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: []uintptr{null.Fd(), uintptr(outputs[0]), uintptr(outputs[1])},
		Sys:   sysProcAttr(),
	}
	if c := spec.Credential; c != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}
	}
	lowerPriority(spec.Nice)
	pid, err := syscall.ForkExec(path, spec.Argv, attr)
	if err != nil {
		return 0, fmt.Errorf("start %s in directory %q: %w", path, spec.Dir, err)
	}
	return pid, nil
}

// lookPath finds the program in the command's PATH, not the shim's, which is empty.
func lookPath(spec Spec) (string, error) {
	name := spec.Argv[0]
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	for _, entry := range spec.Env {
		dirs, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

func resultOf(status syscall.WaitStatus) Result {
	if status.Signaled() {
		return Result{ExitCode: 128 + int(status.Signal()), Signal: status.Signal()}
	}
	return Result{ExitCode: status.ExitStatus()}
}
