package charts

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/cronexpr"
	"github.com/forge-scheduler/forge/leaderstore"
)

// An axis has round instants in the window's zone, the first of a day with its date.
func TestAxisHasInstants(t *testing.T) {
	t.Parallel()
	berlin, err := cronexpr.LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	havana, err := cronexpr.LoadZone("America/Havana")
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		instant, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return instant
	}
	for _, test := range []struct {
		from, to string
		zone     *time.Location
		want     string
	}{
		{"2026-11-20T02:00:00Z", "2026-11-20T03:00:00Z", time.UTC, "Nov 20, 02:00 | 02:10 | 02:20 | 02:30 | 02:40 | 02:50"},
		{"2026-11-20T02:03:00Z", "2026-11-20T03:03:00Z", berlin, "Nov 20, 03:10 | 03:20 | 03:30 | 03:40 | 03:50"},
		{"2026-11-20T18:00:00Z", "2026-11-21T06:00:00Z", time.UTC, "Nov 20, 18:00 | 20:00 | 22:00 | Nov 21, 00:00 | 02:00 | 04:00"},
		{"2026-11-20T02:00:00Z", "2026-11-20T02:00:30Z", time.UTC, "Nov 20, 02:00:00 | 02:00:05 | 02:00:10 | 02:00:15 | 02:00:20 | 02:00:25"},
		{"2026-10-23T22:00:00Z", "2026-10-29T23:00:00Z", berlin, "Oct 24 | Oct 25 | Oct 26 | Oct 27 | Oct 28 | Oct 29"}, // the clocks change
		{"2026-03-06T05:00:00Z", "2026-03-12T04:00:00Z", havana, "Mar 6 | Mar 7 | Mar 8 | Mar 9 | Mar 10 | Mar 11"},     // and skip midnight
		{"2016-11-20T00:00:00Z", "2026-11-20T00:00:00Z", time.UTC, "Nov 20 | "},
	} {
		w := window.Window{From: at(test.from), To: at(test.to), Zone: test.zone}
		var texts []string
		marks := scaleOf(w).axis(w)
		for _, mark := range marks {
			texts = append(texts, mark.Text)
		}
		got := strings.Join(texts, " | ")
		if strings.HasSuffix(test.want, " | ") { // only the beginning is given
			got = got[:min(len(got), len(test.want))]
		}
		if got != test.want || len(marks) > mostMarks+1 {
			t.Errorf("%s to %s: %s, want %s", test.from, test.to, got, test.want)
		}
	}
	w := window.Last(time.Hour, dashboardtest.Epoch.Add(7*time.Minute), time.UTC)
	marks := scaleOf(w).axis(w)
	for i, mark := range marks { // the second is close to the date, the last but one to "now"
		if want := i == 1 || i == len(marks)-2; mark.Tight != want || strings.Contains(mark.Class(), "tight-mark") != want {
			t.Errorf("%+v is tight: %t", mark, mark.Tight)
		}
	}
	if marks[len(marks)-1].Text != "now" {
		t.Errorf("the axis of a window that ends now ends with %+v", marks[len(marks)-1])
	}
}

// A window in the past shows the terms and gaps that it cuts, and nothing after it.
func TestSwimlaneOfPast(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return dashboardtest.Epoch.Add(time.Duration(minute-600) * time.Minute) }
	leader := leaderstore.Leader{Role: "scheduler", NodeID: "c", Term: 9, Now: dashboardtest.Epoch, LeaseUntil: dashboardtest.Epoch.Add(time.Second)}
	w := window.Window{From: at(0), To: at(60), Zone: time.UTC}
	l := DrawSwimlane(dashboardtest.Epoch, w, []leaderstore.Leader{leader}, []leaderstore.Tenure{
		{Role: "scheduler", Term: 3, NodeID: "c", AcquiredAt: at(90), Gap: 45 * time.Minute, HasGap: true, EndedAt: at(100)},
		{Role: "scheduler", Term: 2, NodeID: "b", AcquiredAt: at(15), EndedAt: at(45), Gap: 5 * time.Minute, HasGap: true},
		{Role: "scheduler", Term: 1, NodeID: "a", AcquiredAt: at(-60), EndedAt: at(10)},
	}, Palette{}).Lanes[0]
	if len(l.Bars) != 2 || l.Bars[0].X != "0.000%" || l.Bars[0].Width != "16.667%" || l.Bars[1].X != "25.000%" || l.Bars[1].Width != "50.000%" {
		t.Errorf("bars %+v", l.Bars)
	}
	if len(l.Gaps) != 2 || l.Gaps[1].X != "75.000%" || l.Gaps[1].Width != "25.000%" || l.Gaps[0].Width != "8.333%" {
		t.Errorf("gaps %+v", l.Gaps)
	}
}
