package progress_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/progress"
)

const patience = 3 * time.Second

func demand(t *testing.T, w *progress.Watch, want string) {
	t.Helper()
	got, stalled := w.Stalled(time.Now())
	if got != want || stalled != (want != "") {
		t.Fatalf("stalled: %q, %v; want %q", got, stalled, want)
	}
}

func TestSilentWorkStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := progress.NewWatch(patience)
		ctx := w.Context(t.Context())
		time.Sleep(patience)
		demand(t, w, "")
		progress.Report(ctx)
		time.Sleep(patience)
		demand(t, w, "")
		time.Sleep(time.Millisecond)
		demand(t, w, "work")
		progress.Allow(ctx, time.Minute)
		time.Sleep(patience + time.Minute)
		demand(t, w, "")
		if !w.Due().Equal(time.Now()) {
			t.Fatalf("due at %v", w.Due())
		}
		time.Sleep(time.Millisecond)
		demand(t, w, "work")
	})
}

func TestAPartThatTurnsHidesNoneThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := progress.NewWatch(patience)
		root := w.Context(t.Context())
		turning, endTurning := progress.Begin(root, "turning")
		_, endHanging := progress.Begin(root, "hanging")
		for range 4 {
			time.Sleep(time.Second)
			progress.Report(turning)
		}
		demand(t, w, "hanging")
		endHanging()
		demand(t, w, "")
		endTurning()
		endTurning() // twice is once
		time.Sleep(patience)
		demand(t, w, "") // the whole counts again, from the end of its last part
		time.Sleep(time.Millisecond)
		demand(t, w, "work")
	})
}

func TestWaitingIsProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := progress.NewWatch(patience)
		ctx, stop := context.WithCancel(w.Context(t.Context()))
		done := make(chan bool)
		go func() { done <- progress.Sleep(ctx, time.Hour) }()
		for range 100 {
			time.Sleep(time.Second)
			demand(t, w, "")
		}
		if !w.Due().IsZero() {
			t.Fatalf("due at %v while it waits", w.Due())
		}
		stop()
		if <-done {
			t.Fatal("slept to the end of an hour")
		}
		time.Sleep(patience + time.Millisecond)
		demand(t, w, "work") // the wait is over
		if !progress.Sleep(w.Context(t.Context()), time.Minute) {
			t.Fatal("did not sleep to the end")
		}
	})
}

func TestUnwatchedWorkMayReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := progress.Begin(t.Context(), "part")
		progress.Report(ctx)
		progress.Allow(ctx, time.Hour)
		if !progress.Sleep(ctx, 5*time.Hour) {
			t.Fatal("did not sleep")
		}
		end()
	})
}

// A loop that waits for a statement is slow, not stalled; only a statement that nothing
// ends is held against it.
func TestStatementInFlightIsNoStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := progress.NewWatch(patience)
		defer w.Stop()
		ctx := w.Context(t.Context())
		end := progress.Statement(ctx)
		time.Sleep(10 * patience)
		demand(t, w, "")
		end()
		end() // twice is once
		time.Sleep(patience)
		demand(t, w, "")
		time.Sleep(time.Millisecond)
		demand(t, w, "work")
		progress.Report(ctx)
		end = progress.Statement(ctx)
		defer end()
		time.Sleep(3 * time.Minute)
		demand(t, w, "work")
	})
}

// What runs beside a loop neither ends its wait nor shows that it turns.
func TestDetachedStatementsCountForNoPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := progress.NewWatch(patience)
		defer w.Stop()
		beside := progress.Detach(w.Context(t.Context()))
		for range 4 {
			time.Sleep(time.Second)
			progress.Report(beside)
			if progress.Statement(beside) != nil {
				t.Fatal("a detached statement counts for a part")
			}
		}
		demand(t, w, "work")
	})
}
