//go:build unix

package shim

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var env = []string{"PATH=" + os.Getenv("PATH"), "COLOUR=blue"}

func spec(argv ...string) Spec {
	return Spec{Argv: argv, Env: env, Grace: 200 * time.Millisecond}
}

func run(t *testing.T, spec Spec) (result Result, stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	result, err = Run(t.Context(), spec, &out, &errs)
	return result, out.String(), errs.String(), err
}

func TestRunReturnsOutputAndExitCode(t *testing.T) {
	t.Parallel()
	result, stdout, stderr, err := run(t, spec("sh", "-c", "echo $COLOUR; echo oops >&2; env | wc -l; exit 7"))
	if err != nil {
		t.Fatal(err)
	}
	if result.ExitCode != 7 || !strings.HasPrefix(stdout, "blue\n") || stderr != "oops\n" {
		t.Errorf("got %+v, stdout %q, stderr %q", result, stdout, stderr)
	}
}

func TestRunReportsTheSignal(t *testing.T) {
	t.Parallel()
	result, _, _, err := run(t, spec("sh", "-c", "kill -USR1 $$"))
	if err != nil || result.Signal != syscall.SIGUSR1 || result.ExitCode != 128+int(syscall.SIGUSR1) {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestRunReportsWhyACommandCannotStart(t *testing.T) {
	t.Parallel()
	missingDir := spec("true")
	missingDir.Dir = "/no/such/dir"
	for _, s := range []Spec{spec("no-such-program"), spec("/etc/passwd"), missingDir, {}} {
		if _, _, _, err := run(t, s); !errors.Is(err, ErrNotStarted) {
			t.Errorf("%v: got %v, want ErrNotStarted", s.Argv, err)
		}
	}
}

func TestNoProcessIsLeftWhenTheCommandEnds(t *testing.T) {
	t.Parallel()
	result, stdout, _, err := run(t, spec("sh", "-c", "setsid sleep 300 & echo $!; sh -c 'setsid sleep 301 & echo $!'"))
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("got %+v, %v", result, err)
	}
	wantGone(t, strings.Fields(stdout), 2)
}

func TestNoProcessIsLeftWhenStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	started := newWaitBuffer(4)
	var stderr bytes.Buffer
	go func() {
		<-started.full
		cancel()
	}()
	// The command, and a child in its own session, ignore SIGTERM.
	script := `trap '' TERM; echo $$; setsid sh -c 'trap "" TERM; echo $$; sleep 302 & echo $!; wait' & sleep 303 & echo $!; wait`
	_, err := Run(ctx, spec("sh", "-c", script), started, &stderr)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	wantGone(t, strings.Fields(started.String()), 4)
}

func TestStopSendsSIGTERMFirst(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stdout := newWaitBuffer(1)
	go func() {
		<-stdout.full
		cancel()
	}()
	s := spec("sh", "-c", `trap 'echo tidy; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	s.Grace = time.Minute
	if _, err := Run(ctx, s, stdout, stdout); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(stdout.String(), "tidy") {
		t.Errorf("the trap did not run: %q", stdout.String())
	}
}

func wantGone(t *testing.T, pids []string, want int) {
	t.Helper()
	if len(pids) != want {
		t.Fatalf("got pids %v, want %d", pids, want)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}
