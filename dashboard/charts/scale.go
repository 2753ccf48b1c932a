package charts

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
)

// Span is the time range of a swimlane, and its number of axis steps.
type Span struct {
	Name  string
	Width time.Duration
	steps int
}

// Spans are the time ranges of swimlanes, shortest first.
var Spans = []Span{
	{"5m", 5 * time.Minute, 5},
	{"15m", 15 * time.Minute, 3},
	{"1h", time.Hour, 4},
	{"6h", 6 * time.Hour, 3},
	{"24h", 24 * time.Hour, 4},
	{"7d", 7 * 24 * time.Hour, 7},
	{"30d", 30 * 24 * time.Hour, 5},
}

// SpanLink is a link to the same page with another span.
type SpanLink struct {
	Name, Path string
	Current    bool
}

// SpanLinks returns links to a page with other spans.
func SpanLinks(spans []Span, current Span, path func(name string) string) []SpanLink {
	links := make([]SpanLink, len(spans))
	for i, sp := range spans {
		links[i] = SpanLink{sp.Name, path(sp.Name), sp == current}
	}
	return links
}

// AxisMark is a text at a position of an axis.
type AxisMark struct {
	X      string
	Text   string
	Anchor string
}

// drawnSteps is the number of steps in which a drawing moves over its width.
const drawnSteps = 150

// until returns the scale of a drawing whose right edge is at most one step after now.
func (sp Span) until(now time.Time) Scale {
	step := sp.Width / drawnSteps
	return Scale{Start: now.Truncate(step).Add(step - sp.Width), Width: sp.Width}
}

func (sp Span) axis() []AxisMark {
	var marks []AxisMark
	for i := range sp.steps {
		back := sp.Width * time.Duration(sp.steps-i) / time.Duration(sp.steps)
		marks = append(marks, AxisMark{X: format.Percent(float64(i) / float64(sp.steps)), Text: "−" + short(back), Anchor: "start"})
	}
	return append(marks, AxisMark{X: "100%", Text: "now", Anchor: "end"})
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
