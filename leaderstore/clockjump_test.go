package leaderstore

import (
	"testing"
	"time"
)

func TestClockJumpIsDistrusted(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	start := time.Now()
	for name, test := range map[string]struct {
		jump     time.Duration
		distrust bool
	}{
		"steady":    {0, false},
		"drift":     {20 * time.Millisecond, false},
		"set ahead": {2 * time.Second, true},
		"set back":  {-time.Hour, false}, // a lease then lasts longer
	} {
		d := clockJumpDetector{lease: lease}
		at := func(after, jump time.Duration) {
			sent := start.Add(after)
			d.observe(sent, sent.Add(4*time.Millisecond), time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC).Add(after+jump))
		}
		at(0, 0)
		at(time.Second, 0)
		if d.distrusted(start.Add(time.Second)) {
			t.Errorf("%s: distrusts a steady clock", name)
		}
		at(2*time.Second, test.jump)
		at(3*time.Second, test.jump)
		if got := d.distrusted(start.Add(3 * time.Second)); got != test.distrust {
			t.Errorf("%s: distrusts %v; want %v", name, got, test.distrust)
		}
		if d.distrusted(start.Add(2*time.Second + lease + 5*time.Millisecond)) {
			t.Errorf("%s: still distrusts after a lease", name)
		}
	}
}
