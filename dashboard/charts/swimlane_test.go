package charts

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/leaderstore"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m 01s", time.Hour + 2*time.Minute: "1h 02m", 50 * time.Hour: "2d 02h",
	} {
		if got := format.Coarse(d); got != want {
			t.Errorf("coarse(%v) = %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		800 * time.Microsecond: "0.8 ms", 41 * time.Millisecond: "41 ms", 1240 * time.Millisecond: "1.24 s", 90 * time.Second: "1m 30s", -time.Second: "0 ms",
	} {
		if got := format.Precise(d); got != want {
			t.Errorf("precise(%v) = %q, want %q", d, got, want)
		}
	}
	if got := format.Number(1234567); got != "1,234,567" {
		t.Errorf("number: %q", got)
	}
}

func drawOne(leader leaderstore.Leader, tenures ...leaderstore.Tenure) roleLane {
	leader.Role, leader.Now = "scheduler", dashboardtest.Now
	for i := range tenures {
		tenures[i].Role = "scheduler"
	}
	return DrawSwimlane(dashboardtest.Now, window.Last(15*time.Minute, dashboardtest.Now, time.UTC), []leaderstore.Leader{leader}, tenures, Palette{}).Lanes[0]
}

func TestSwimlane(t *testing.T) {
	t.Parallel()
	edge := dashboardtest.Now.Add(time.Second)
	at := func(minutes int) time.Time { return edge.Add(-time.Duration(minutes) * time.Minute) }
	leading := leaderstore.Leader{NodeID: "b", Term: 2, LeaseUntil: dashboardtest.Now.Add(time.Second)}

	l := drawOne(leading,
		leaderstore.Tenure{Term: 2, NodeID: "b", AcquiredAt: at(3), Gap: 3 * time.Minute, HasGap: true},
		leaderstore.Tenure{Term: 1, NodeID: "a", AcquiredAt: at(60), EndedAt: at(6)})
	if len(l.Bars) != 2 || len(l.Gaps) != 1 {
		t.Fatalf("lane %+v", l)
	}
	if b := l.Bars[0]; b.X != "0.000%" || b.Width != "60.000%" || b.Current || b.Color != (Palette{}).Node("a").Color || b.Text != "a · 1" {
		t.Errorf("a tenure that began before the drawing: %+v", b)
	}
	if b := l.Bars[1]; b.X != "80.000%" || b.Width != "20.000%" || !b.Current || b.Color != (Palette{}).Node("b").Color {
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
	edge := dashboardtest.Now.Add(time.Second)
	vacant := leaderstore.Leader{NodeID: "a", Term: 1, LeaseUntil: edge.Add(-3 * time.Minute)}
	l := drawOne(vacant, leaderstore.Tenure{Term: 1, NodeID: "a", AcquiredAt: edge.Add(-6 * time.Minute)})
	if len(l.Bars) != 1 || l.Bars[0].Width != "20.000%" || l.Bars[0].Current || len(l.Gaps) != 1 || l.Gaps[0].X != "80.000%" {
		t.Errorf("lane %+v", l)
	}
}

func TestChooseSpan(t *testing.T) {
	t.Parallel()
	tenures := []leaderstore.Tenure{{AcquiredAt: dashboardtest.Epoch.Add(-5 * time.Hour)}}
	for asked, want := range map[string]string{"": "6h", "1h": "1h", "nonsense": "6h"} {
		if got := ChooseSpan(asked, dashboardtest.Epoch, tenures); window.Name(got) != want {
			t.Errorf("span %q: %s, want %s", asked, got, want)
		}
	}
	if got := ChooseSpan("", dashboardtest.Epoch, nil); got != 5*time.Minute {
		t.Errorf("without history: %s", got)
	}
}
