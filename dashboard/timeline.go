package dashboard

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// attemptBar is an attempt on the time scale of the job. Attempts are stacked vertically.
type attemptBar struct {
	X, Width  string
	Y, Middle int
	Tone      string
	Title     string
}

const attemptHeight = 20

// drawAttempts draws the time from when the job was added or due to its end or now.
func drawAttempts(now time.Time, job jobstore.Job) (bars []attemptBar, axis []axisMark, label string) {
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
	sc := scale{start: start, width: max(end.Sub(start), time.Millisecond)}
	for i, a := range attempts {
		outcome := outcomeBadge(a.Outcome)
		until := a.StartedAt.Add(time.Duration(a.DurationMS * float64(time.Millisecond)))
		if a.Outcome == "" {
			until = end
		}
		bars = append(bars, attemptBar{
			X: sc.at(a.StartedAt), Width: sc.between(a.StartedAt, until), Y: i*attemptHeight + 3, Middle: i*attemptHeight + 10, Tone: outcome.Tone,
			Title: fmt.Sprintf("Attempt %d: %s, began %s after the job was added, took %s", a.Attempt, outcome.Words, precise(a.StartedAt.Sub(start)), precise(until.Sub(a.StartedAt))),
		})
	}
	axis = []axisMark{
		{X: "0", Text: clock(start, time.UTC), Anchor: "start"},
		{X: "50%", Text: "+" + precise(sc.width/2), Anchor: "middle"},
		{X: "100%", Text: "+" + precise(sc.width), Anchor: "end"},
	}
	return bars, axis, plural(len(bars), "attempt", "attempts") + " in " + precise(end.Sub(start))
}
