package watchdog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

const limit = 3 * time.Second

func requireStalled(t *testing.T, w *watchdog.Watchdog, want string) {
	t.Helper()
	got, stalled := w.Stalled(time.Now())
	if got != want || stalled != (want != "") {
		t.Fatalf("stalled: %q, %v; want %q", got, stalled, want)
	}
}

func TestWatchdogReportsSilentWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(limit)
		ctx := w.Context(t.Context(), "work")
		time.Sleep(limit)
		requireStalled(t, w, "")
		watchdog.Report(ctx)
		time.Sleep(limit)
		requireStalled(t, w, "")
		time.Sleep(time.Millisecond)
		requireStalled(t, w, "work")
		watchdog.Extend(ctx, time.Minute)
		time.Sleep(limit + time.Minute)
		requireStalled(t, w, "")
		if !w.Due().Equal(time.Now()) {
			t.Fatalf("due at %v", w.Due())
		}
		time.Sleep(time.Millisecond)
		requireStalled(t, w, "work")
	})
}

func TestWatchdogReportsStalledPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(limit)
		root := w.Context(t.Context(), "work")
		turning, endTurning := watchdog.Begin(root, "turning")
		_, endHanging := watchdog.Begin(root, "hanging")
		for range 4 {
			time.Sleep(time.Second)
			watchdog.Report(turning)
		}
		requireStalled(t, w, "hanging")
		endHanging()
		requireStalled(t, w, "")
		endTurning()
		endTurning() // a second call has no effect
		time.Sleep(limit)
		requireStalled(t, w, "") // the outer part is checked again, from the end of its last child
		time.Sleep(time.Millisecond)
		requireStalled(t, w, "work")
	})
}

func TestPausedWorkIsNotStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(limit)
		ctx, stop := context.WithCancel(w.Context(t.Context(), "work"))
		done := make(chan bool)
		go func() { done <- watchdog.Sleep(ctx, time.Hour) }()
		for range 100 {
			time.Sleep(time.Second)
			requireStalled(t, w, "")
		}
		if !w.Due().IsZero() {
			t.Fatalf("due at %v while it waits", w.Due())
		}
		stop()
		if <-done {
			t.Fatal("slept to the end of an hour")
		}
		time.Sleep(limit + time.Millisecond)
		requireStalled(t, w, "work") // the wait is over
		if !watchdog.Sleep(w.Context(t.Context(), "work"), time.Minute) {
			t.Fatal("did not sleep to the end")
		}
	})
}

func TestReportWithoutWatchdogDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := watchdog.Begin(t.Context(), "part")
		watchdog.Report(ctx)
		watchdog.Extend(ctx, time.Hour)
		if !watchdog.Sleep(ctx, 5*time.Hour) {
			t.Fatal("did not sleep")
		}
		end()
	})
}

// A loop that waits for a statement is slow, not stalled. Only a statement that
// never ends counts as a stall.
func TestRunningStatementIsNotStalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(limit)
		defer w.Stop()
		ctx := w.Context(t.Context(), "work")
		end := watchdog.Statement(ctx)
		time.Sleep(10 * limit)
		requireStalled(t, w, "")
		end()
		end() // a second call has no effect
		time.Sleep(limit)
		requireStalled(t, w, "")
		time.Sleep(time.Millisecond)
		requireStalled(t, w, "work")
		watchdog.Report(ctx)
		end = watchdog.Statement(ctx)
		defer end()
		time.Sleep(3 * time.Minute)
		requireStalled(t, w, "work")
	})
}

// Detached work neither ends the loop's wait nor reports for the loop.
func TestDetachedStatementsAreIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(limit)
		defer w.Stop()
		beside := watchdog.Detach(w.Context(t.Context(), "work"))
		for range 4 {
			time.Sleep(time.Second)
			watchdog.Report(beside)
			if watchdog.Statement(beside) != nil {
				t.Fatal("a detached statement counts for a part")
			}
		}
		requireStalled(t, w, "work")
	})
}
