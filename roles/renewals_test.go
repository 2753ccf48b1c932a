package roles_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Every renewal is counted by its result, and an event summarizes the renewals once an
// hour.
func TestRenewalsAreCountedAndSummarizedHourly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		idle := func(ctx context.Context, _ leaderstore.Fence) error {
			for watchdog.Sleep(ctx, time.Second) {
				watchdog.Report(ctx)
			}
			return nil
		}
		opts := s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(idle)})
		count := func(result string) float64 {
			return testutil.ToFloat64(opts.Metrics.LeaderRenewals.WithLabelValues("scheduler", "a", result))
		}
		stop := start(t, opts)
		time.Sleep(2*time.Hour + refresh/2)
		synctest.Wait()
		if diff := cmp.Diff([]string{
			`{"renewals": 4799, "over_s": 3600, "longest_ms": 750}`,
			`{"renewals": 4800, "over_s": 3600, "longest_ms": 750}`,
		}, s.notes); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if renewed := count("renewed"); renewed != 9600 || count("refused") != 0 || count("error") != 0 {
			t.Errorf("%v renewed, %v refused, %v failed", renewed, count("refused"), count("error"))
		}
		s.mu.Lock()
		s.rows["scheduler"] = nil
		s.mu.Unlock()
		time.Sleep(refresh)
		synctest.Wait()
		s.stall("a")
		time.Sleep(3 * lease)
		synctest.Wait()
		if count("refused") != 1 || count("error") == 0 {
			t.Errorf("%v refused, %v failed", count("refused"), count("error"))
		}
		_ = stop()
	})
}

// Every attempt to acquire a role is counted by its result.
func TestElectionsAreCountedByResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.refuseTerms = true
		idle := roles.Unwatched(func(ctx context.Context, _ leaderstore.Fence) error {
			<-ctx.Done()
			return nil
		})
		a := s.options("a", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: idle})
		b := s.options("b", roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: idle})
		want := func(opts roles.Options, won, lost, failed bool) {
			t.Helper()
			for result, want := range map[string]bool{"won": won, "lost": lost, "error": failed} {
				if got := testutil.ToFloat64(opts.Metrics.LeaderElections.WithLabelValues("scheduler", opts.NodeID, result)); got > 0 != want {
					t.Errorf("%s: %v elections with the result %s", opts.NodeID, got, result)
				}
			}
		}
		stopA := start(t, a)
		time.Sleep(check)
		synctest.Wait()
		want(a, false, false, true)
		s.mu.Lock()
		s.refuseTerms = false
		s.mu.Unlock()
		time.Sleep(5 * check)
		synctest.Wait()
		want(a, true, false, true)
		stopB := start(t, b)
		time.Sleep(2 * check)
		synctest.Wait()
		want(b, false, true, false)
		_, _ = stopA(), stopB()
	})
}
