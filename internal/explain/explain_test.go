package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

func hourly(t *testing.T) cronstore.Cron {
	t.Helper()
	return cronstore.Cron{
		Name: "report", CreatedAt: utc(t, "2026-11-01T00:00:00Z"), UpdatedAt: utc(t, "2026-11-02T00:00:00Z"),
		Watermark: utc(t, "2026-11-20T12:30:00Z"), Spec: cronstore.Spec{Schedule: "@hourly", Timezone: "UTC"},
	}
}

func utc(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestExplain(t *testing.T) {
	t.Parallel()
	fired := &cronstore.Tick{Verdict: cronstore.Fired, JobID: 42, Term: 7, NodeID: "a", LatenessMS: 3.25, Count: 1}
	overlap := &cronstore.Tick{
		Verdict: cronstore.SkippedOverlap, Reason: "Blocked by job 7 (running since 2026-11-20T11:00:00Z).", Term: 7, NodeID: "a", LatenessMS: 1, Count: 1,
	}
	outage := &cronstore.Tick{
		Tick: utc(t, "2026-11-20T01:00:00Z"), LastTick: utc(t, "2026-11-20T11:00:00Z"), Count: 11, Verdict: cronstore.SkippedWindow,
		Reason: "No scheduler could fire it within a minute, and catch_up is none.", Term: 8, NodeID: "b",
	}
	manual := &cronstore.Tick{Verdict: cronstore.Triggered, Reason: "Triggered by ada.", JobID: 5, Count: 1, LatenessMS: 61000}
	old := *manual
	old.LatenessMS = 3e13
	for _, test := range []struct {
		name, tick, now string
		row             *cronstore.Tick
		jobState        string
		removed         string
		told            []alerts.Notification
		standing, want  string
	}{
		{
			name: "fired", tick: "2026-11-20T12:00:00Z", row: fired, jobState: "completed", standing: Recorded,
			want: "The tick 2026-11-20T12:00:00Z of report was recorded as fired: job 42 is completed; by node a in term 7, 3.3ms late.",
		},
		{
			name: "fired, asked in another zone", tick: "2026-11-20T13:00:00+01:00", row: fired, jobState: "running", standing: Recorded,
			want: "The tick 2026-11-20T12:00:00Z of report was recorded as fired: job 42 is running; by node a in term 7, 3.3ms late.",
		},
		{
			name: "failed for good", tick: "2026-11-20T12:00:00Z", row: fired, jobState: "discarded", standing: Recorded,
			told: []alerts.Notification{{Target: "slack:#ops", State: alerts.NotificationPending}},
			want: "The tick 2026-11-20T12:00:00Z of report was recorded as fired: job 42 is discarded; slack:#ops is to be told; by node a in term 7, 3.3ms late.",
		},
		{
			name: "skipped", tick: "2026-11-20T12:00:00Z", row: overlap, standing: Recorded,
			want: "The tick 2026-11-20T12:00:00Z of report was recorded as skipped_overlap: blocked by job 7 (running since 2026-11-20T11:00:00Z); by node a in term 7, 1ms late.",
		},
		{
			name: "in a range", tick: "2026-11-20T05:00:00Z", row: outage, standing: Recorded,
			want: "The tick 2026-11-20T05:00:00Z of report was recorded as skipped_window, one of 11 from 2026-11-20T01:00:00Z to 2026-11-20T11:00:00Z: " +
				"no scheduler could fire it within a minute, and catch_up is none; by node b in term 8.",
		},
		{
			name: "between the ticks of a range", tick: "2026-11-20T05:30:00Z", row: outage, standing: NotDue,
			want: `The tick 2026-11-20T05:30:00Z of report is not due by the schedule "@hourly" in UTC; ` +
				"the nearest due ticks are 2026-11-20T05:00:00Z and 2026-11-20T06:00:00Z.",
		},
		{
			name: "by hand", tick: "2026-11-20T12:17:00Z", row: manual, jobState: "available", standing: Recorded,
			want: "The tick 2026-11-20T12:17:00Z of report was recorded as triggered: triggered by ada; job 5 is available; by hand, 1m1s late.",
		},
		{
			name: "by hand, centuries late", tick: "2026-11-20T12:17:00Z", row: &old, jobState: "available", standing: Recorded,
			want: "The tick 2026-11-20T12:17:00Z of report was recorded as triggered: triggered by ada; job 5 is available; by hand, over 292 years late.",
		},
		{
			name: "future", tick: "2026-11-20T15:00:00Z", standing: Future,
			want: "The tick 2026-11-20T15:00:00Z of report lies in the future: it is due in 2h0m0s.",
		},
		{
			name: "before it was first seen", tick: "2026-10-20T15:00:00Z", standing: Before,
			want: "The tick 2026-10-20T15:00:00Z of report was never due: the cron was first seen at 2026-11-01T00:00:00Z.",
		},
		{
			name: "removed", tick: "2026-11-20T12:00:00Z", removed: "2026-11-20T11:30:00Z", standing: Removed,
			want: "The tick 2026-11-20T12:00:00Z of report was never due: the cron was removed at 2026-11-20T11:30:00Z.",
		},
		{
			name: "removed, and asked for the future", tick: "2026-11-20T15:00:00Z", removed: "2026-11-20T11:30:00Z", standing: Removed,
			want: "The tick 2026-11-20T15:00:00Z of report was never due: the cron was removed at 2026-11-20T11:30:00Z.",
		},
		{
			name: "not recorded yet", tick: "2026-11-20T13:00:00Z", standing: Unsettled,
			want: "The tick 2026-11-20T13:00:00Z of report is due and not recorded yet; see forge leader status for who schedules.",
		},
		{
			name: "lost to retention", tick: "2026-11-10T13:00:00Z", standing: Unknown,
			want: "The tick 2026-11-10T13:00:00Z of report is not in the ledger: its row is past retention.cron_ticks, " +
				"or the cron had another schedule then (its definition is of 2026-11-02T00:00:00Z).",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			facts := Facts{Cron: hourly(t), Tick: utc(t, test.tick), Now: utc(t, "2026-11-20T13:00:00.5Z"), JobState: test.jobState, Told: test.told}
			if test.row != nil {
				row := *test.row
				if row.Tick.IsZero() {
					row.Tick = facts.Tick.UTC()
				}
				facts.Row = &row
			}
			if test.removed != "" {
				facts.Cron.RemovedAt = utc(t, test.removed)
			}
			e, err := Explain(facts)
			if err != nil || e.Standing != test.standing || e.Sentence != test.want {
				t.Errorf("%v\ngot  %s %s\nwant %s %s", err, e.Standing, e.Sentence, test.standing, test.want)
			}
			if strings.Count(e.Sentence, ". ") != 0 {
				t.Errorf("more than one sentence: %s", e.Sentence)
			}
		})
	}
}

func TestExplainReturnsNearestTicks(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{
		"@at 2027-01-01T00:00:00Z": "the nearest due tick is 2027-01-01T00:00:00Z.",
		"@at 2025-01-01T00:00:00Z": "the nearest due tick is 2025-01-01T00:00:00Z.",
		"@manual":                  "it is never due.",
		"0 0 29 2 *":               "the nearest due ticks are 2024-02-29T00:00:00Z and 2028-02-29T00:00:00Z.",
		"* * * * * *":              "the nearest due ticks are 2026-11-20T12:00:00Z and 2026-11-20T12:00:01Z.",
	} {
		cron := hourly(t)
		cron.Spec.Schedule = schedule
		e, err := Explain(Facts{Cron: cron, Tick: utc(t, "2026-11-20T12:00:00.5Z"), Now: utc(t, "2026-11-20T13:00:00Z")})
		if err != nil || e.Standing != NotDue || !strings.HasSuffix(e.Sentence, "; "+want) {
			t.Errorf("%s: %v %s %s", schedule, err, e.Standing, e.Sentence)
		}
	}
}
