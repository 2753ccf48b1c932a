package crons

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// minutely returns n ticks, one minute apart. The newest is ago before noon.
func minutely(n int, ago time.Duration) []cronstore.Due {
	due := make([]cronstore.Due, n)
	for i := range due {
		due[i].At = noon.Add(-ago - time.Duration(n-1-i)*time.Minute)
		due[i].FiresAt = due[i].At
	}
	return due
}

func verdictsOf(decisions []cronstore.Tick) string {
	short := map[cronstore.Verdict]string{
		cronstore.Fired: "F", cronstore.CaughtUp: "C", cronstore.SkippedOverlap: "o", cronstore.SkippedWindow: "w",
		cronstore.SkippedLimit: "l", cronstore.SkippedDST: "d", cronstore.SkippedPaused: "p", cronstore.SkippedExcluded: "x",
		cronstore.Queued: "q", cronstore.Replaced: "r",
	}
	var s string
	for _, d := range decisions {
		s += short[d.Verdict]
	}
	return s
}

func TestDecide(t *testing.T) {
	t.Parallel()
	special := minutely(5, 0)
	excluded, delayed := minutely(4, 90*time.Second), minutely(3, 2*time.Minute)
	excluded[1].Excluded, excluded[3].Excluded = "2026-06-01", "2026-06-01"
	delayed[1].FiresAt, delayed[2].FiresAt = noon.Add(-61*time.Second), noon.Add(-time.Minute)
	special[0].Removed, special[1].Paused, special[2].SkippedDST, special[3].Paused = true, true, true, true
	special[3].Removed = true
	tests := []struct {
		name      string
		due       []cronstore.Due
		catchUp   string
		limit     int
		window    time.Duration
		overlap   string
		more      bool
		earlier   *run
		waiting   int
		taken     bool
		unstarted bool
		want      string
	}{
		{name: "nothing is due", want: ""},
		{name: "on time", due: minutely(1, 0), want: "F"},
		{name: "just on time", due: minutely(1, time.Minute), want: "F"},
		{name: "just missed", due: minutely(1, time.Minute+time.Microsecond), want: "C"},
		{name: "latest", due: minutely(4, 90*time.Second), catchUp: "latest", want: "lllC"},
		{name: "latest is the default", due: minutely(2, 90*time.Second), catchUp: "", want: "lC"},
		{name: "latest beside a tick on time", due: minutely(4, 30*time.Second), catchUp: "latest", want: "llCF"},
		{name: "none", due: minutely(3, 30*time.Second), catchUp: "none", want: "wwF"},
		{name: "all", due: minutely(4, 90*time.Second), catchUp: "all", want: "CCCC"},
		{name: "all within the limit", due: minutely(5, 90*time.Second), catchUp: "all", limit: 2, want: "lllCC"},
		{name: "window before limit", due: minutely(6, 90*time.Second), catchUp: "all", limit: 2, window: 5 * time.Minute, want: "wwllCC"},
		{name: "all too old", due: minutely(3, 2*time.Hour), catchUp: "latest", want: "www"},
		{name: "at the edge of the window", due: minutely(2, time.Hour), catchUp: "all", want: "wC"},
		{name: "overlap with an earlier run", due: minutely(3, 30*time.Second), overlap: "skip", earlier: &run{ID: 7, State: "running"}, want: "loo"},
		{name: "overlap allowed", due: minutely(2, 0), overlap: "allow", earlier: &run{ID: 7, State: "running"}, want: "FF"},
		{name: "the newest of a batch fires", due: minutely(3, 30*time.Second), overlap: "skip", want: "loF"},
		{name: "a queued tick fires", due: minutely(1, 0), overlap: "skip", taken: true, want: "o"},
		{name: "queue, free", due: minutely(1, 0), overlap: "queue", want: "F"},
		{name: "queue behind a run", due: minutely(2, 0), overlap: "queue", earlier: &run{ID: 7, State: "running"}, want: "qo"},
		{name: "queue is taken", due: minutely(2, 0), overlap: "queue", earlier: &run{ID: 7, State: "running"}, waiting: 1, want: "oo"},
		{name: "queue behind a queued tick that fires", due: minutely(2, 0), overlap: "queue", taken: true, want: "qo"},
		{name: "queue keeps the order", due: minutely(4, 90*time.Second), overlap: "queue", catchUp: "all", want: "Cqoo"},
		{name: "queue_all", due: minutely(4, 0), overlap: "queue_all", catchUp: "all", want: "Cqqq"},
		{name: "queue_all behind a run", due: minutely(2, 0), overlap: "queue_all", earlier: &run{ID: 7, State: "running"}, waiting: 5, want: "qq"},
		{name: "queue_all is full", due: minutely(2, 0), overlap: "queue_all", earlier: &run{ID: 7, State: "running"}, waiting: maxQueued - 1, want: "qo"},
		{name: "queue takes no skipped tick", due: excluded, overlap: "queue", catchUp: "all", earlier: &run{ID: 7, State: "running"}, want: "qxox"},
		{name: "replace_waiting, nothing runs", due: minutely(3, 30*time.Second), overlap: "replace_waiting", catchUp: "all", want: "rrF"},
		{
			name: "replace_waiting, a run waits", due: minutely(3, 30*time.Second), overlap: "replace_waiting", catchUp: "all",
			earlier: &run{ID: 7, State: "available"}, unstarted: true, want: "rrF",
		},
		{
			name: "replace_waiting, a run has started", due: minutely(3, 30*time.Second), overlap: "replace_waiting", catchUp: "all",
			earlier: &run{ID: 7, State: "running"}, want: "ooo",
		},
		{name: "replace", due: minutely(3, 30*time.Second), overlap: "replace", catchUp: "all", earlier: &run{ID: 7, State: "running"}, want: "rrF"},
		{name: "reasons to skip", due: special, catchUp: "all", want: "xpdpF"},
		{name: "excluded, and no catch-up of them", due: excluded, catchUp: "latest", want: "lxCx"},
		{name: "late from the jittered instant", due: delayed, catchUp: "all", want: "CCF"},
		{name: "more follow, latest", due: minutely(4, 90*time.Second), catchUp: "latest", more: true, want: "lll"},
		{name: "more follow, all", due: minutely(5, 90*time.Second), catchUp: "all", limit: 2, more: true, want: "lll"},
		{name: "more follow, none", due: minutely(3, 90*time.Second), catchUp: "none", more: true, want: "www"},
		{name: "more follow, too old to matter", due: minutely(3, 2*time.Hour), catchUp: "latest", more: true, want: "www"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := &cronstore.Spec{CatchUp: tt.catchUp, CatchUpMax: tt.limit, CatchUpSpan: config.Duration(tt.window), Overlap: tt.overlap}
			if tt.limit == 0 {
				spec.CatchUpMax = 10
			}
			if tt.window == 0 {
				spec.CatchUpSpan = config.Duration(time.Hour)
			}
			if tt.overlap == "" {
				spec.Overlap = "allow"
			}
			if got := verdictsOf(decide(spec, noon, tt.due, tt.more, overlapState{tt.earlier, tt.waiting, tt.taken, tt.unstarted})); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A backlog gets the same verdicts for every slice size.
func TestDecideInSlicesGivesSameVerdicts(t *testing.T) {
	t.Parallel()
	for _, catchUp := range []string{"none", "latest", "all"} {
		spec := &cronstore.Spec{CatchUp: catchUp, CatchUpMax: 3, CatchUpSpan: config.Duration(20 * time.Minute), Overlap: "allow"}
		due := minutely(40, 10*time.Second)
		want := verdictsOf(decide(spec, noon, due, false, overlapState{}))
		for size := 5; size < 40; size++ {
			var got string
			for rest := due; len(rest) > 0; {
				n := min(size, len(rest))
				done := decide(spec, noon, rest[:n], n < len(rest), overlapState{})
				if len(done) == 0 {
					t.Fatalf("%s: a slice of %d of %d settles nothing", catchUp, n, len(rest))
				}
				got, rest = got+verdictsOf(done), rest[len(done):]
			}
			if got != want {
				t.Errorf("%s in slices of %d: got %s, want %s", catchUp, size, got, want)
			}
		}
	}
}

func TestVerdictReasonsAreSentences(t *testing.T) {
	t.Parallel()
	due := minutely(100, 0)
	due[0].SkippedDST, due[1].Paused, due[2].Removed, due[3].Excluded = true, true, true, "2026-06-01"
	for _, catchUp := range []string{"none", "latest", "all"} {
		for _, earlier := range []*run{nil, {ID: 42, State: "running"}} {
			spec := &cronstore.Spec{CatchUp: catchUp, CatchUpMax: 10, CatchUpSpan: config.Duration(time.Hour), Overlap: "skip"}
			for _, d := range decide(spec, noon, due, false, overlapState{earlier: earlier}) {
				if d.Verdict == cronstore.Fired {
					continue
				}
				if len(d.Reason) < 10 || d.Reason[len(d.Reason)-1] != '.' {
					t.Errorf("%s: reason %q", d.Verdict, d.Reason)
				}
			}
		}
	}
}

func TestMergeCombinesLongRunsOfSkippedTicks(t *testing.T) {
	t.Parallel()
	spec := &cronstore.Spec{CatchUp: "latest", CatchUpSpan: config.Duration(time.Hour), Overlap: "allow"}
	due := minutely(100, 0)
	rows := merge("c", decide(spec, noon, due, false, overlapState{}))
	var got []string
	for _, row := range rows {
		got = append(got, fmt.Sprintf("%s %s %d", row.Tick.Format("15:04"), row.Verdict, row.Count))
	}
	want := []string{
		"10:21 skipped_window 39", "11:00 skipped_limit 58", "11:58 caught_up 1", "11:59 fired 1", "12:00 fired 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if last := rows[0].LastTick.Format("15:04"); last != "10:59" {
		t.Errorf("the first range ends %s, want 10:59", last)
	}
	short := merge("c", decide(spec, noon, minutely(maxSeparateRows, 2*time.Hour), false, overlapState{}))
	if len(short) != maxSeparateRows {
		t.Errorf("a short run became %d rows, want %d", len(short), maxSeparateRows)
	}
}
