package rescue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestDueReleaserRestsUntilNextJobIsDue(t *testing.T) {
	t.Parallel()
	type hint struct{ after, next time.Duration }
	tests := map[string]struct {
		pause time.Duration
		hints []hint
		want  time.Duration
	}{
		"no check":                   {pause: dueCheckInterval, want: dueCheckInterval},
		"regular checks":             {pause: dueCheckInterval, hints: []hint{{time.Second, jobstore.NoDueJob}, {time.Second, jobstore.NoDueJob}, {time.Second, jobstore.NoDueJob}}, want: 3*time.Second + dueCheckInterval},
		"a newcomer":                 {pause: dueCheckInterval, hints: []hint{{time.Second, 200 * time.Millisecond}}, want: 1200 * time.Millisecond},
		"a newcomer that is due":     {pause: dueCheckInterval, hints: []hint{{time.Second, -time.Second}}, want: time.Second},
		"a newcomer before the next": {pause: 500 * time.Millisecond, hints: []hint{{100 * time.Millisecond, 100 * time.Millisecond}}, want: 200 * time.Millisecond},
		"a check older than our own": {pause: 500 * time.Millisecond, hints: []hint{{0, jobstore.NoDueJob}}, want: 500 * time.Millisecond},
		"the same job again":         {pause: dueCheckInterval, hints: []hint{{time.Second, 600 * time.Millisecond}, {300 * time.Millisecond, 300 * time.Millisecond}}, want: 1600 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &dueReleaser{nextDue: make(chan time.Duration, 1)}
				go func() {
					for _, h := range test.hints {
						time.Sleep(h.after)
						s.nextDue <- h.next
					}
				}()
				start := time.Now()
				if !s.rest(t.Context(), test.pause) {
					t.Fatal("ended")
				}
				if got := time.Since(start); got != test.want {
					t.Errorf("rested for %v, want %v", got, test.want)
				}
			})
		})
	}
}
