package charts

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/incident"
)

// IncidentDrawing shows a change of leader over the time since the old leader's end, on a
// logarithmic scale: an election takes milliseconds, a rescue seconds.
type IncidentDrawing struct {
	Bars   []bar
	Gap    *gapMark
	Steps  []IncidentStep
	Ticks  []delayBar
	Axis   []AxisMark
	Height int
	Label  string
}

// TermPath returns the address of the page about the change of leader with which a term began.
func TermPath(role string, term int64) string {
	return "/leaders/" + url.PathEscape(role) + "/terms/" + strconv.FormatInt(term, 10)
}

// IncidentStep is one thing that happened. Number is its number in the drawing.
type IncidentStep struct {
	Number int
	What   string
	At     time.Time
	Moment format.Moment
	// After is its distance from the old leader's end.
	After string
	X     string
	Y     int
	TextY int
}

// delayBar is the delay of a tick, from when it was due to when it was recorded.
type delayBar struct {
	X, Width, Tone string
	Y              int
	Title          string
}

const (
	// beforeEnd is the fraction of the width for the time before the end, which reaches back
	// longestBefore.
	beforeEnd     = 0.14
	longestBefore = 5 * time.Minute
	laneHeight    = 26
	stepHeight    = 22
	delayHeight   = 8
	drawnDelays   = 12
	// closeSteps is the fraction of the width below which two numbers would overlap.
	closeSteps = 0.03
)

// logScale places instants by the logarithm of their distance from an origin.
type logScale struct {
	origin  time.Time
	longest time.Duration
}

func logOf(d time.Duration) float64 { return math.Log10(1 + float64(d)/float64(time.Millisecond)) }

func (s logScale) fraction(t time.Time) float64 {
	if d := t.Sub(s.origin); d >= 0 {
		return beforeEnd + (1-beforeEnd)*min(logOf(d)/logOf(s.longest), 1)
	}
	return beforeEnd * (1 - min(logOf(s.origin.Sub(t))/logOf(longestBefore), 1))
}

func (s logScale) at(t time.Time) string { return format.Percent(s.fraction(t)) }

func (s logScale) between(a, b time.Time) string {
	return format.Percent(max(s.fraction(b)-s.fraction(a), 0))
}

// logSteps are the marks of a logarithmic axis.
var logSteps = []struct {
	at   time.Duration
	text string
}{
	{10 * time.Millisecond, "10 ms"},
	{100 * time.Millisecond, "100 ms"},
	{time.Second, "1 s"},
	{10 * time.Second, "10 s"},
	{2 * time.Minute, "2 m"},
	{20 * time.Minute, "20 m"},
	{3 * time.Hour, "3 h"},
	{24 * time.Hour, "1 d"},
}

func (s logScale) axis() []AxisMark {
	marks := []AxisMark{{X: format.Percent(beforeEnd), Text: "end", Anchor: "middle"}}
	for _, step := range logSteps {
		if x := s.fraction(s.origin.Add(step.at)); step.at < s.longest && x < 0.97 {
			marks = append(marks, AxisMark{X: format.Percent(x), Text: "+" + step.text, Anchor: "middle", Minor: len(marks)%2 == 1})
		}
	}
	return marks
}

// DrawIncident draws a change of leader. The first term of a role has no drawing.
func DrawIncident(i *incident.Incident, colors Palette) IncidentDrawing {
	if i.Old == nil {
		return IncidentDrawing{}
	}
	d := IncidentDrawing{Steps: incidentSteps(i)}
	scale := logScale{origin: i.Old.EndedAt, longest: time.Second}
	reach := func(t time.Time) { scale.longest = max(scale.longest, t.Sub(scale.origin)*3/2) }
	for _, step := range d.Steps {
		reach(step.At)
	}
	if i.Kind == incident.NoLeader {
		reach(i.Now)
	}
	shown := shownDelays(i)
	for _, tick := range shown {
		reach(tick.RecordedAt)
	}
	d.drawLane(i, scale, colors)
	below := d.placeSteps(scale)
	for n, tick := range shown {
		due := tick.RecordedAt.Add(-time.Duration(tick.LatenessMS * float64(time.Millisecond)))
		d.Ticks = append(d.Ticks, delayBar{
			X: scale.at(due), Width: scale.between(due, tick.RecordedAt), Tone: MarkOf(tick.Verdict).Tone, Y: below + 4 + n*delayHeight,
			Title: fmt.Sprintf("%s, due %s, %s, late by %s", tick.Cron, format.NewMoment(due).Text, MarkOf(tick.Verdict).Words, format.Millis(tick.LatenessMS)),
		})
	}
	d.Height = below + 4 + len(shown)*delayHeight
	d.Axis = scale.axis()
	d.Label = i.Summary
	return d
}

// shownDelays returns the ticks that the drawing has: the worst ones.
func shownDelays(i *incident.Incident) []cronstore.Tick {
	if i.Ticks == nil {
		return nil
	}
	return i.Ticks.Items[:min(len(i.Ticks.Items), drawnDelays)]
}

// drawLane draws who led.
func (d *IncidentDrawing) drawLane(i *incident.Incident, s logScale, colors Palette) {
	d.Bars = append(d.Bars, bar{
		X: "0%", Width: format.Percent(beforeEnd), Color: colors.Node(i.Old.NodeID).Color, Text: i.Old.NodeID,
		Title: fmt.Sprintf("%s, term %d, until %s", i.Old.NodeID, i.Old.Term, format.NewMoment(i.Old.EndedAt).Text),
	})
	end, title := i.ElectedAt, "No leader for "+format.Precise(i.Gap())
	if end.IsZero() {
		end, title = i.Now, "No leader now"
	}
	d.Gap = &gapMark{X: format.Percent(beforeEnd), Width: s.between(i.Old.EndedAt, end), End: s.at(end), Title: title, Brief: i.Gap() < time.Second}
	if !i.ElectedAt.IsZero() {
		d.Bars = append(d.Bars, bar{
			X: s.at(end), Width: format.Percent(1 - s.fraction(end)), Color: colors.Node(i.NodeID).Color, Current: i.EndedAt.IsZero(),
			Text: i.NodeID, Title: fmt.Sprintf("%s, term %d, from %s", i.NodeID, i.Term, format.NewMoment(i.ElectedAt).Text),
		})
	}
}

// placeSteps places the numbers below the lane, in as many rows as keep them from overlapping,
// and returns the lower edge.
func (d *IncidentDrawing) placeSteps(s logScale) int {
	var rows []float64 // the last position in each row
	for n := range d.Steps {
		step := &d.Steps[n]
		x := s.fraction(step.At)
		row := slices.IndexFunc(rows, func(last float64) bool { return x-last >= closeSteps })
		if row < 0 {
			row = len(rows)
			rows = append(rows, 0)
		}
		rows[row] = x
		step.X, step.Y = format.Percent(min(max(x, 0.012), 0.985)), laneHeight+stepHeight*row+stepHeight/2+2
		step.TextY = step.Y + 4
	}
	return laneHeight + stepHeight*len(rows) + 2
}

// incidentSteps returns what happened, in the order of time.
func incidentSteps(i *incident.Incident) []IncidentStep {
	old := i.Old
	var steps []IncidentStep
	add := func(at time.Time, words string, args ...any) {
		if !at.IsZero() {
			steps = append(steps, IncidentStep{What: fmt.Sprintf(words, args...), At: at, Moment: format.NewMoment(at), After: distance(old.EndedAt, at)})
		}
	}
	add(old.AskedAt, "%s requested the hand-over", old.AskedBy)
	switch noticed := i.DetectedAt.Sub(old.EndedAt); {
	case i.Kind == incident.HandOver:
		add(old.EndedAt, "%s gave the role up", old.NodeID)
	case !i.DetectedAt.IsZero() && noticed < time.Millisecond:
		add(old.EndedAt, "%s was lost, and another node noticed it", old.NodeID)
	default:
		add(old.EndedAt, "%s was last known to lead", old.NodeID)
		add(i.DetectedAt, "Another node noticed the end of term %d", old.Term)
	}
	add(i.ElectionAt, "%s started its election", i.NodeID)
	add(i.ElectedAt, "%s became the leader", i.NodeID)
	if i.FirstTick != nil {
		add(i.FirstTick.RecordedAt, "%s fired its first tick, of %s, late by %s", i.NodeID, i.FirstTick.Cron, format.Millis(i.FirstTick.LatenessMS))
	}
	add(old.GoneAt, "The process of %s was recorded as %s", old.NodeID, old.Process)
	if i.Jobs.Rescued > 0 {
		add(i.Jobs.RescuedAt, "%s", format.Plural(i.Jobs.Rescued, "running job", "running jobs")+" of "+old.NodeID+" rescued")
	}
	slices.SortStableFunc(steps, func(a, b IncidentStep) int { return a.At.Compare(b.At) })
	for n := range steps {
		steps[n].Number = n + 1
	}
	return steps
}

// distance formats an instant relative to another one.
func distance(from, at time.Time) string {
	if at.Before(from) {
		return "−" + format.Precise(from.Sub(at))
	}
	return "+" + format.Precise(at.Sub(from))
}
