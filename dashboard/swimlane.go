package dashboard

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// span is the time range of a swimlane, and its number of axis steps.
type span struct {
	Name  string
	Width time.Duration
	steps int
}

var spans = []span{
	{"5m", 5 * time.Minute, 5},
	{"15m", 15 * time.Minute, 3},
	{"1h", time.Hour, 4},
	{"6h", 6 * time.Hour, 3},
	{"24h", 24 * time.Hour, 4},
	{"7d", 7 * 24 * time.Hour, 7},
	{"30d", 30 * 24 * time.Hour, 5},
}

// spanLink is a link to the same page with another span.
type spanLink struct {
	Name, Path string
	Current    bool
}

func spanLinks(spans []span, current span, path func(name string) string) []spanLink {
	links := make([]spanLink, len(spans))
	for i, sp := range spans {
		links[i] = spanLink{sp.Name, path(sp.Name), sp == current}
	}
	return links
}

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
	// Brief reports a gap of less than a second, as in a hand-over, which is no cause for
	// alarm.
	Brief bool
}

type axisMark struct {
	X      string
	Text   string
	Anchor string
}

type swimlane struct {
	Lanes []roleLane
	Axis  []axisMark
}

// chooseSpan returns the requested span, or the shortest one that contains the last few
// leader changes.
func chooseSpan(name string, now time.Time, tenures []leaderstore.Tenure) span {
	if i := slices.IndexFunc(spans, func(s span) bool { return s.Name == name }); i >= 0 {
		return spans[i]
	}
	newest := slices.Clone(tenures)
	slices.SortFunc(newest, func(a, b leaderstore.Tenure) int { return b.AcquiredAt.Compare(a.AcquiredAt) })
	if len(newest) == 0 {
		return spans[0]
	}
	oldest := newest[min(len(newest), 6)-1].AcquiredAt
	for _, s := range spans {
		if now.Sub(oldest) <= s.Width {
			return s
		}
	}
	return spans[len(spans)-1]
}

// drawSwimlane draws one lane per role. The right edge moves in steps, so that consecutive
// drawings are usually identical.
func drawSwimlane(now time.Time, sp span, leaders []leaderstore.Leader, tenures []leaderstore.Tenure, colors palette) swimlane {
	scale := sp.until(now)
	drawing := swimlane{Axis: sp.axis()}
	for _, leader := range leaders {
		drawing.Lanes = append(drawing.Lanes, drawLane(leader, ofRole(tenures, leader.Role), scale, scale.start.Add(sp.Width), colors))
	}
	return drawing
}

// drawnSteps is the number of steps in which a drawing moves over its width.
const drawnSteps = 150

// until returns the scale of a drawing whose right edge is at most one step after now.
func (sp span) until(now time.Time) scale {
	step := sp.Width / drawnSteps
	return scale{start: now.Truncate(step).Add(step - sp.Width), width: sp.Width}
}

func (sp span) axis() []axisMark {
	var marks []axisMark
	for i := range sp.steps {
		back := sp.Width * time.Duration(sp.steps-i) / time.Duration(sp.steps)
		marks = append(marks, axisMark{X: percent(float64(i) / float64(sp.steps)), Text: "−" + short(back), Anchor: "start"})
	}
	return append(marks, axisMark{X: "100%", Text: "now", Anchor: "end"})
}

// drawLane draws a lane. It expects tenures oldest first.
func drawLane(leader leaderstore.Leader, tenures []leaderstore.Tenure, sc scale, end time.Time, colors palette) roleLane {
	l := roleLane{Role: leader.Role}
	changes := 0
	for i, t := range tenures {
		until, open := endOf(tenures, i, leader, end)
		if !until.After(sc.start) {
			continue
		}
		l.Bars = append(l.Bars, sc.bar(t, until, open, colors.of(t.NodeID)))
		if t.HasGap && t.AcquiredAt.After(sc.start) {
			changes++
			l.Gaps = append(l.Gaps, sc.gap(t.AcquiredAt.Add(-t.Gap), t.AcquiredAt, "No leader for "+precise(t.Gap)))
		}
	}
	if last := len(tenures) - 1; last >= 0 && !leader.Leads() {
		until, _ := endOf(tenures, last, leader, end)
		l.Gaps = append(l.Gaps, sc.gap(until, end, "No leader now"))
	}
	l.Label = fmt.Sprintf("%s: %s in this time.", leader.Role, plural(changes, "change of leader", "changes of leader"))
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
	case leader.Leads():
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

// scale converts instants to percentages of the drawing's width.
type scale struct {
	start time.Time
	width time.Duration
}

func (s scale) fraction(t time.Time) float64 {
	return min(max(float64(t.Sub(s.start))/float64(s.width), 0), 1)
}

func (s scale) at(t time.Time) string { return percent(s.fraction(t)) }

func (s scale) between(a, b time.Time) string {
	return percent(max(s.fraction(b)-s.fraction(a), 0))
}

// The minimum fractions of the drawing's width for a bar that names its node and term, and
// for one that names only its term.
const (
	roomForNode = 0.16
	roomForTerm = 0.05
)

func (s scale) bar(t leaderstore.Tenure, until time.Time, open bool, color string) bar {
	b := bar{
		X: s.at(t.AcquiredAt), Width: s.between(t.AcquiredAt, until), Color: color, Current: open,
		Title: fmt.Sprintf("%s, term %d, for %s", t.NodeID, t.Term, coarse(until.Sub(t.AcquiredAt))),
	}
	switch room := s.fraction(until) - s.fraction(t.AcquiredAt); {
	case room >= roomForNode:
		b.Text = fmt.Sprintf("%s · %d", t.NodeID, t.Term)
	case room >= roomForTerm:
		b.Text = strconv.FormatInt(t.Term, 10)
	}
	return b
}

func (s scale) gap(from, to time.Time, title string) gapMark {
	return gapMark{X: s.at(from), Width: s.between(from, to), End: s.at(to), Title: title, Brief: to.Sub(from) < time.Second}
}

func percent(fraction float64) string { return fmt.Sprintf("%.3f%%", 100*fraction) }

// short formats a step of the axis.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
}

// palette assigns each node the same colour in all parts of a page.
type palette map[string]string

const paletteSize = 8

// newPalette assigns colours in the alphabetical order of the nodes. It repeats them if
// there are more nodes than colours.
func newPalette(nodeIDs []string) palette {
	ids := slices.Compact(slices.Sorted(slices.Values(nodeIDs)))
	colors := palette{}
	for i, id := range ids {
		colors[id] = fmt.Sprintf("n%d", i%paletteSize)
	}
	return colors
}

func (p palette) of(nodeID string) string {
	if color, ok := p[nodeID]; ok {
		return color
	}
	return "n-none"
}
