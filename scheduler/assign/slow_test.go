package assign

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// Each timeout doubles the time limit of the next statement. Fast statements reduce it
// again.
func TestSlowStatementRaisesTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &loop{nodes: newNodeTable(1, LeastLoaded), fence: leaderstore.Fence{}}
		neverReturns := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		for _, want := range []time.Duration{statementTimeout, 2 * statementTimeout, 4 * statementTimeout, 8 * statementTimeout, maxStatementTimeout, maxStatementTimeout} {
			began := time.Now()
			if err := l.within(t.Context(), neverReturns); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
				t.Errorf("%v after %s, want %s", err, time.Since(began), want)
			}
		}
		for range 5 {
			if err := l.within(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if l.nodes.timeout != statementTimeout {
			t.Errorf("statements that are fast again may take %s", l.nodes.timeout)
		}
	})
}

// If sweeps are slow, the top is read less often and offers time out later, so the
// assigner does not make a slow database slower.
func TestSlowSweepsRunLessOften(t *testing.T) {
	t.Parallel()
	l := &loop{nodes: newNodeTable(1, LeastLoaded), offerTimeout: offerTimeout}
	if l.topEvery(&queueScan{}) != topInterval || l.claimTimeout() != offerTimeout {
		t.Errorf("fast sweeps: from the top every %s, offers again after %s", l.topEvery(&queueScan{}), l.claimTimeout())
	}
	l.sweepTook = time.Second
	if l.topEvery(&queueScan{}) != topShare*time.Second || l.claimTimeout() != offerTimeout+offerShare*time.Second {
		t.Errorf("slow sweeps: from the top every %s, offers again after %s", l.topEvery(&queueScan{}), l.claimTimeout())
	}
}
