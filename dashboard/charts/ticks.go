package charts

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// TickMark is the appearance of a verdict: a tone for the colour, a shape that
// distinguishes it without colour, and a description.
type TickMark struct {
	Tone  string // ok, warn, bad, live, wait or idle
	Shape string // full, tall, low, notched, split or hollow
	Words string
}

// markOfRun returns the mark of a tick in a strip. It follows from the verdict unless the
// state of the job adds to it. The state is unknown if the job is past its retention.
func markOfRun(t cronstore.Tick, state string) TickMark {
	m := MarkOf(t.Verdict)
	switch state {
	case "discarded":
		return TickMark{"bad", "notched", m.Words + " (run failed)"}
	case "cancelled":
		return TickMark{"idle", "notched", m.Words + " (run cancelled)"}
	case "retryable":
		return TickMark{"warn", "notched", m.Words + " (run to be retried)"}
	case "running", "available", "scheduled", "pending":
		m.Tone = "live"
		m.Words += " (run not over)"
	}
	return m
}

// MarkOf returns the mark of a verdict.
func MarkOf(v cronstore.Verdict) TickMark {
	switch v {
	case cronstore.Fired:
		return TickMark{"ok", "full", "fired"}
	case cronstore.Triggered:
		return TickMark{"ok", "full", "triggered by hand"}
	case cronstore.Backfilled:
		return TickMark{"ok", "full", "backfilled"}
	case cronstore.CaughtUp:
		return TickMark{"warn", "tall", "caught up"}
	case cronstore.Queued:
		return TickMark{"wait", "hollow", "queued"}
	case cronstore.SkippedOverlap:
		return TickMark{"idle", "low", "skipped: blocked by an earlier run"}
	case cronstore.SkippedWindow:
		return TickMark{"idle", "low", "skipped: too late"}
	case cronstore.SkippedLimit:
		return TickMark{"idle", "low", "skipped: beyond the limit"}
	case cronstore.SkippedDST:
		return TickMark{"idle", "low", "skipped: clock change"}
	case cronstore.SkippedPaused:
		return TickMark{"idle", "low", "skipped: paused"}
	case cronstore.SkippedExcluded:
		return TickMark{"idle", "low", "skipped: excluded"}
	case cronstore.Replaced:
		return TickMark{"idle", "low", "replaced by a later run"}
	case cronstore.Failed:
		return TickMark{"bad", "split", "failed to fire"}
	default:
		return TickMark{"idle", "low", string(v)}
	}
}

// tickKey holds every look of a tick in a strip. A run that is not over keeps the shape of its
// verdict.
var tickKey = []TickMark{
	{"ok", "full", "fired"},
	{"live", "full", "run not over"},
	{"warn", "notched", "run to be retried"},
	{"bad", "notched", "run failed"},
	{"idle", "notched", "run cancelled"},
	{"warn", "tall", "caught up"},
	{"wait", "hollow", "queued"},
	{"idle", "low", "skipped"},
	{"bad", "split", "failed to fire"},
}

// KeyEntry is an entry of the key of tick strips: a strip of one tick, and what it means.
type KeyEntry struct {
	TickStrip

	Words string
}

// TickKey returns the key of tick strips.
func TickKey() []KeyEntry {
	entries := make([]KeyEntry, len(tickKey))
	for i, m := range tickKey {
		entries[i] = KeyEntry{TickStrip{Width: cellWidth, Height: cellHeight, Cells: []cell{{Tone: m.Tone + " " + m.Shape, Rects: shape(m.Shape, 0)}}}, m.Words}
	}
	return entries
}

// The dimensions of a strip, in CSS pixels.
const (
	cellWidth  = 5
	cellStep   = 7
	cellHeight = 18
)

// TickStrip shows the newest ticks of a cron, the newest at the right.
type TickStrip struct {
	Width  int
	Height int
	Label  string
	Cells  []cell
}

// cell is one tick: one rectangle, or two for the split shape.
type cell struct {
	Tone  string
	Title string
	Rects []rect
}

type rect struct{ X, Y, Width, Height int }

// Marks returns the ticks as the content of an SVG. A page has thousands of them, for which a
// template would take most of the page's time.
func (s TickStrip) Marks() template.HTML {
	var svg strings.Builder
	for _, c := range s.Cells {
		title := template.HTMLEscapeString(c.Title)
		for _, r := range c.Rects {
			fmt.Fprintf(&svg, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="1.5"><title>%s</title></rect>`,
				c.Tone, r.X, r.Y, r.Width, r.Height, title)
		}
	}
	return template.HTML(svg.String()) //nolint:gosec // the title is escaped, and the rest is ours
}

// DrawTickStrip draws at most length ticks. It expects ticks newest first, and the states
// of their jobs.
func DrawTickStrip(ticks []cronstore.Tick, states map[int64]string, length int) TickStrip {
	ticks = ticks[:min(len(ticks), length)]
	s := TickStrip{Width: max(0, length*cellStep-(cellStep-cellWidth)), Height: cellHeight, Label: summary(ticks, states)}
	for i, tick := range ticks {
		m := markOfRun(tick, states[tick.JobID])
		s.Cells = append(s.Cells, cell{
			Tone: m.Tone + " " + m.Shape, Title: cellTitle(tick, m),
			Rects: shape(m.Shape, (length-1-i)*cellStep),
		})
	}
	return s
}

func cellTitle(t cronstore.Tick, m TickMark) string {
	title := t.Tick.UTC().Format("2006-01-02 15:04:05") + " UTC · " + m.Words
	if t.Count > 1 {
		title += fmt.Sprintf(" · %d ticks", t.Count)
	}
	if t.Reason != "" {
		title += " · " + t.Reason
	}
	return title
}

func shape(name string, x int) []rect {
	switch name {
	case "tall":
		return []rect{{x, 6, cellWidth, cellHeight - 6}}
	case "low":
		return []rect{{x, cellHeight - 4, cellWidth, 4}}
	case "notched":
		return []rect{{x, 0, cellWidth, 11}, {x, 14, cellWidth, 4}}
	case "split":
		return []rect{{x, 0, cellWidth, 7}, {x, 11, cellWidth, 7}}
	default: // full, and hollow, which the style sheet does not fill
		return []rect{{x, 0, cellWidth, cellHeight}}
	}
}

// summary describes a strip.
func summary(ticks []cronstore.Tick, states map[int64]string) string {
	if len(ticks) == 0 {
		return "No ticks yet"
	}
	counts := map[string]int{}
	for _, t := range ticks {
		counts[markOfRun(t, states[t.JobID]).Words]++
	}
	words := make([]string, 0, len(counts))
	for w := range counts {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for i, w := range words {
		words[i] = fmt.Sprintf("%d %s", counts[w], w)
	}
	return fmt.Sprintf("Last %s: %s", format.Plural(len(ticks), "tick", "ticks"), strings.Join(words, ", "))
}
