package dashboard

import (
	"fmt"
	"math"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// failovers holds the leader changes in a time span: the gap before each, on a logarithmic
// scale.
type failovers struct {
	Points []failoverPoint
	Rows   []failoverRow
	Grid   []gridLine
	Axis   []axisMark
	// Label summarizes the chart for screen readers.
	Label string
}

// failoverPoint marks when a leader began. Its height is the length of the gap before.
type failoverPoint struct {
	X, Y  string
	Tone  string
	Title string
}

type gridLine struct{ Y, Text string }

// failoverRow is the same as a table row.
type failoverRow struct {
	ID       string
	At       stamp
	Role     string
	From, To nodeName
	Term     int64
	Reason   string
	Tone     string
	Gap      string
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
	return percent(1 - min(steps/decades, 1))
}

// drawFailovers draws the chart. It expects tenures newest first.
func drawFailovers(now time.Time, sp span, tenures []leaderstore.Tenure, colors palette) failovers {
	scale := sp.until(now)
	f := failovers{Axis: sp.axis()}
	for _, step := range gridSteps {
		f.Grid = append(f.Grid, gridLine{height(step.gap), step.text})
	}
	var longest time.Duration
	for i, t := range tenures {
		if !t.HasGap || t.AcquiredAt.Before(scale.start) {
			continue
		}
		longest = max(longest, t.Gap)
		row := newFailoverRow(now, t, before(tenures[i+1:], t.Role), colors)
		f.Points = append(f.Points, failoverPoint{
			X: scale.at(t.AcquiredAt), Y: height(t.Gap), Tone: row.Tone,
			Title: fmt.Sprintf("%s: %s without a leader before term %d of %s (%s)", t.Role, row.Gap, t.Term, t.NodeID, row.Reason),
		})
		if len(f.Rows) < listedGaps {
			f.Rows = append(f.Rows, row)
		}
	}
	f.Label = plural(len(f.Points), "change of leader", "changes of leader") + " in this time, the longest gap " + precise(longest)
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

func newFailoverRow(now time.Time, t, old leaderstore.Tenure, colors palette) failoverRow {
	row := failoverRow{
		ID: fmt.Sprintf("f-%s-%d", t.Role, t.Term), At: newStamp(modeAgo, now, t.AcquiredAt), Role: t.Role, Term: t.Term,
		From: nodeName{old.NodeID, colors.of(old.NodeID)}, To: nodeName{t.NodeID, colors.of(t.NodeID)},
		Gap: precise(t.Gap), Reason: "not recorded", Tone: "idle",
	}
	if reason, ok := reasons[old.EndReason]; ok {
		row.Reason, row.Tone = reason.words, reason.tone
	}
	if old.Drill {
		row.Reason += " (drill)"
	}
	return row
}
