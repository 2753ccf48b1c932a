package dashboard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func TestPlainText(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"plain\ttext\n":                   "plain\ttext\n",
		"\x1b[1;32mgreen\x1b[0m":          "green",
		"\x1b]0;title\x07after":           "after",
		"\x1b]8;;http://x\x1b\\link":      "link",
		"\x1b]0;never ended":              "",
		"10%\r20%\r\ndone":                "10%\n20%\ndone",
		"\x00\x08\x7f\u0085nul":           "nul",
		"user\u202egpj.exe":               "user\ufffdgpj.exe",
		"\x1b(Bcharset\x1bM":              "charset",
		"\xff\xfebad":                     "\ufffdbad",
		"\x1bP1;2qpicture\x1b\\after":     "after",
		"\x1b[?25lhidden cursor\x1b[?25h": "hidden cursor",
	}
	for in, want := range tests {
		if got := plainText(in); got != want {
			t.Errorf("plainText(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOutputJoinsAnEscapeThatWasSplit(t *testing.T) {
	t.Parallel()
	o := output{chunks: []jobstore.LogChunk{
		{Stream: "stdout", Chunk: "a\x1b[3"}, {Stream: "stdout", Chunk: "1mb"}, {Stream: "stderr", Chunk: "c"},
	}}
	got := o.pieces()
	if len(got) != 2 || got[0] != (piece{"stdout", "ab"}) || got[1] != (piece{"stderr", "c"}) {
		t.Errorf("pieces %+v", got)
	}
}

func TestOutputKeepsItsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.logs = nil
	for seq := range 10 {
		c.logs = append(c.logs, jobstore.LogChunk{Attempt: 1, Seq: seq + 1, Chunk: strings.Repeat("x", maxOutput/4)})
	}
	var o output
	if err := o.update(t.Context(), fakeJobs{c}, 42, 1); err != nil {
		t.Fatal(err)
	}
	if !o.Cut || o.size > maxOutput || o.seq != 10 || o.chunks[len(o.chunks)-1].Seq != 10 {
		t.Errorf("cut %v, %d bytes, up to %d", o.Cut, o.size, o.seq)
	}
	reads := c.readCount()
	c.logs = append(c.logs, jobstore.LogChunk{Attempt: 1, Seq: 11, Chunk: "new"})
	if err := o.update(t.Context(), fakeJobs{c}, 42, 1); err != nil || o.seq != 11 || c.readCount() != reads+2 {
		t.Errorf("up to %d after %d readings: %v", o.seq, c.readCount()-reads, err)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m 01s", time.Hour + 2*time.Minute: "1h 02m", 50 * time.Hour: "2d 02h",
	} {
		if got := coarse(d); got != want {
			t.Errorf("coarse(%v) = %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		800 * time.Microsecond: "0.8 ms", 41 * time.Millisecond: "41 ms", 1240 * time.Millisecond: "1.24 s", 90 * time.Second: "1m 30s", -time.Second: "0 ms",
	} {
		if got := precise(d); got != want {
			t.Errorf("precise(%v) = %q, want %q", d, got, want)
		}
	}
	if got := number(1234567); got != "1,234,567" {
		t.Errorf("number: %q", got)
	}
}

// now is the right edge of a drawing that was made a moment earlier.
var now = epoch.Truncate(time.Second).Add(-time.Second)

func drawOne(leader leaderstore.Leader, tenures ...leaderstore.Tenure) roleLane {
	leader.Role, leader.Now = "scheduler", now
	for i := range tenures {
		tenures[i].Role = "scheduler"
	}
	return drawSwimlane(now, spans[1], []leaderstore.Leader{leader}, tenures, palette{"a": "n0"}).Lanes[0]
}

func TestSwimlane(t *testing.T) {
	t.Parallel()
	edge := now.Add(time.Second)
	at := func(minutes int) time.Time { return edge.Add(-time.Duration(minutes) * time.Minute) }
	leading := leaderstore.Leader{NodeID: "b", Term: 2, LeaseUntil: now.Add(time.Second)}

	l := drawOne(leading,
		leaderstore.Tenure{Term: 2, NodeID: "b", AcquiredAt: at(3), Gap: 3 * time.Minute, HasGap: true},
		leaderstore.Tenure{Term: 1, NodeID: "a", AcquiredAt: at(60), EndedAt: at(6)})
	if len(l.Bars) != 2 || len(l.Gaps) != 1 {
		t.Fatalf("lane %+v", l)
	}
	if b := l.Bars[0]; b.X != "0.000%" || b.Width != "60.000%" || b.Current || b.Color != "n0" || b.Text != "a · 1" {
		t.Errorf("a tenure that began before the drawing: %+v", b)
	}
	if b := l.Bars[1]; b.X != "80.000%" || b.Width != "20.000%" || !b.Current || b.Color != "n-none" {
		t.Errorf("the tenure that lasts: %+v", b)
	}
	if g := l.Gaps[0]; g.X != "60.000%" || g.Width != "20.000%" || g.End != "80.000%" || g.Brief {
		t.Errorf("gap %+v", g)
	}
	if l.Label != "scheduler: 1 change of leader in this time." {
		t.Errorf("label %q", l.Label)
	}
}

func TestSwimlaneOfTenureWithoutRecordedEnd(t *testing.T) {
	t.Parallel()
	edge := now.Add(time.Second)
	vacant := leaderstore.Leader{NodeID: "a", Term: 1, LeaseUntil: edge.Add(-3 * time.Minute)}
	l := drawOne(vacant, leaderstore.Tenure{Term: 1, NodeID: "a", AcquiredAt: edge.Add(-6 * time.Minute)})
	if len(l.Bars) != 1 || l.Bars[0].Width != "20.000%" || l.Bars[0].Current || len(l.Gaps) != 1 || l.Gaps[0].X != "80.000%" {
		t.Errorf("lane %+v", l)
	}
}

func TestChooseSpan(t *testing.T) {
	t.Parallel()
	tenures := []leaderstore.Tenure{{AcquiredAt: epoch.Add(-5 * time.Hour)}}
	for asked, want := range map[string]string{"": "6h", "1h": "1h", "nonsense": "6h"} {
		if got := chooseSpan(asked, epoch, tenures); got.Name != want {
			t.Errorf("span %q: %s, want %s", asked, got.Name, want)
		}
	}
	if got := chooseSpan("", epoch, nil); got.Name != "5m" {
		t.Errorf("without history: %s", got.Name)
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	var ticks []cronstore.Tick
	for range 40 {
		ticks = append(ticks, cronstore.Tick{Verdict: cronstore.Fired})
	}
	ticks[0].Verdict = cronstore.Failed
	s := drawTickStrip(ticks, nil, stripLength)
	if len(s.Cells) != stripLength || s.Label != "Last 30 ticks: 29 fired, 1 failed to fire" {
		t.Errorf("%d cells, %q", len(s.Cells), s.Label)
	}
	if newest := s.Cells[0]; newest.Rects[0].X != s.Width-cellWidth || len(newest.Rects) != 2 {
		t.Errorf("the newest tick: %+v", newest)
	}
	if got := drawTickStrip(nil, nil, stripLength).Label; got != "No ticks yet" {
		t.Errorf("label %q", got)
	}
}

// A tick that fired is shown as good only if its run succeeded.
func TestStripShowsFailedRuns(t *testing.T) {
	t.Parallel()
	ticks := []cronstore.Tick{{Verdict: cronstore.Fired, JobID: 1}, {Verdict: cronstore.CaughtUp, JobID: 2}, {Verdict: cronstore.Fired, JobID: 3}}
	for state, want := range map[string]string{
		"completed": "ok full", "": "ok full", "discarded": "bad notched", "retryable": "warn notched", "cancelled": "idle notched", "running": "live full",
	} {
		if got := drawTickStrip(ticks, map[int64]string{1: state}, stripLength).Cells[0].Tone; got != want {
			t.Errorf("a run that is %q: %s, want %s", state, got, want)
		}
	}
	s := drawTickStrip(ticks, map[int64]string{1: "discarded", 2: "discarded", 3: "completed"}, stripLength)
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
		m := markOf(v)
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

func TestHealthHeadlineIsWorstFinding(t *testing.T) {
	t.Parallel()
	c := newCluster()
	facts := clusterFacts{now: epoch, nodes: c.nodes, leaders: c.leaders}
	if h := judge(facts, outlinesOf(c.crons), nil, facts.now); h.Tone != "ok" || h.Headline != "Every role has a leader and every cron is on time" {
		t.Errorf("all is well: %+v", h)
	}
	c.crons[0].NextTick = epoch.Add(-3 * time.Second)
	if h := judge(facts, outlinesOf(c.crons), nil, facts.now); h.Tone != "warn" || h.Headline != "1 cron is overdue" {
		t.Errorf("overdue: %+v", h)
	}
	c.leaders[1].NodeID = ""
	h := judge(facts, outlinesOf(c.crons), nil, facts.now)
	if h.Tone != "bad" || h.Headline != "No node leads as scheduler" || len(h.Notes) != 2 || h.Notes[1] != (remark{"1 cron is overdue.", "/crons?is=overdue"}) {
		t.Errorf("no scheduler: %+v", h)
	}
}

// The overview shows crons whose newest tick was skipped because of an earlier run,
// hazards, and a node that is not ready.
func TestOverviewShowsHazards(t *testing.T) {
	t.Parallel()
	c := newCluster()
	led := c.leaders[0]
	led.Role = "metrics_aggregator"
	c.leaders = append(c.leaders, led)
	c.hazards = []hazards.Hazard{
		{Kind: hazards.PausedQueue, Text: "queue mail is paused for 72h0m0s", Remedy: "forge queue resume mail"},
		{Kind: hazards.OldSnapshot, Text: "process 42 is open", Remedy: "end it"},
	}
	page := get(t, handlerOf(c), "/").Body.String()
	for _, want := range []string{`<a href="/queues">Queue mail is paused for 72h0m0s</a>`, "Remedy: forge queue resume mail.", "Process 42 is open."} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview does not say %q", want)
		}
	}
	opts := optionsOf(c)
	opts.Cluster.Ready = func(context.Context) error { return UnreadyError{Public: "x", Err: errors.New("the disk is full")} }
	page = get(t, New(opts), "/").Body.String()
	for _, want := range []string{"Node node-1 is not ready: the disk is full"} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview of a node that is not ready does not say %q", want)
		}
	}
}

func TestHealthNamesWhatBlocksCrons(t *testing.T) {
	t.Parallel()
	c := newCluster()
	facts := clusterFacts{now: epoch, nodes: c.nodes, leaders: c.leaders}
	c.crons[0].Blocked = cronstore.Blocked{By: 42, Since: epoch.Add(-time.Minute)}
	note := remark{c.crons[0].Name + " is blocked by job 42, which is running.", "/jobs/42"}
	h := judge(facts, outlinesOf(c.crons), map[int64]string{42: "running"}, facts.now)
	if h.Tone != "ok" || h.Headline != "Every role has a leader, and 1 cron is blocked by an earlier run" || len(h.Notes) != 1 || h.Notes[0] != note {
		t.Errorf("blocked by a run that has started: %+v", h)
	}
	h = judge(facts, outlinesOf(c.crons), map[int64]string{42: "available"}, facts.now)
	if h.Tone != "warn" || h.Headline != "1 cron waits for a run that has not started" || h.Path != "/crons?is=blocked" {
		t.Errorf("blocked by a run that waits: %+v", h)
	}
	c.crons[0].PausedAt = epoch
	if h := judge(facts, outlinesOf(c.crons), nil, facts.now); h.Headline != "Every role has a leader and every cron is on time" {
		t.Errorf("paused: %+v", h)
	}
}

// The pages link to the job that blocks a cron.
func TestPagesNameWhatBlocksCrons(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.crons[0].Blocked = cronstore.Blocked{By: 42, Since: epoch.Add(-time.Minute)}
	c.ticks[c.crons[0].Name] = []cronstore.Tick{{
		Cron: c.crons[0].Name, Tick: epoch, Verdict: cronstore.SkippedOverlap, Reason: "Blocked by job 42 (waiting since 2026-11-20T12:00:00Z).", BlockedBy: 42, Count: 1,
	}}
	for path, want := range map[string][]string{
		"/":                 {c.crons[0].Name + " is blocked by job 42", `blocked by job 42</a>`},
		"/crons":            {`href="/jobs/42">blocked by job 42</a>`, `is=blocked`},
		"/crons?is=blocked": {c.crons[0].Name},
		cronPath(c.crons[0].Name): {
			`Blocked by <a href="/jobs/42">job 42</a> (waiting since 2026-11-20T12:00:00Z).`, "ticks are skipped since",
		},
		"/api/v1/crons?is=blocked":                       {`"blocked":{"job_id":42`},
		"/api/v1" + cronPath(c.crons[0].Name) + "/ticks": {`"blocked_by":42`},
	} {
		page := get(t, handlerOf(c), path).Body.String()
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s does not say %q", path, text)
			}
		}
	}
	c.crons[0].Blocked = cronstore.Blocked{}
	if page := get(t, handlerOf(c), "/crons?is=blocked").Body.String(); strings.Contains(page, `href="`+cronPath(c.crons[0].Name)) {
		t.Error("a cron that is not blocked is listed as blocked")
	}
}

func TestSilentNodesShow(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.nodes[0].Reporting, c.nodes[0].ReportedAt = false, epoch.Add(-2*time.Minute)
	c.nodes[1].Reporting, c.nodes[1].ReportedAt, c.nodes[1].StartedAt = false, time.Time{}, epoch.Add(-10*time.Second)
	page := get(t, handlerOf(c), "/").Body.String()
	if n := strings.Count(page, "Hands over no metrics"); n != 1 || !strings.Contains(page, "the last ones came") {
		t.Errorf("%d nodes are silent, want the first alone:\n%s", n, page)
	}
	c.nodes[1].StartedAt = epoch.Add(-2 * time.Minute)
	c.nodes[0].State = nodestore.Left
	if page := get(t, handlerOf(c), "/").Body.String(); !strings.Contains(page, "none came yet") || strings.Contains(page, "the last ones came") {
		t.Errorf("want that the second node never reported and nothing of the first:\n%s", page)
	}
	nodes := decode[list[nodestore.Node]](t, get(t, handlerOf(c), "/api/v1/nodes")).Items
	if nodes[0].Reporting || nodes[0].ReportedAt.IsZero() {
		t.Errorf("the API says %+v", nodes[0])
	}
}

func TestAttemptsAreDrawnFromTheTickToTheEnd(t *testing.T) {
	t.Parallel()
	job := jobstore.Job{
		State: "completed", Tick: epoch, CreatedAt: epoch.Add(time.Second), FinalizedAt: epoch.Add(10 * time.Second), Attempt: 2,
		Attempts: []jobstore.Attempt{
			{Attempt: 1, StartedAt: epoch.Add(2 * time.Second), DurationMS: 1000, Outcome: jobstore.OutcomeFailed},
			{Attempt: 2, StartedAt: epoch.Add(5 * time.Second), DurationMS: 5000, Outcome: "completed"},
		},
	}
	bars, axis, label := drawAttempts(epoch, job)
	if label != "2 attempts in 10.00 s" || len(bars) != 2 || axis[2].Text != "+10.00 s" {
		t.Fatalf("%d bars, %q", len(bars), label)
	}
	if b := bars[0]; b.X != "20.000%" || b.Width != "10.000%" || b.Tone != "bad" || b.Title != "Attempt 1: failed, began 2.00 s after the job was added, took 1.00 s" {
		t.Errorf("the first bar is %+v", b)
	}
	if b := bars[1]; b.X != "50.000%" || b.Width != "50.000%" || b.Y != attemptHeight+3 {
		t.Errorf("the second bar is %+v", b)
	}
	job.CreatedAt, job.Tick, job.FinalizedAt = epoch.Add(-48*time.Hour), time.Time{}, time.Time{}
	if bars, _, _ := drawAttempts(epoch.Add(10*time.Second), job); bars[0].X != "0.000%" {
		t.Errorf("a long wait squeezes the attempts: %+v", bars[0])
	}
}
