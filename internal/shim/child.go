//go:build unix

package shim

import (
	"encoding/json"
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

// sweep is how often a stopping shim looks for processes that are left.
const sweep = 10 * time.Millisecond

func init() {
	if len(os.Args) > 0 && os.Args[0] == argv0 {
		os.Exit(main())
	}
}

// main is the shim's whole life; its exit code is only a hint, the report
// counts.
func main() int {
	// PDEATHSIG of the command is bound to this thread, which must not end.
	runtime.LockOSThread()
	syscall.CloseOnExec(orderFD)
	syscall.CloseOnExec(reportFD)
	order, report := os.NewFile(orderFD, "order"), os.NewFile(reportFD, "report")

	decoder := json.NewDecoder(order)
	var spec Spec
	if err := decoder.Decode(&spec); err != nil {
		return 2 // the node is gone, or changed its mind
	}
	result := supervise(spec, decoder)
	if json.NewEncoder(report).Encode(result) != nil {
		return 1
	}
	return 0
}

func supervise(spec Spec, decoder *json.Decoder) Result {
	if err := becomeReaper(); err != nil {
		return Result{StartError: err.Error()}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	orders := make(chan order)
	go func() { // ends with the process
		defer close(orders)
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()

	pid, err := start(spec)
	if err != nil {
		return Result{StartError: err.Error()}
	}
	closeOutput()
	exited := make(chan syscall.WaitStatus, 1)
	empty := make(chan struct{})
	go func() { // ends when no child is left
		reap(pid, exited)
		close(empty)
	}()

	s := &supervisor{pid: pid, grace: spec.Grace, leash: spec.Leash}
	status := s.run(exited, signals, orders)
	killAll(pid, empty)
	result := resultOf(status)
	result.Expired = s.expired
	return result
}

// killAll kills what is left, again and again, for a process may fork while it
// is being looked for.
func killAll(pid int, empty <-chan struct{}) {
	giveUp := time.After(hardStop)
	for {
		for _, p := range descendants(pid) {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		select {
		case <-empty:
			return
		case <-giveUp:
			return
		case <-time.After(sweep):
		}
	}
}

// reap collects every child, the command's orphans included, until none is
// left, and reports the command's own status.
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

func start(spec Spec) (int, error) {
	if len(spec.Argv) == 0 {
		return 0, errors.New("empty command")
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
		Files: []uintptr{null.Fd(), 1, 2},
		Sys:   sysProcAttr(),
	}
	if c := spec.Credential; c != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: c.UID, Gid: c.GID, Groups: c.Groups}
	}
	pid, err := syscall.ForkExec(path, spec.Argv, attr)
	if err != nil {
		return 0, fmt.Errorf("start %s in directory %q: %w", path, spec.Dir, err)
	}
	return pid, nil
}

// lookPath finds the program by the command's PATH, not by the shim's, which
// has none.
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

// closeOutput gives up the shim's own ends of the output pipes.
func closeOutput() {
	_, _ = syscall.Close(1), syscall.Close(2)
}

func resultOf(status syscall.WaitStatus) Result {
	if status.Signaled() {
		return Result{ExitCode: 128 + int(status.Signal()), Signal: status.Signal()}
	}
	return Result{ExitCode: status.ExitStatus()}
}
