package riveradapter

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	// reportDelay combines changes that are close together: a burst of ended jobs needs
	// one report. An urgent report waits only for the end of reportGap, the minimum time
	// between two reports.
	reportDelay = 10 * time.Millisecond
	reportGap   = 2 * time.Millisecond
	// tidyInterval is how often offers are checked for expiry while there are any. It is
	// also the delay before a failed report is retried.
	tidyInterval  = time.Second
	reportTimeout = 5 * time.Second
)

// Report sends this node's credit to the scheduler's leader: once at the start, and then
// after each change, until ctx ends. An idle node sends nothing and does not wake up.
func (p *Pilot) Report(ctx context.Context) {
	p.buffer.requestReport()
	var (
		last     string
		reported time.Time
		tidy     <-chan time.Time
	)
	for {
		if tidy == nil && (last == "" || p.buffer.hasOffers()) {
			tidy = time.After(tidyInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-tidy:
			tidy = nil
			p.expireOffers()
			if last != "" {
				continue
			}
		case <-p.buffer.changed:
		}
		if !p.gather(ctx, reported) {
			return
		}
		last, reported = p.report(ctx, last), time.Now()
	}
}

// gather waits for further changes shortly after the first one. It returns false if ctx
// has ended. reported is the time of the last report.
func (p *Pilot) gather(ctx context.Context, reported time.Time) bool {
	timer := time.NewTimer(reportDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-p.buffer.urgent:
		return watchdog.Sleep(ctx, time.Until(reported.Add(reportGap)))
	}
}

// report sends the credit, unless it equals the last one and no report was requested. It
// returns the payload that the leader has now, or an empty string after a failure.
func (p *Pilot) report(ctx context.Context, last string) string {
	credit, requested := p.buffer.credit()
	credit.NodeID, credit.Incarnation, credit.ReadsCounted = p.nodeID, p.incarnation, true
	payload := wire.Marshal(credit)
	if payload == last && !requested {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := p.notifier.Notify(ctx, wire.Channel(p.schema, wire.CreditChannel), payload); err != nil {
		if ctx.Err() == nil {
			p.logger.WarnContext(ctx, "reporting credit failed; retrying", "error", err)
		}
		return ""
	}
	return payload
}

// expireOffers drops expired offers.
func (p *Pilot) expireOffers() { p.refused.Add(float64(p.buffer.expire(time.Now()))) }
