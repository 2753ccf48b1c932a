//go:build unix

package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func newPool(t *testing.T) *Pool {
	t.Helper()
	p := &Pool{}
	t.Cleanup(p.Close)
	return p
}

// shimOf runs a command and returns the process id of its shim.
func shimOf(t *testing.T, p *Pool) int {
	t.Helper()
	var out bytes.Buffer
	if result, err := p.Run(t.Context(), spec("sh", "-c", "echo $PPID"), &out, &out); err != nil || result.ExitCode != 0 {
		t.Fatalf("got %+v, %v", result, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// awaitDead waits until a process is gone, or dead but not collected: in a container
// there may be no process that collects orphans.
func awaitDead(t *testing.T, pid string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		out, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
		if state := strings.TrimSpace(string(out)); err != nil || state == "" || strings.HasPrefix(state, "Z") {
			return
		}
	}
	t.Errorf("process %s is still alive", pid)
}

func TestPoolReusesShims(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	first := shimOf(t, p)
	if _, err := p.Run(t.Context(), spec("no-such-program"), &bytes.Buffer{}, &bytes.Buffer{}); !errors.Is(err, ErrNotStarted) {
		t.Errorf("got %v, want ErrNotStarted", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready := newWaitBuffer(1)
	go func() {
		<-ready.full
		cancel()
	}()
	if _, err := p.Run(ctx, spec("sh", "-c", "echo; exec sleep 310"), ready, ready); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	for range 3 {
		if next := shimOf(t, p); next != first {
			t.Errorf("another shim, %d after %d", next, first)
		}
	}
	p.Close()
	if err := syscall.Kill(first, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the shim is still there after Close: %v", err)
	}
	if next := shimOf(t, p); next == first {
		t.Error("a closed pool kept its shim")
	}
}

// TestPoolLeavesNoProcessToTheNextCommand checks that no process of a command is left when
// the next one runs under the same shim.
func TestPoolLeavesNoProcessToTheNextCommand(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	var out bytes.Buffer
	first := shimOf(t, p)
	for range 3 {
		script := `setsid sleep 311 & echo $!; sh -c 'setsid sleep 312 & echo $!'`
		if _, err := p.Run(t.Context(), spec("sh", "-c", script), &out, &out); err != nil {
			t.Fatal(err)
		}
	}
	wantGone(t, strings.Fields(out.String()), 6)
	if next := shimOf(t, p); next != first {
		t.Errorf("another shim, %d after %d", next, first)
	}
}

// TestPoolReplacesKilledShims kills an idle shim, which has no effect, and a busy one,
// which ends its command and is not used again.
func TestPoolReplacesKilledShims(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	idle := shimOf(t, p)
	if err := p.idle[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.idle[0].cmd.Process.Wait(); err != nil { // its socket is closed then
		t.Fatal(err)
	}
	next := shimOf(t, p)
	if next == idle {
		t.Fatal("a killed shim ran a command")
	}
	ready := newWaitBuffer(2)
	process, err := p.Start(spec("sh", "-c", "echo $PPID; echo $$; exec sleep 313"), ready, ready)
	if err != nil {
		t.Fatal(err)
	}
	<-ready.full
	if err := syscall.Kill(next, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Wait(); !errors.Is(err, errNoReport) {
		t.Errorf("got %v, want errNoReport", err)
	}
	awaitDead(t, strings.Fields(ready.String())[1])
	shimOf(t, p)
}

// A shim that gets SIGTERM ends its command first, and takes no other.
func TestTerminatedShimTakesNoOtherCommand(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	ready := newWaitBuffer(2)
	process, err := p.Start(spec("sh", "-c", "echo $PPID; echo $$; exec sleep 314"), ready, ready)
	if err != nil {
		t.Fatal(err)
	}
	<-ready.full
	pids := strings.Fields(ready.String())
	shim, _ := strconv.Atoi(pids[0])
	if err := syscall.Kill(shim, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if result, err := process.Wait(); err != nil || result.Signal != syscall.SIGTERM {
		t.Errorf("got %+v, %v", result, err)
	}
	wantGone(t, pids, 2)
	if next := shimOf(t, p); next == shim {
		t.Error("it ran another command")
	}
}

func TestPoolSeparatesOutputs(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for n := range 5 {
				var out, errs bytes.Buffer
				script := fmt.Sprintf("echo out-%d-%d; echo err-%d-%d >&2; exit %d", i, n, i, n, i)
				result, err := p.Run(t.Context(), spec("sh", "-c", script), &out, &errs)
				if err != nil || result.ExitCode != i || out.String() != fmt.Sprintf("out-%d-%d\n", i, n) || errs.String() != fmt.Sprintf("err-%d-%d\n", i, n) {
					t.Errorf("got %+v, %v, %q, %q", result, err, out.String(), errs.String())
				}
			}
		})
	}
	all.Wait()
}

func TestPoolEndsIdleShims(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	shim := shimOf(t, p)
	p.mu.Lock()
	h := p.idle[0]
	p.mu.Unlock()
	p.expire(h)
	p.ending.Wait()
	if err := syscall.Kill(shim, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the shim is still there: %v", err)
	}
}

// TestFilesArePassedOn checks that a command that writes to a file, such as a terminal,
// gets that file itself.
func TestFilesArePassedOn(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), spec("sh", "-c", "echo a; echo b >&2"), file, file); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file.Name()); err != nil || string(data) != "a\nb\n" {
		t.Errorf("got %q, %v", data, err)
	}
	if err := file.Close(); err != nil {
		t.Errorf("the file was closed: %v", err)
	}
}

func TestCommandsHaveLowerPriorityThanTheNode(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	own, err := exec.Command("nice").Output()
	if err != nil {
		t.Fatal(err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second command must not lower it further
		s := spec("nice")
		s.Nice = 3
		var out bytes.Buffer
		if _, err := p.Run(t.Context(), s, &out, &out); err != nil || strings.TrimSpace(out.String()) != strconv.Itoa(min(value+3, 19)) {
			t.Errorf("the command's nice value is %q, the node's %d (%v)", out.String(), value, err)
		}
	}
}

func TestAwaitStart(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	process, err := p.Start(spec("sleep", "315"), &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	process.AwaitStart(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := process.WaitContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	process, err = p.Start(spec("no-such-program"), &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	process.AwaitStart(t.Context())
	if _, err := process.Wait(); !errors.Is(err, ErrNotStarted) {
		t.Errorf("got %v, want ErrNotStarted", err)
	}
}

// BenchmarkRun starts commands as a node does, each under a reused shim, and for
// comparison without a shim.
func BenchmarkRun(b *testing.B) {
	b.Run("pool", func(b *testing.B) {
		p := &Pool{}
		defer p.Close()
		for b.Loop() {
			if _, err := p.Run(b.Context(), spec("true"), &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if _, err := Run(b.Context(), spec("true"), &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("no shim", func(b *testing.B) {
		for b.Loop() {
			c := exec.Command("true")
			c.Stdout, c.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
			if err := c.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
