package charts

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/leaderstore"
)

// roleLane shows the leaders of one role from left (old) to right (now). All positions are
// percentages, so the drawing fits any width.
type roleLane struct {
	Role  string
	Label string // for screen readers
	Bars  []bar
	Gaps  []gapMark
}

type bar struct {
	X, Width string
	Color    string
	// Text is empty if the bar is too short for it.
	Text    string
	Title   string
	Current bool
}

// gapMark is a time without a leader: a hatched area of true width, with a mark at its end
// that stays visible even if the gap lasts milliseconds.
type gapMark struct {
	X, Width, End string
	Title         string
	// Path is the address of the page about the change of leader.
	Path string
	// Brief reports a gap of less than a second, as in a hand-over, which is no cause for
	// alarm.
	Brief bool
}

// Swimlane shows the leaders of all roles over time.
type Swimlane struct {
	Extent

	Lanes []roleLane
	Axis  []AxisMark
}

// ChooseSpan returns the requested width, or the shortest one that contains the last few
// leader changes.
func ChooseSpan(name string, now time.Time, tenures []leaderstore.Tenure) time.Duration {
	if i := slices.IndexFunc(Spans, func(s time.Duration) bool { return window.Name(s) == name }); i >= 0 {
		return Spans[i]
	}
	newest := slices.Clone(tenures)
	slices.SortFunc(newest, func(a, b leaderstore.Tenure) int { return b.AcquiredAt.Compare(a.AcquiredAt) })
	if len(newest) == 0 {
		return Spans[0]
	}
	oldest := newest[min(len(newest), 6)-1].AcquiredAt
	for _, s := range Spans {
		if now.Sub(oldest) <= s {
			return s
		}
	}
	return Spans[len(Spans)-1]
}

// DrawSwimlane draws one lane per role. Of a window in the past it expects the tenures that
// overlap it, with the gaps before them.
func DrawSwimlane(now time.Time, w window.Window, leaders []leaderstore.Leader, tenures []leaderstore.Tenure, colors Palette) Swimlane {
	scale := scaleOf(w)
	end := scale.Start.Add(w.Width())
	if !w.Live && now.Before(end) {
		end = now
	}
	drawing := Swimlane{Extent: scale.extent(w.Zone), Axis: scale.axis(w)}
	for _, leader := range leaders {
		drawing.Lanes = append(drawing.Lanes, drawLane(leader, ofRole(tenures, leader.Role), scale, end, colors))
	}
	return drawing
}

// drawLane draws a lane. It expects tenures oldest first.
func drawLane(leader leaderstore.Leader, tenures []leaderstore.Tenure, sc Scale, end time.Time, colors Palette) roleLane {
	l := roleLane{Role: leader.Role}
	changes := 0
	for i, t := range tenures {
		until, open := endOf(tenures, i, leader, end)
		if !until.After(sc.Start) || !t.AcquiredAt.Add(-t.Gap).Before(end) {
			continue
		}
		if t.AcquiredAt.Before(end) {
			l.Bars = append(l.Bars, sc.bar(t, until, open, colors.Node(t.NodeID).Color))
		}
		if t.HasGap && t.AcquiredAt.After(sc.Start) {
			changes++
			l.Gaps = append(l.Gaps, sc.gap(t.AcquiredAt.Add(-t.Gap), t.AcquiredAt, "No leader for "+format.Precise(t.Gap), TermPath(t.Role, t.Term)))
		}
	}
	if last := len(tenures) - 1; last >= 0 && !leader.Leads() && tenures[last].Term == leader.Term {
		until, _ := endOf(tenures, last, leader, end)
		if until.Before(end) {
			l.Gaps = append(l.Gaps, sc.gap(until, end, "No leader now", TermPath(leader.Role, leader.Term+1)))
		}
	}
	l.Label = fmt.Sprintf("%s: %s in this time.", leader.Role, format.Plural(changes, "change of leader", "changes of leader"))
	return l
}

// endOf returns the end of a tenure in the drawing, and whether the tenure continues. If no
// end was recorded, the tenure ended where the gap before its successor began or, without a
// successor, when its lease expired.
func endOf(tenures []leaderstore.Tenure, i int, leader leaderstore.Leader, end time.Time) (time.Time, bool) {
	t := tenures[i]
	switch {
	case !t.EndedAt.IsZero():
		return t.EndedAt, false
	case i+1 < len(tenures):
		return tenures[i+1].AcquiredAt.Add(-tenures[i+1].Gap), false
	case leader.Leads() && leader.Term == t.Term:
		return end, true
	case leader.Term == t.Term && !leader.LeaseUntil.IsZero():
		return leader.LeaseUntil, false
	default:
		return end, false
	}
}

func ofRole(tenures []leaderstore.Tenure, role string) []leaderstore.Tenure {
	var own []leaderstore.Tenure
	for _, t := range tenures {
		if t.Role == role {
			own = append(own, t)
		}
	}
	slices.SortFunc(own, func(a, b leaderstore.Tenure) int { return a.AcquiredAt.Compare(b.AcquiredAt) })
	return own
}

// The minimum fractions of the drawing's width for a bar that names its node and term, and
// for one that names only its term.
const (
	roomForNode = 0.16
	roomForTerm = 0.05
)

func (s Scale) bar(t leaderstore.Tenure, until time.Time, open bool, color string) bar {
	b := bar{
		X: s.at(t.AcquiredAt), Width: s.Between(t.AcquiredAt, until), Color: color, Current: open,
		Title: fmt.Sprintf("%s, term %d, for %s", t.NodeID, t.Term, format.Coarse(until.Sub(t.AcquiredAt))),
	}
	switch room := s.fraction(until) - s.fraction(t.AcquiredAt); {
	case room >= roomForNode:
		b.Text = fmt.Sprintf("%s · %d", t.NodeID, t.Term)
	case room >= roomForTerm:
		b.Text = strconv.FormatInt(t.Term, 10)
	}
	return b
}

func (s Scale) gap(from, to time.Time, title, path string) gapMark {
	return gapMark{X: s.at(from), Width: s.Between(from, to), End: s.at(to), Title: title, Path: path, Brief: to.Sub(from) < time.Second}
}
