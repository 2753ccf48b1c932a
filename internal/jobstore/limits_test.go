package jobstore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Every version of PostgreSQL stores the window of a rate exactly. PostgreSQL 14 accepts at most
// 2147483647 of a unit in an interval, which is 36 minutes of microseconds.
func TestWindowsOfRates(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, per := range []time.Duration{time.Microsecond, 1500 * time.Millisecond, 36 * time.Minute, 24*time.Hour + time.Microsecond, 366 * 24 * time.Hour} {
		want := []Limit{{Scope: ScopeQueue, Name: "default", Most: 1, Per: per}}
		setLimits(t, pool, want...)
		got, err := New(pool).Limits(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s (-want +got), %v:\n%s", per, err, diff)
		}
	}
}
