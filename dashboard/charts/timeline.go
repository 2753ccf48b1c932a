package charts

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// AttemptBar is an attempt on the time scale of the job. Attempts are stacked vertically.
type AttemptBar struct {
	X, Width  string
	Y, Middle int
	Tone      string
	Title     string
}

// AttemptHeight is the height of one attempt, in CSS pixels.
const AttemptHeight = 20

// DrawAttempts draws the time from when the job was added or due to its end or now.
func DrawAttempts(now time.Time, job jobstore.Job) (bars []AttemptBar, axis []AxisMark, label string) {
	attempts := job.Runs()
	if len(attempts) == 0 {
		return nil, nil, ""
	}
	start, end := attempts[0].StartedAt, job.FinalizedAt
	for _, at := range []time.Time{job.CreatedAt, job.Tick} {
		if !at.IsZero() && at.Before(start) && start.Sub(at) < 24*time.Hour {
			start = at
		}
	}
	if end.IsZero() {
		end = now
	}
	sc := Scale{Start: start, Width: max(end.Sub(start), time.Millisecond)}
	for i, a := range attempts {
		outcome := OutcomeBadge(a.Outcome)
		until := a.StartedAt.Add(time.Duration(a.DurationMS * float64(time.Millisecond)))
		if a.Outcome == "" {
			until = end
		}
		bars = append(bars, AttemptBar{
			X: sc.at(a.StartedAt), Width: sc.Between(a.StartedAt, until), Y: i*AttemptHeight + 3, Middle: i*AttemptHeight + 10, Tone: outcome.Tone,
			Title: fmt.Sprintf("Attempt %d: %s, began %s after the job was added, took %s", a.Attempt, outcome.Words, format.Precise(a.StartedAt.Sub(start)), format.Precise(until.Sub(a.StartedAt))),
		})
	}
	axis = []AxisMark{
		{X: "0", Text: format.Clock(start, time.UTC), Anchor: "start"},
		{X: "50%", Text: "+" + format.Precise(sc.Width/2), Anchor: "middle"},
		{X: "100%", Text: "+" + format.Precise(sc.Width), Anchor: "end"},
	}
	return bars, axis, format.Plural(len(bars), "attempt", "attempts") + " in " + format.Precise(end.Sub(start))
}
