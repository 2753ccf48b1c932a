package leaderstore

import (
	"testing"
	"time"
)

// A holder is overdue when both clocks say so, and when that was seen twice.
func TestSuspectIsOverdue(t *testing.T) {
	t.Parallel()
	const (
		lease  = time.Second
		moment = 100 * time.Millisecond
	)
	type look struct {
		at      time.Duration
		renewal int
		expired bool
	}
	for name, test := range map[string]struct {
		looks   []look
		overdue bool
	}{
		"silent beyond its lease":     {[]look{{0, 1, false}, {500, 1, false}, {1000, 1, true}, {1200, 1, true}}, true},
		"found expired":               {[]look{{0, 1, true}, {500, 1, true}, {1000, 1, true}}, true},
		"expired this instant":        {[]look{{0, 1, false}, {1200, 1, true}}, false},
		"the database's clock leapt":  {[]look{{0, 1, false}, {200, 1, true}, {900, 1, true}}, false},
		"it leapt, and a renewal":     {[]look{{0, 1, true}, {700, 2, true}, {1400, 3, true}, {1600, 3, true}}, false},
		"our clock runs ahead":        {[]look{{0, 1, false}, {3000, 1, false}}, false},
		"the lease goes on after all": {[]look{{0, 1, true}, {1100, 1, true}, {1200, 1, false}}, false},
	} {
		all := suspects{}
		start := time.Now()
		var now time.Time
		for _, l := range test.looks {
			now = start.Add(l.at * time.Millisecond)
			all.note(suspect{lock: Lock{Role: "r"}, term: 1, renewed: time.Unix(int64(l.renewal), 0)}, l.expired, now)
		}
		if got := all["r"].overdue(now, lease, moment); got != test.overdue {
			t.Errorf("%s: overdue %v", name, got)
		}
	}
}
