package leaderstore

import (
	"testing"
	"time"
)

func TestClockWatchDistrustsALeap(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	start := time.Now()
	for name, test := range map[string]struct {
		leap     time.Duration
		distrust bool
	}{
		"steady":    {0, false},
		"drift":     {20 * time.Millisecond, false},
		"set ahead": {2 * time.Second, true},
		"set back":  {-time.Hour, false}, // leases last longer then
	} {
		w := clockWatch{lease: lease}
		at := func(after, leap time.Duration) {
			sent := start.Add(after)
			w.observe(sent, sent.Add(4*time.Millisecond), time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC).Add(after+leap))
		}
		at(0, 0)
		at(time.Second, 0)
		if w.distrusts(start.Add(time.Second)) {
			t.Errorf("%s: distrusts a clock that goes on", name)
		}
		at(2*time.Second, test.leap)
		at(3*time.Second, test.leap)
		if got := w.distrusts(start.Add(3 * time.Second)); got != test.distrust {
			t.Errorf("%s: distrusts %v; want %v", name, got, test.distrust)
		}
		if w.distrusts(start.Add(2*time.Second + lease + 5*time.Millisecond)) {
			t.Errorf("%s: distrusts after a lease", name)
		}
	}
}
