package assign

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// Statements that take too long are bounded, and each that did gives the next one more
// time; fast ones take it back.
func TestStatementsGetMoreTimeWhereTheyTakeLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &loop{board: newBoard(1, LeastLoaded), fence: leaderstore.Fence{}}
		deaf := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		for _, want := range []time.Duration{statementTimeout, 2 * statementTimeout, 4 * statementTimeout, 8 * statementTimeout, longestStatement, longestStatement} {
			began := time.Now()
			if err := l.within(t.Context(), deaf); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
				t.Errorf("%v after %s, want %s", err, time.Since(began), want)
			}
		}
		for range 5 {
			if err := l.within(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if l.board.timeout != statementTimeout {
			t.Errorf("statements that are fast again may take %s", l.board.timeout)
		}
	})
}

// Slow sweeps are made less often from the top, and what was offered is offered again
// later: the assigner must not make a slow database slower.
func TestSlowSweepsAreMadeLessOften(t *testing.T) {
	t.Parallel()
	l := &loop{board: newBoard(1, LeastLoaded), offerTimeout: offerTimeout}
	if l.topEvery() != topInterval || l.patience() != offerTimeout {
		t.Errorf("fast sweeps: from the top every %s, offers again after %s", l.topEvery(), l.patience())
	}
	l.sweepTook = time.Second
	if l.topEvery() != topShare*time.Second || l.patience() != offerTimeout+offerShare*time.Second {
		t.Errorf("slow sweeps: from the top every %s, offers again after %s", l.topEvery(), l.patience())
	}
}
