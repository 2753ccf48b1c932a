package pages

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// chosenTick is the instant that the reader has jumped to, and what happened at it.
type chosenTick struct {
	At   time.Time
	Text string
	// Previous and Next are the nearest due ticks of an instant at which the cron is not due.
	Previous, Next *remark
	// Run is the address of the form that runs the tick; empty if it has a job or is not due.
	Run string
}

// newerTicks is how many ticks after the chosen one the page shows.
const newerTicks = 5

// loadChosen reads the ticks around an instant, newest first, and explains it.
func (s *Pages) loadChosen(ctx context.Context, b *cronBody, cron cronstore.Cron, at time.Time) ([]cronstore.Tick, error) {
	zone := zoneOf(cron.Spec.Timezone)
	b.past, b.Field = true, at.In(zone).Format(localSeconds)
	why, err := s.Source.Explain.Why(ctx, cron.Name, at)
	if err != nil {
		return nil, err
	}
	b.Chosen = newChosenTick(cron, why, zone)
	after := at.Add(time.Microsecond)
	newer, err := s.Source.Crons.TicksFrom(ctx, cron.Name, after, newerTicks+1)
	if err != nil {
		return nil, err
	}
	if len(newer) > newerTicks {
		b.Newer = tickPath(cron.Name, newer[newerTicks].Tick)
		newer = newer[:newerTicks]
	}
	slices.Reverse(newer)
	older, err := s.Source.Crons.Ticks(ctx, cron.Name, after, web.DefaultLimit)
	return append(newer, older...), err
}

func newChosenTick(cron cronstore.Cron, why explain.Explanation, zone *time.Location) *chosenTick {
	c := &chosenTick{At: why.Tick, Text: format.PlainText(why.Sentence), Previous: tickLink(cron.Name, why.Previous, zone), Next: tickLink(cron.Name, why.Next, zone)}
	switch {
	case !cron.RemovedAt.IsZero():
	case why.Standing == explain.Unknown || why.Standing == explain.Before,
		why.Standing == explain.Recorded && why.Row.JobID == 0 && why.Row.Verdict != cronstore.Queued:
		c.Run = runPath(cron.Name, why.Tick, zone)
	}
	return c
}

// usualLedger is the width of the ledger's window until the reader selects one.
const usualLedger = 24 * time.Hour

// timedTicks returns the newest ticks of the window, or those before an instant.
func (s *Pages) timedTicks(ctx context.Context, b *cronBody, cron cronstore.Cron, before time.Time) ([]cronstore.Tick, error) {
	to := b.times.To
	if b.times.Live {
		to = time.Time{}
	}
	if !before.IsZero() && (to.IsZero() || before.Before(to)) {
		to = before
	}
	return s.Source.Crons.TicksBetween(ctx, cron.Name, b.times.From, to, web.DefaultLimit)
}

// kept returns the parameters of the window for other pages of the ledger.
func (b *cronBody) kept() []string {
	if b.Timed {
		return b.times.Pairs()
	}
	return nil
}

// tickLink returns nil for no tick.
func tickLink(cron string, tick time.Time, zone *time.Location) *remark {
	if tick.IsZero() {
		return nil
	}
	return &remark{Text: format.Clock(tick, zone), Path: tickPath(cron, tick)}
}

// runPath returns the address of the form that runs a tick.
func runPath(cron string, tick time.Time, zone *time.Location) string {
	return CronPath(cron) + "/trigger?" + web.Encode("at", tick.In(zone).Format(time.RFC3339Nano))
}

// localSeconds is the format of a browser's field for a time with seconds.
const localSeconds = "2006-01-02T15:04:05"

// fieldOf fills the field to jump to a tick in with the newest one.
func fieldOf(newest []cronstore.Tick, zone *time.Location) string {
	if len(newest) == 0 {
		return ""
	}
	return newest[0].Tick.In(zone).Format(localSeconds)
}

// markRows links the rows of the ledger, and marks the one that holds the chosen tick.
func (b *cronBody) markRows(ticks []cronstore.Tick, zone *time.Location) {
	for i, t := range ticks {
		row := &b.Ticks[i]
		row.At = tickPath(t.Cron, t.Tick)
		if b.Operates && t.JobID == 0 && t.Count <= 1 && t.Verdict != cronstore.Queued {
			row.Run = runPath(t.Cron, t.Tick, zone)
		}
		if c := b.Chosen; c != nil {
			row.Chosen = t.Tick.Equal(c.At) || t.Tick.Before(c.At) && !t.LastTick.Before(c.At)
		}
	}
}

// waitsFor returns the job for which the oldest queued tick waits.
func waitsFor(newest []cronstore.Tick) *remark {
	for _, t := range slices.Backward(newest) {
		if t.Verdict == cronstore.Queued && t.BlockedBy != 0 {
			return &remark{Text: "job " + format.Number(t.BlockedBy), Path: jobPath(t.BlockedBy)}
		}
	}
	return nil
}

// FindPaths are the addresses that lead to other runs of the cron.
func (b *cronBody) FindPaths() []remark {
	at := ""
	if b.Chosen != nil && !b.Chosen.At.IsZero() {
		at = b.Chosen.At.UTC().Format(time.RFC3339Nano)
	}
	path := func(outcome, side string) string {
		return b.Cron.Path + "?" + web.Encode("outcome", outcome, side, at) + "#h-ticks"
	}
	links := []remark{{"Previous success", path(runSucceeded, "before")}, {"Previous failure", path(runFailed, "before")}}
	if at == "" {
		return links
	}
	return append(links, remark{"Next success", path(runSucceeded, "after")}, remark{"Next failure", path(runFailed, "after")})
}

const (
	// findBatch is how many ticks are read at once to find a run, findBatches how often.
	findBatch   = 500
	findBatches = 10
)

// The outcomes of runs that can be looked for.
const (
	runSucceeded = "success"
	runFailed    = "failure"
)

var outcomeNames = map[string]string{runSucceeded: "run that succeeded", runFailed: "run that failed"}

// loadFound reads the ticks around the nearest run with an outcome. If there is none, it returns
// the newest ticks, or those around the instant where the search began.
func (s *Pages) loadFound(ctx context.Context, req *request, b *cronBody, cron cronstore.Cron, newest []cronstore.Tick) ([]cronstore.Tick, error) {
	before, after := req.Time("before"), req.Time("after")
	if err := req.err(); err != nil {
		return nil, err
	}
	outcome := req.Values.Get("outcome")
	if req.foundRun == nil {
		found, err := s.nearestRun(ctx, cron.Name, outcome, before, after)
		if err != nil {
			return nil, err
		}
		req.foundRun = &found
	}
	at := *req.foundRun
	if at.IsZero() {
		at = after
	}
	if at.IsZero() {
		at = before
	}
	shown, err := newest, error(nil)
	if !at.IsZero() {
		shown, err = s.loadChosen(ctx, b, cron, at)
	}
	if req.foundRun.IsZero() {
		b.Chosen = &chosenTick{At: at, Text: fmt.Sprintf("No %s among the %s ticks on that side whose jobs are still there.", outcomeNames[outcome], format.Number(findBatch*findBatches))}
	}
	return shown, err
}

// nearestRun returns the tick of the nearest run with an outcome after an instant or, if after
// is zero, before one; zero if there is none.
func (s *Pages) nearestRun(ctx context.Context, cron, outcome string, before, after time.Time) (time.Time, error) {
	for range findBatches {
		var ticks []cronstore.Tick
		var err error
		if after.IsZero() {
			ticks, err = s.Source.Crons.Ticks(ctx, cron, before, findBatch)
		} else {
			ticks, err = s.Source.Crons.TicksFrom(ctx, cron, after.Add(time.Microsecond), findBatch)
		}
		if err != nil || len(ticks) == 0 {
			return time.Time{}, err
		}
		states, err := s.Source.Jobs.States(ctx, cluster.JobsOf(ticks))
		if err != nil {
			return time.Time{}, err
		}
		for _, t := range ticks {
			if outcomeOf(t, states[t.JobID]) == outcome {
				return t.Tick, nil
			}
		}
		if before = ticks[len(ticks)-1].Tick; !after.IsZero() {
			after = before
		}
	}
	return time.Time{}, nil
}

// outcomeOf returns empty for a tick without a run, and for a run that is not over.
func outcomeOf(t cronstore.Tick, state string) string {
	switch {
	case t.Verdict == cronstore.Failed || state == "discarded":
		return runFailed
	case state == "completed":
		return runSucceeded
	default:
		return ""
	}
}
