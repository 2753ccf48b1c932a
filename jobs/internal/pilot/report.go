package pilot

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	// reportDelay gathers changes that come together: a burst of jobs that end
	// is one report. One that presses waits for the end of reportGap only, which
	// is the least time between two reports.
	reportDelay = 10 * time.Millisecond
	reportGap   = 2 * time.Millisecond
	// tidyInterval is how often held offers are looked after while there are
	// any, and how soon a report that failed is tried again.
	tidyInterval  = time.Second
	reportTimeout = 5 * time.Second
)

const notifySQL = `SELECT pg_notify($1, $2)`

// Report tells the scheduler's leader what this node can still take, at once
// when it starts and then whenever that changes, until ctx ends. An idle node
// sends nothing, and does not even wake up.
func (p *Pilot) Report(ctx context.Context) {
	p.box.ask()
	var (
		last     string
		reported time.Time
		tidy     <-chan time.Time
	)
	for {
		if tidy == nil && (last == "" || p.box.holds()) {
			tidy = time.After(tidyInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-tidy:
			tidy = nil
			p.tidy()
			if last != "" {
				continue
			}
		case <-p.box.changed:
		}
		if !p.gather(ctx, reported) {
			return
		}
		last, reported = p.report(ctx, last), time.Now()
	}
}

// gather waits for changes that come together with the first one; false: ctx has
// ended. The last report was sent at reported.
func (p *Pilot) gather(ctx context.Context, reported time.Time) bool {
	timer := time.NewTimer(reportDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-p.box.pressing:
		return progress.Sleep(ctx, time.Until(reported.Add(reportGap)))
	}
}

// report sends the credit unless it is the last one again and nobody asked. It
// returns what the leader knows now; empty after a failure.
func (p *Pilot) report(ctx context.Context, last string) string {
	credit, asked := p.box.credit()
	credit.NodeID, credit.Incarnation = p.nodeID, p.incarnation
	payload := wire.Marshal(credit)
	if payload == last && !asked {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := p.send(ctx, payload); err != nil {
		if ctx.Err() == nil {
			p.logger.WarnContext(ctx, "credit not reported, will try again", "error", err)
		}
		return ""
	}
	return payload
}

// tidy drops offers that nobody claimed and wakes the queues of the others.
func (p *Pilot) tidy() {
	wake, dropped := p.box.expire(time.Now())
	p.refused.Add(float64(dropped))
	p.wake(wake)
}
