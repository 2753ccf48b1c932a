package charts

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/incident"
)

func whats(steps []IncidentStep) (all []string) {
	for _, step := range steps {
		all = append(all, step.What+" "+step.After)
	}
	return all
}

func TestDrawIncident(t *testing.T) {
	t.Parallel()
	i := dashboardtest.AnIncident()
	d := DrawIncident(&i, Palette{})
	if diff := cmp.Diff([]string{
		"node-2 was lost, and another node noticed it +0 ms",
		"node-1 started its election +3.0 ms",
		"node-1 became the leader +8.0 ms",
		"node-1 fired its first tick, of backup, late by 1.04 s +48 ms",
		"The process of node-2 was recorded as dead +1.01 s",
		"1 running job of node-2 rescued +1.21 s",
	}, whats(d.Steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(d.Bars) != 2 || d.Bars[0].Text != "node-2" || d.Bars[1].Text != "node-1" || d.Gap == nil || !d.Gap.Brief {
		t.Errorf("lane %+v, gap %+v", d.Bars, d.Gap)
	}
	if len(d.Ticks) != 1 || d.Ticks[0].Tone != "ok" || d.Height <= d.Ticks[0].Y {
		t.Errorf("ticks %+v in %d", d.Ticks, d.Height)
	}
	if d.Steps[1].Y == d.Steps[2].Y && d.Steps[1].X == d.Steps[2].X {
		t.Errorf("numbers overlap: %+v", d.Steps)
	}
}

func TestDrawPlannedAndOpenIncidents(t *testing.T) {
	t.Parallel()
	i := dashboardtest.AnIncident()
	i.Kind, i.Old.EndReason, i.Old.AskedBy, i.Old.AskedAt = incident.HandOver, "stepped_down", "ann", i.Old.EndedAt.Add(-40*time.Millisecond)
	i.FirstTick, i.Ticks, i.Jobs, i.Old.GoneAt = nil, nil, incident.Jobs{}, time.Time{}
	if diff := cmp.Diff([]string{
		"ann requested the hand-over −40 ms", "node-2 gave the role up +0 ms", "node-1 started its election +3.0 ms", "node-1 became the leader +8.0 ms",
	}, whats(DrawIncident(&i, Palette{}).Steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}

	gap := 60_008.0
	i.Kind, i.NodeID, i.ElectedAt, i.ElectionAt, i.DetectedAt, i.GapMS = incident.NoLeader, "", time.Time{}, time.Time{}, time.Time{}, &gap
	d := DrawIncident(&i, Palette{})
	if len(d.Bars) != 1 || d.Gap.Title != "No leader now" || d.Gap.Brief || len(d.Steps) != 2 {
		t.Errorf("without a leader: %+v, gap %+v", d.Bars, d.Gap)
	}
	if first := DrawIncident(&incident.Incident{Kind: incident.FirstTerm}, Palette{}); len(first.Steps) != 0 {
		t.Errorf("a first term: %+v", first)
	}
}

// The drawing has the worst ticks only, however many there are.
func TestDrawIncidentIsBounded(t *testing.T) {
	t.Parallel()
	i := dashboardtest.AnIncident()
	i.Ticks.Items = make([]cronstore.Tick, 100)
	for n := range i.Ticks.Items {
		i.Ticks.Items[n] = cronstore.Tick{Cron: "c", RecordedAt: i.ElectedAt.Add(time.Second), LatenessMS: 500}
	}
	if d := DrawIncident(&i, Palette{}); len(d.Ticks) != drawnDelays {
		t.Errorf("%d ticks are drawn", len(d.Ticks))
	}
}
