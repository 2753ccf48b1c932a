package charts

import (
	"fmt"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func TestStripWithoutTicks(t *testing.T) {
	t.Parallel()
	if got := DrawTickStrip(nil, nil, 0); got.Width != 0 || len(got.Cells) != 0 {
		t.Errorf("%d wide, with %d cells", got.Width, len(got.Cells))
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	var ticks []cronstore.Tick
	for range 40 {
		ticks = append(ticks, cronstore.Tick{Verdict: cronstore.Fired})
	}
	ticks[0].Verdict = cronstore.Failed
	s := DrawTickStrip(ticks, nil, cluster.StripLength)
	if len(s.Cells) != cluster.StripLength || s.Label != "Last 30 ticks: 29 fired, 1 failed to fire" {
		t.Errorf("%d cells, %q", len(s.Cells), s.Label)
	}
	if newest := s.Cells[0]; newest.Rects[0].X != s.Width-cellWidth || len(newest.Rects) != 2 {
		t.Errorf("the newest tick: %+v", newest)
	}
	if got := DrawTickStrip(nil, nil, cluster.StripLength).Label; got != "No ticks yet" {
		t.Errorf("label %q", got)
	}
}

// What a tick's reason says stays text.
func TestMarksAreEscaped(t *testing.T) {
	t.Parallel()
	s := DrawTickStrip([]cronstore.Tick{{Verdict: cronstore.Failed, Reason: `</title><script>"&'`}}, nil, 1)
	const mark = `<rect class="bad split" x="0" y="%d" width="5" height="7" rx="1.5"><title>0001-01-01 00:00:00 UTC · failed to fire · &lt;/title&gt;&lt;script&gt;&#34;&amp;&#39;</title></rect>`
	if got, want := string(s.Marks()), fmt.Sprintf(mark+mark, 0, 11); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A tick that fired is shown as good only if its run succeeded.
func TestStripShowsFailedRuns(t *testing.T) {
	t.Parallel()
	ticks := []cronstore.Tick{{Verdict: cronstore.Fired, JobID: 1}, {Verdict: cronstore.CaughtUp, JobID: 2}, {Verdict: cronstore.Fired, JobID: 3}}
	for state, want := range map[string]string{
		"completed": "ok full", "": "ok full", "discarded": "bad notched", "retryable": "warn notched", "cancelled": "idle notched", "running": "live full",
	} {
		if got := DrawTickStrip(ticks, map[int64]string{1: state}, cluster.StripLength).Cells[0].Tone; got != want {
			t.Errorf("a run that is %q: %s, want %s", state, got, want)
		}
	}
	s := DrawTickStrip(ticks, map[int64]string{1: "discarded", 2: "discarded", 3: "completed"}, cluster.StripLength)
	if want := "Last 3 ticks: 1 caught up (run failed), 1 fired, 1 fired (run failed)"; s.Label != want {
		t.Errorf("%q, want %q", s.Label, want)
	}
}

// Each verdict has a tone, its own description, and a shape that distinguishes bad from
// good without colour.
func TestEveryVerdictHasAMark(t *testing.T) {
	t.Parallel()
	words := map[string]cronstore.Verdict{}
	shapes := map[string]string{}
	for _, v := range []cronstore.Verdict{
		cronstore.Fired, cronstore.CaughtUp, cronstore.Queued, cronstore.SkippedOverlap, cronstore.SkippedWindow, cronstore.SkippedLimit,
		cronstore.SkippedDST, cronstore.SkippedPaused, cronstore.SkippedExcluded, cronstore.Replaced, cronstore.Failed, cronstore.Triggered, cronstore.Backfilled,
	} {
		m := MarkOf(v)
		if other, taken := words[m.Words]; taken {
			t.Errorf("%s and %s read alike", v, other)
		}
		words[m.Words] = v
		if tone, taken := shapes[m.Shape]; taken && tone != m.Tone {
			t.Errorf("%s: shape %s stands for %s and %s", v, m.Shape, tone, m.Tone)
		}
		shapes[m.Shape] = m.Tone
	}
}

// The key explains every look of a tick, whatever its verdict and the state of its run.
func TestTickKeyIsComplete(t *testing.T) {
	t.Parallel()
	explained := map[string]bool{}
	for _, entry := range TickKey() {
		look := entry.Cells[0].Tone
		if explained[look] || entry.Words == "" || len(entry.Cells[0].Rects) == 0 {
			t.Errorf("the entry %+v", entry)
		}
		explained[look] = true
	}
	for _, v := range []cronstore.Verdict{
		cronstore.Fired, cronstore.CaughtUp, cronstore.Queued, cronstore.SkippedOverlap, cronstore.SkippedWindow, cronstore.SkippedLimit,
		cronstore.SkippedDST, cronstore.SkippedPaused, cronstore.SkippedExcluded, cronstore.Replaced, cronstore.Failed, cronstore.Triggered, cronstore.Backfilled,
	} {
		for _, state := range append([]string{""}, cluster.JobStates...) {
			m := markOfRun(cronstore.Tick{Verdict: v, JobID: 1}, state)
			if m.Tone == "live" {
				m.Shape = "full" // the shape is that of the verdict
			}
			if !explained[m.Tone+" "+m.Shape] {
				t.Errorf("the key does not explain %s of a run that is %q: %s %s", v, state, m.Tone, m.Shape)
			}
		}
	}
}
