package leaderstore

import (
	"testing"
	"time"
)

// A holder is overdue if both clocks agree, at two observations.
func TestStaleHolderIsOverdueByBothClocks(t *testing.T) {
	t.Parallel()
	const (
		lease = time.Second
		grace = 100 * time.Millisecond
	)
	type reading struct {
		at      time.Duration
		renewal int
		expired bool
	}
	for name, test := range map[string]struct {
		readings []reading
		overdue  bool
	}{
		"silent beyond its lease":     {[]reading{{0, 1, false}, {500, 1, false}, {1000, 1, true}, {1200, 1, true}}, true},
		"found expired":               {[]reading{{0, 1, true}, {500, 1, true}, {1000, 1, true}}, true},
		"expired this instant":        {[]reading{{0, 1, false}, {1200, 1, true}}, false},
		"the database's clock jumped": {[]reading{{0, 1, false}, {200, 1, true}, {900, 1, true}}, false},
		"a jump, then a renewal":      {[]reading{{0, 1, true}, {700, 2, true}, {1400, 3, true}, {1600, 3, true}}, false},
		"the local clock is ahead":    {[]reading{{0, 1, false}, {3000, 1, false}}, false},
		"the lease continues":         {[]reading{{0, 1, true}, {1100, 1, true}, {1200, 1, false}}, false},
	} {
		holders := staleHolders{}
		start := time.Now()
		var now time.Time
		for _, r := range test.readings {
			now = start.Add(r.at * time.Millisecond)
			holders.record(staleHolder{lock: Lock{Role: "r"}, term: 1, renewed: time.Unix(int64(r.renewal), 0)}, r.expired, now)
		}
		if got := holders["r"].overdue(now, lease, grace); got != test.overdue {
			t.Errorf("%s: overdue %v", name, got)
		}
	}
}
