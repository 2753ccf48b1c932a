package pilot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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
	// searchInterval is how often the node looks for jobs that it holds without knowing,
	// while a claim that was given up may still take effect; maxFound is how many it
	// takes on at once.
	searchInterval = 5 * time.Second
	maxFound       = 1000
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
		searched time.Time
		tidy     <-chan time.Time
	)
	for {
		if tidy == nil && (last == "" || p.box.holds() || p.box.isUnsure()) {
			tidy = time.After(tidyInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-tidy:
			tidy = nil
			p.tidy()
			if p.box.isUnsure() && time.Since(searched) >= searchInterval {
				p.search(ctx)
				searched = time.Now()
			}
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

// search finds jobs that the database has as this node's and that nothing here knows of:
// the server carried out a claim after it had been looked up. They are looked up again.
func (p *Pilot) search(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var id int64
	var queue string
	rows, err := p.pool.Query(ctx, heldSQL, pgx.StrictNamedArgs{"client": p.clientID, "known": p.box.ours(), "most": maxFound})
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &queue}, func() error {
			if p.box.suspect(queue, id) {
				p.logger.WarnContext(ctx, "job found that this node holds without knowing", "job_id", id)
				p.tap.wake(queue)
			}
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		p.logger.WarnContext(ctx, "jobs that this node may hold not searched, will try again", "error", err)
	}
}
