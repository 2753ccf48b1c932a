//go:build unix

package shim

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startScript runs a script that prints a line when it is ready.
func startScript(t *testing.T, script string, stopIn, killIn time.Duration) (*Process, *waitBuffer) {
	t.Helper()
	now := time.Now()
	leash := NewLeash(now.Add(stopIn), now.Add(killIn))
	out := newWaitBuffer(1)
	s := spec("sh", "-c", script)
	s.Grace, s.Leash = time.Hour, &leash
	p, err := Start(s, out, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

func ready(t *testing.T, out *waitBuffer) {
	t.Helper()
	select {
	case <-out.full:
	case <-time.After(2 * time.Minute):
		t.Fatal("the command is not ready")
	}
}

// loop waits for signals without a child that outlives the shell's trap.
const loop = `; echo $$; while :; do sleep 0.01; done`

func TestExpiredLeashEndsTheCommand(t *testing.T) {
	t.Parallel()
	p, out := startScript(t, `trap '' TERM; setsid sh -c 'trap "" TERM; echo $$; sleep 304 & wait' & wait`, time.Hour, 2*time.Hour)
	ready(t, out)
	p.Extend(NewLeash(time.Now().Add(200*time.Millisecond), time.Now().Add(400*time.Millisecond))) // the last extension
	result, err := p.Wait()
	if err != nil || !result.Expired || result.Signal != syscall.SIGKILL {
		t.Errorf("got %+v, %v; want it killed by the leash", result, err)
	}
	wantGone(t, strings.Fields(out.String()), 1)
}

func TestInitialLeashEndsTheCommand(t *testing.T) {
	t.Parallel()
	p, _ := startScript(t, `exec sleep 305`, 200*time.Millisecond, time.Hour)
	if result, err := p.Wait(); err != nil || !result.Expired || result.Signal != syscall.SIGTERM {
		t.Errorf("got %+v, %v; want it ended by the leash", result, err)
	}
}

func TestExpiredLeashSendsSIGTERMFirst(t *testing.T) {
	t.Parallel()
	p, out := startScript(t, `trap 'echo tidy; exit 3' TERM`+loop, time.Hour, 2*time.Hour)
	ready(t, out)
	p.Extend(NewLeash(time.Now().Add(200*time.Millisecond), time.Now().Add(time.Hour)))
	result, err := p.Wait()
	if err != nil || !result.Expired || result.ExitCode != 3 || !strings.Contains(out.String(), "tidy") {
		t.Errorf("got %+v, %v, %q", result, err, out.String())
	}
}

func TestExtendReplacesTheLeash(t *testing.T) {
	t.Parallel()
	p, out := startScript(t, `trap 'exit 4' TERM`+loop, time.Hour, 2*time.Hour)
	ready(t, out)
	p.Extend(NewLeash(time.Now(), time.Now().Add(time.Hour)))
	if result, err := p.Wait(); err != nil || !result.Expired || result.ExitCode != 4 {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestJudgeStopsThenKillsAtTheLeash(t *testing.T) {
	t.Parallel()
	const none = 0 // no such process: signals have no effect
	at := func(stop, kill time.Duration) *Leash { return &Leash{StopAt: stop, KillBy: kill} }
	for _, test := range []struct {
		name     string
		s        supervisor
		now      time.Duration
		kills    bool
		stopping bool
		next     time.Duration
	}{
		{"no leash", supervisor{}, 5, false, false, time.Hour},
		{"on the leash", supervisor{leash: at(10, 20)}, 5, false, false, 5},
		{"far from its end", supervisor{leash: at(time.Minute, time.Hour)}, 5, false, false, leashLook},
		{"stopping within the grace", supervisor{leash: at(90, 100), stopping: true, killAt: 50}, 10, false, true, 40},
		{"beyond the grace", supervisor{leash: at(90, 100), stopping: true, killAt: 50}, 50, true, true, 0},
		{"the leash is shorter than the grace", supervisor{leash: at(20, 30), stopping: true, killAt: 50}, 30, true, true, 0},
		{"a leash that ended long ago", supervisor{leash: at(1, 2), killAt: 90}, 30, true, true, -28},
	} {
		test.s.pid = none
		if test.s.leash != nil && test.now >= test.s.leash.StopAt {
			test.s.stopping = true // as judge does, without a search for processes
		}
		if kills := test.s.judge(test.now); kills != test.kills || test.s.stopping != test.stopping {
			t.Errorf("%s: kills %v, stopping %v", test.name, kills, test.s.stopping)
		}
		if next := test.s.next(test.now); next != test.next {
			t.Errorf("%s: looks again after %v; want %v", test.name, next, test.next)
		}
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	p, out := startScript(t, `trap 'echo usr1; exit 5' USR1`+loop, time.Hour, time.Hour)
	ready(t, out)
	p.Signal(syscall.SIGUSR1)
	if result, err := p.Wait(); err != nil || result.ExitCode != 5 {
		t.Errorf("got %+v, %v", result, err)
	}
	p, out = startScript(t, `trap 'exit 6' INT`+loop, time.Hour, time.Hour)
	ready(t, out)
	p.Stop(syscall.SIGINT)
	if result, err := p.Wait(); err != nil || result.ExitCode != 6 {
		t.Errorf("got %+v, %v", result, err)
	}
}

// The grace never extends beyond the leash: a successor relies on it.
func TestLeashBoundsTheGrace(t *testing.T) {
	t.Parallel()
	p, out := startScript(t, `trap '' TERM`+loop, time.Hour, 2*time.Hour)
	ready(t, out)
	p.Stop(syscall.SIGTERM)
	p.Extend(NewLeash(time.Now().Add(time.Hour), time.Now().Add(200*time.Millisecond)))
	result, err := p.Wait()
	if err != nil || result.Signal != syscall.SIGKILL || result.Expired {
		t.Errorf("got %+v, %v", result, err)
	}
	wantGone(t, strings.Fields(out.String()), 1)
}
