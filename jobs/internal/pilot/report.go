package pilot

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	// reportDelay gathers changes that come together: a burst of jobs that end
	// is one report.
	reportDelay = 10 * time.Millisecond
	// tidyInterval is how often held offers are looked after while there are
	// any, and how soon a report that failed is tried again.
	tidyInterval  = time.Second
	reportTimeout = 5 * time.Second
)

const notifySQL = `SELECT pg_notify($1, $2)`

// Report tells the scheduler's leader what this node can still take, at once
// when it starts and then whenever that changes, until ctx ends. An idle node
// sends nothing.
func (p *Pilot) Report(ctx context.Context) {
	tidy := time.NewTicker(tidyInterval)
	defer tidy.Stop()
	p.box.ask()
	var last string
	for {
		select {
		case <-ctx.Done():
			return
		case <-tidy.C:
			p.tidy()
			if last != "" {
				continue
			}
		case <-p.box.changed:
		}
		if !sleep(ctx, reportDelay) {
			return
		}
		last = p.report(ctx, last)
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
	if _, err := p.pool.Exec(ctx, notifySQL, wire.Channel(p.schema, wire.CreditChannel), payload); err != nil {
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

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
