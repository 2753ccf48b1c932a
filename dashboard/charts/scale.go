package charts

import (
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/window"
)

// Spans are the widths of the swimlane on the overview, shortest first.
var Spans = []time.Duration{
	5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// SpanLink is a link to the same page with another span.
type SpanLink struct {
	Name, Path string
	Current    bool
}

// SpanLinks returns links to a page with other spans.
func SpanLinks(spans []time.Duration, current time.Duration, path func(name string) string) []SpanLink {
	links := make([]SpanLink, len(spans))
	for i, span := range spans {
		links[i] = SpanLink{window.Name(span), path(window.Name(span)), span == current}
	}
	return links
}

// Extent holds the first and the last instant of a drawing, in milliseconds: a script
// converts places in the drawing to instants, and shows them in TimeZone.
type Extent struct {
	From, To int64
	TimeZone string
}

func (s Scale) extent(zone *time.Location) Extent {
	return Extent{s.Start.UnixMilli(), s.Start.Add(s.Width).UnixMilli(), zone.String()}
}

// AxisMark is a text at a position of an axis. A minor one is left out on narrow screens, and a
// tight one, which is close to the text beside it, in narrow drawings.
type AxisMark struct {
	X      string
	Text   string
	Anchor string
	Minor  bool
	Tight  bool
}

// Class returns the classes of the text.
func (m AxisMark) Class() string {
	var classes []string
	if m.Minor {
		classes = append(classes, "minor-mark")
	}
	if m.Tight {
		classes = append(classes, "tight-mark")
	}
	return strings.Join(classes, " ")
}

// drawnSteps is the number of steps in which a drawing moves over its width.
const drawnSteps = 150

// scaleOf returns the scale of a drawing. That of a window that moves has its right edge at
// most one step after now, so that consecutive drawings are usually identical.
func scaleOf(w window.Window) Scale {
	if !w.Live {
		return Scale{Start: w.From, Width: w.Width()}
	}
	step := max(w.Width()/drawnSteps, 1)
	return Scale{Start: w.To.Truncate(step).Add(step - w.Width()), Width: w.Width()}
}

// mostMarks bounds the marks of an axis.
const mostMarks = 8

// axisSteps are the distances between the marks of an axis.
var axisSteps = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 2 * 24 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour,
}

const (
	// lastMark is the place up to which the text of a mark fits. After lastBeforeNow it is
	// tight if the drawing ends now.
	lastMark      = .93
	lastBeforeNow = .87
	// datedMark is the width of a mark with a date in a narrow drawing.
	datedMark = .19
)

// axis marks round instants in the window's zone. A mark has its date if it is the first one
// or the first one of its day.
func (s Scale) axis(w window.Window) (marks []AxisMark) {
	step := axisSteps[len(axisSteps)-1]
	for s.Width/step > mostMarks {
		step *= 2
	}
	for i := len(axisSteps) - 1; i >= 0 && s.Width/axisSteps[i] <= mostMarks; i-- {
		step = axisSteps[i]
	}
	end := s.Start.Add(s.Width)
	date, free := "", 0.
	for t := roundUpTo(s.Start.In(w.Zone), step); t.Before(end); t = next(t, step) {
		at := s.fraction(t)
		if at > lastMark {
			continue
		}
		mark := AxisMark{X: s.at(t), Text: markText(t, step), Anchor: "start", Minor: len(marks)%2 == 1, Tight: at < free || w.Live && at > lastBeforeNow}
		if day := t.Format("Jan 2"); day != date && step < 24*time.Hour {
			mark.Text, date, free = day+", "+mark.Text, day, at+datedMark
		}
		marks = append(marks, mark)
	}
	if w.Live {
		marks = append(marks, AxisMark{X: "100%", Text: "now", Anchor: "end"})
	}
	return marks
}

func markText(t time.Time, step time.Duration) string {
	switch {
	case step >= 24*time.Hour:
		return t.Format("Jan 2")
	case step >= time.Minute:
		return t.Format("15:04")
	default:
		return t.Format(time.TimeOnly)
	}
}

// roundUpTo returns the first instant from t on that is a multiple of step after midnight.
func roundUpTo(t time.Time, step time.Duration) time.Time {
	day := midnight(t, 0)
	if step >= 24*time.Hour {
		if day.Before(t) {
			day = midnight(t, 1)
		}
		return day
	}
	rounded := day.Add(t.Sub(day).Truncate(step))
	if rounded.Before(t) {
		rounded = rounded.Add(step)
	}
	return rounded
}

// midnight returns the beginning of the day that is a number of days after the day of t.
func midnight(t time.Time, days int) time.Time {
	noon := time.Date(t.Year(), t.Month(), t.Day()+days, 12, 0, 0, 0, t.Location())
	begin := time.Date(noon.Year(), noon.Month(), noon.Day(), 0, 0, 0, 0, t.Location())
	if begin.Day() != noon.Day() { // the clocks skip midnight
		_, begin = begin.ZoneBounds()
	}
	return begin
}

// next returns the mark after one: days have different lengths where clocks change.
func next(t time.Time, step time.Duration) time.Time {
	if step >= 24*time.Hour {
		return midnight(t, int(step/(24*time.Hour)))
	}
	return roundUpTo(t.Add(step), step)
}

// Scale converts instants to percentages of the drawing's width.
type Scale struct {
	Start time.Time
	Width time.Duration
}

func (s Scale) fraction(t time.Time) float64 {
	return min(max(float64(t.Sub(s.Start))/float64(s.Width), 0), 1)
}

func (s Scale) at(t time.Time) string { return format.Percent(s.fraction(t)) }

// Between returns the width between two instants.
func (s Scale) Between(a, b time.Time) string {
	return format.Percent(max(s.fraction(b)-s.fraction(a), 0))
}
