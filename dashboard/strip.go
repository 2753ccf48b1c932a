package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// mark is how a verdict looks: a name for its colour, a shape that tells it
// apart without colour, and the words for it.
type mark struct {
	Tone  string // ok, warn, bad, live, wait or idle
	Shape string // full, tall, low, notched, split or hollow
	Words string
}

// markOfRun is the mark of a tick in a strip: of its verdict, unless its job says more.
// Of one that is past its retention the verdict is all that is known.
func markOfRun(t cronstore.Tick, state string) mark {
	m := markOf(t.Verdict)
	switch state {
	case "discarded":
		return mark{"bad", "notched", m.Words + " (run failed)"}
	case "cancelled":
		return mark{"idle", "notched", m.Words + " (run cancelled)"}
	case "retryable":
		return mark{"warn", "notched", m.Words + " (run to be retried)"}
	case "running", "available", "scheduled", "pending":
		m.Tone = "live"
		m.Words += " (run not over)"
	}
	return m
}

func markOf(v cronstore.Verdict) mark {
	switch v {
	case cronstore.Fired:
		return mark{"ok", "full", "fired"}
	case cronstore.Triggered:
		return mark{"ok", "full", "triggered by hand"}
	case cronstore.Backfilled:
		return mark{"ok", "full", "backfilled"}
	case cronstore.CaughtUp:
		return mark{"warn", "tall", "caught up"}
	case cronstore.Queued:
		return mark{"wait", "hollow", "queued"}
	case cronstore.SkippedOverlap:
		return mark{"idle", "low", "skipped: blocked by an earlier run"}
	case cronstore.SkippedWindow:
		return mark{"idle", "low", "skipped: too late"}
	case cronstore.SkippedLimit:
		return mark{"idle", "low", "skipped: beyond the limit"}
	case cronstore.SkippedDST:
		return mark{"idle", "low", "skipped: clock change"}
	case cronstore.SkippedPaused:
		return mark{"idle", "low", "skipped: paused"}
	case cronstore.SkippedExcluded:
		return mark{"idle", "low", "skipped: excluded"}
	case cronstore.Replaced:
		return mark{"idle", "low", "replaced by a later run"}
	case cronstore.Failed:
		return mark{"bad", "split", "failed to fire"}
	default:
		return mark{"idle", "low", string(v)}
	}
}

// Geometry of a strip, in CSS pixels.
const (
	cellWidth  = 5
	cellStep   = 7
	cellHeight = 18
)

// strip draws the newest ticks of a cron, the newest at the right.
type strip struct {
	Width  int
	Height int
	Label  string
	Cells  []cell
}

// cell is one tick: one rectangle, or two for the shape that is split.
type cell struct {
	Tone  string
	Title string
	Rects []rect
}

type rect struct{ X, Y, Width, Height int }

// drawStrip takes the ticks newest first with the states of their jobs, and shows
// length of them.
func drawStrip(ticks []cronstore.Tick, states map[int64]string, length int) strip {
	ticks = ticks[:min(len(ticks), length)]
	s := strip{Width: length*cellStep - (cellStep - cellWidth), Height: cellHeight, Label: summary(ticks, states)}
	for i, tick := range ticks {
		m := markOfRun(tick, states[tick.JobID])
		s.Cells = append(s.Cells, cell{
			Tone: m.Tone + " " + m.Shape, Title: cellTitle(tick, m),
			Rects: shape(m.Shape, (length-1-i)*cellStep),
		})
	}
	return s
}

func cellTitle(t cronstore.Tick, m mark) string {
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
	default: // full, and hollow, which the style sheet leaves empty
		return []rect{{x, 0, cellWidth, cellHeight}}
	}
}

// summary says in words what a strip shows.
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
	return fmt.Sprintf("Last %s: %s", plural(len(ticks), "tick", "ticks"), strings.Join(words, ", "))
}
