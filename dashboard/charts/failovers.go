package charts

import (
	"fmt"
	"math"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Failovers holds the leader changes in a time span: the gap before each, on a logarithmic
// scale.
type Failovers struct {
	Extent

	Points []failoverPoint
	Rows   []failoverRow
	Grid   []gridLine
	Axis   []AxisMark
	// Label summarizes the chart for screen readers.
	Label string
}

// failoverPoint marks when a leader began. Its height is the length of the gap before.
type failoverPoint struct {
	X, Y  string
	Tone  string
	Title string
	Path  string
}

type gridLine struct{ Y, Text string }

// failoverRow is the same as a table row.
type failoverRow struct {
	ID       string
	At       format.Stamp
	Role     string
	From, To Node
	Term     int64
	Reason   string
	Tone     string
	Gap      string
	// Path is the address of the page about the change of leader.
	Path string
}

// The scale reaches from a tenth of a millisecond to a hundred seconds.
const (
	shortestGap = 100 * time.Microsecond
	decades     = 6
	listedGaps  = 100
)

var gridSteps = []struct {
	gap  time.Duration
	text string
}{{time.Millisecond, "1 ms"}, {10 * time.Millisecond, "10 ms"}, {100 * time.Millisecond, "100 ms"}, {time.Second, "1 s"}, {10 * time.Second, "10 s"}}

// height returns the position of a gap on the scale; 0 % is the upper edge.
func height(gap time.Duration) string {
	steps := math.Log10(float64(max(gap, shortestGap)) / float64(shortestGap))
	return format.Percent(1 - min(steps/decades, 1))
}

// DrawFailovers draws the chart. It expects tenures newest first.
func DrawFailovers(now time.Time, w window.Window, tenures []leaderstore.Tenure, colors Palette) Failovers {
	scale := scaleOf(w)
	f := Failovers{Extent: scale.extent(w.Zone), Axis: scale.axis(w)}
	for _, step := range gridSteps {
		f.Grid = append(f.Grid, gridLine{height(step.gap), step.text})
	}
	var longest time.Duration
	for i, t := range tenures {
		if !t.HasGap || t.AcquiredAt.Before(scale.Start) || !t.AcquiredAt.Before(scale.Start.Add(scale.Width)) {
			continue
		}
		longest = max(longest, t.Gap)
		row := newFailoverRow(now, t, before(tenures[i+1:], t.Role), colors)
		f.Points = append(f.Points, failoverPoint{
			X: scale.at(t.AcquiredAt), Y: height(t.Gap), Tone: row.Tone, Path: row.Path,
			Title: fmt.Sprintf("%s: %s without a leader before term %d of %s (%s)", t.Role, row.Gap, t.Term, t.NodeID, row.Reason),
		})
		if len(f.Rows) < listedGaps {
			f.Rows = append(f.Rows, row)
		}
	}
	f.Label = format.Plural(len(f.Points), "change of leader", "changes of leader") + " in this time, the longest gap " + format.Precise(longest)
	return f
}

// before returns the role's last tenure among older ones.
func before(older []leaderstore.Tenure, role string) leaderstore.Tenure {
	for _, t := range older {
		if t.Role == role {
			return t
		}
	}
	return leaderstore.Tenure{}
}

func newFailoverRow(now time.Time, t, old leaderstore.Tenure, colors Palette) failoverRow {
	row := failoverRow{
		ID: fmt.Sprintf("f-%s-%d", t.Role, t.Term), At: format.NewStamp(format.ModeAgo, now, t.AcquiredAt), Role: t.Role, Term: t.Term,
		From: colors.Node(old.NodeID), To: colors.Node(t.NodeID),
		Gap: format.Precise(t.Gap), Reason: "not recorded", Tone: "idle", Path: TermPath(t.Role, t.Term),
	}
	if reason, ok := Reasons[old.EndReason]; ok {
		row.Reason, row.Tone = reason.Words, reason.Tone
	}
	if old.Drill {
		row.Reason += " (drill)"
	}
	return row
}

// Reasons describe the end of a tenure and give its tone: normal, abnormal, or unexplained.
var Reasons = map[string]struct{ Words, Tone string }{
	"resigned":      {"resigned", "idle"},
	"stepped_down":  {"stepped down", "idle"},
	"transferred":   {"transferred", "idle"},
	"crashed":       {"crashed", "bad"},
	"lease_expired": {"lease expired", "warn"},
	"evicted":       {"evicted", "warn"},
	"database_lost": {"database lost", "warn"},
	"unknown":       {"unknown", "idle"},
}
