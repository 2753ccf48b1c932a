package charts

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// AttemptBar is an attempt on the time scale of the job, with what came before it. Attempts are
// stacked vertically. The bar of the next attempt of a waiting job has no width.
type AttemptBar struct {
	X, Width  string
	Y, Middle int
	Tone      string
	Title     string
	Before    []WaitBar
}

// WaitBar is the time before an attempt in which the job did not run.
type WaitBar struct {
	X, Width string
	Y        int
	// Tone is scheduled until the job is due, backoff between attempts, and queued while the
	// job waits for a node.
	Tone  string
	Title string
}

// The tones of waits.
const (
	waitScheduled = "scheduled"
	waitBackoff   = "backoff"
	waitQueued    = "queued"
)

var waitNames = map[string]string{waitScheduled: "Not due yet", waitBackoff: "Back-off", waitQueued: "Waited in its queue"}

// AttemptHeight is the height of one attempt, in CSS pixels.
const AttemptHeight = 20

// longestLead bounds the time before the first attempt and after the last one that is drawn,
// so that it does not squeeze the attempts.
const longestLead = 24 * time.Hour

// DrawAttempts draws the time from when the job was added or due to its end, its next attempt
// or now.
func DrawAttempts(now time.Time, job jobstore.Job) (bars []AttemptBar, axis []AxisMark, label string) {
	attempts := job.Runs()
	if len(attempts) == 0 {
		return nil, nil, ""
	}
	start, end := attempts[0].StartedAt, job.FinalizedAt
	for _, at := range []time.Time{job.CreatedAt, job.Tick} {
		if !at.IsZero() && at.Before(start) && attempts[0].StartedAt.Sub(at) < longestLead {
			start = at
		}
	}
	if end.IsZero() {
		end = now
	}
	waits := !jobstore.Finished(job.State) && job.State != "running"
	if waits && job.ScheduledAt.After(end) && job.ScheduledAt.Sub(end) < longestLead {
		end = job.ScheduledAt
	}
	d := attemptDrawing{Scale{Start: start, Width: max(end.Sub(start), time.Millisecond)}, job, now}
	free := start // since when the job waits for its next attempt
	for i, a := range attempts {
		until := a.StartedAt.Add(time.Duration(a.DurationMS * float64(time.Millisecond)))
		if a.Outcome == "" {
			until = end
		}
		bars = append(bars, d.attempt(i, a, until, d.waits(i, free, a.StartedAt, i == len(attempts)-1 && !waits)))
		free = until
	}
	if waits {
		i := len(bars)
		bars = append(bars, AttemptBar{X: d.at(end), Width: "0%", Y: i*AttemptHeight + 3, Middle: i*AttemptHeight + 10, Tone: "wait", Before: d.waits(i, free, end, true)})
	}
	return bars, d.axis(), format.Plural(len(attempts), "attempt", "attempts") + " in " + format.Precise(end.Sub(start))
}

type attemptDrawing struct {
	Scale

	job jobstore.Job
	now time.Time
}

func (d attemptDrawing) attempt(i int, a jobstore.Attempt, until time.Time, before []WaitBar) AttemptBar {
	outcome := OutcomeBadge(a.Outcome)
	return AttemptBar{
		X: d.at(a.StartedAt), Width: d.Between(a.StartedAt, until), Y: i*AttemptHeight + 3, Middle: i*AttemptHeight + 10, Tone: outcome.Tone, Before: before,
		Title: fmt.Sprintf("Attempt %d: %s, began %s after the job was added, took %s", a.Attempt, outcome.Words, format.Precise(a.StartedAt.Sub(d.Start)), format.Precise(until.Sub(a.StartedAt))),
	}
}

// waits divides the time before an attempt. A job's row only has the due time of its newest
// attempt. Before an earlier one, all time after another attempt counts as back-off.
func (d attemptDrawing) waits(i int, from, to time.Time, newest bool) (bars []WaitBar) {
	first, due := waitBackoff, to
	if i == 0 {
		first, due = waitScheduled, from
	}
	if at := d.job.ScheduledAt; newest && at.After(from) {
		due = at
		if due.After(to) {
			due = to
		}
	} else if newest {
		due = from
	}
	for _, w := range []struct {
		tone      string
		from, to  time.Time
		thickness int
	}{{first, from, due, 2}, {waitQueued, due, to, 6}} {
		if length := w.to.Sub(w.from); length > 0 {
			bars = append(bars, WaitBar{
				X: d.at(w.from), Width: d.Between(w.from, w.to), Y: i*AttemptHeight + 10 - w.thickness/2, Tone: w.tone,
				Title: waitNames[w.tone] + " for " + format.Precise(length),
			})
		}
	}
	return bars
}

func (d attemptDrawing) axis() []AxisMark {
	return []AxisMark{
		{X: "0", Text: format.Clock(d.Start, time.UTC), Anchor: "start"},
		{X: "50%", Text: "+" + format.Precise(d.Width/2), Anchor: "middle", Minor: true},
		{X: "100%", Text: "+" + format.Precise(d.Width), Anchor: "end"},
	}
}
