package jobs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/shim"
)

func newTestStarter(t *testing.T) *starter {
	t.Helper()
	s := newStarter()
	t.Cleanup(s.close)
	return s
}

func command(argv ...string) shim.Spec {
	return shim.Spec{Argv: argv, Env: []string{"PATH=" + os.Getenv("PATH")}, Grace: time.Second}
}

func TestRoomShrinksWhileStartsAreSlow(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newStartLoad(4)
	if room := l.room(now); room < 1000 {
		t.Errorf("room for %d before the first start", room)
	}
	l.enter()
	began := l.begin(now)
	if room := l.room(now.Add(100 * time.Millisecond)); room != 39 {
		t.Errorf("room for %d beside a start that has taken 100 ms, want 4 per 100 ms less one", room)
	}
	if room := l.room(now.Add(time.Minute)); room != 3 {
		t.Errorf("room for %d beside a start that hangs, want what is started at a time less one", room)
	}
	for range 9 {
		l.enter()
	}
	if room := l.room(now.Add(time.Minute)); room != 0 {
		t.Errorf("room for %d while 9 wait, want none", room)
	}
	for range 9 {
		l.leave()
	}
	l.end(began, now.Add(8*time.Second))
	if room := l.room(now); room != 4 {
		t.Errorf("an idle node with slow starts has room for %d, want what it starts at a time", room)
	}
	for range 80 {
		l.enter()
		l.end(l.begin(now), now.Add(time.Millisecond))
	}
	if room := l.room(now); room < 1000 {
		t.Errorf("room for %d after many quick starts", room)
	}
}

func TestConcurrentStartsAreLimited(t *testing.T) {
	t.Parallel()
	s := newTestStarter(t)
	most, waited := 0, 0
	s.load.observe = func(waiting int, _ time.Duration) {
		most, waited = max(most, len(s.load.starting)), max(waited, waiting)
	}
	var all sync.WaitGroup
	for range 5 * cap(s.places) {
		all.Go(func() {
			if result, err := s.run(t.Context(), command("true"), time.Minute, &bytes.Buffer{}, &bytes.Buffer{}); err != nil || result.ExitCode != 0 {
				t.Errorf("got %+v, %v", result, err)
			}
		})
	}
	all.Wait()
	if most > cap(s.places) || waited == 0 {
		t.Errorf("%d started at a time, want at most %d; %d waited", most, cap(s.places), waited)
	}
	if s.load.pending != 0 || len(s.load.starting) != 0 {
		t.Errorf("%d are pending and %d starting after the end", s.load.pending, len(s.load.starting))
	}
}

// Waiting for a place does not count toward the timeout.
func TestTimeoutBeginsAtStart(t *testing.T) {
	t.Parallel()
	s := newTestStarter(t)
	for range cap(s.places) {
		s.places <- struct{}{}
	}
	const timeout = 2 * time.Second
	free := time.AfterFunc(timeout+500*time.Millisecond, func() {
		for range cap(s.places) {
			<-s.places
		}
	})
	defer free.Stop()
	result, err := s.run(t.Context(), command("true"), timeout, &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil || result.ExitCode != 0 {
		t.Errorf("got %+v, %v; want the command to have run", result, err)
	}
	_, err = s.run(t.Context(), command("sleep", "316"), 200*time.Millisecond, &bytes.Buffer{}, &bytes.Buffer{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timed out after 200ms") {
		t.Errorf("got %v, want the timeout", err)
	}
}

func TestWaitingCommandCanBeCancelled(t *testing.T) {
	t.Parallel()
	s := newTestStarter(t)
	for range cap(s.places) {
		s.places <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if result, err := s.run(ctx, command("true"), time.Minute, &bytes.Buffer{}, &bytes.Buffer{}); result != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %+v, %v; want no result", result, err)
	}
	if s.load.pending != 0 {
		t.Errorf("%d are still pending", s.load.pending)
	}
}
