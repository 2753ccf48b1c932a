package doctor

import (
	"errors"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// seen reports whether the cluster's tables were read.
func (f Facts) seen() bool { return f.Cluster != nil && f.Schema != nil && f.Schema.readable() }

// hazards returns the findings about hazards of the given kinds.
func (f Facts) hazards(kinds ...hazards.Kind) []Finding {
	if !f.seen() {
		return nil
	}
	var findings []Finding
	for _, h := range f.Cluster.Hazards.Of(kinds...) {
		findings = append(findings, warn(h.Remedy, "%s", h.Text))
	}
	return findings
}

func checkFailovers(f Facts) []Finding {
	if !f.seen() {
		return nil
	}
	return orOK(f.hazards(hazards.UnsteadyRole), "no role loses its leaders")
}

func checkQueues(f Facts) []Finding {
	if !f.seen() {
		return nil
	}
	var longest time.Duration
	for _, q := range f.Cluster.Hazards.Queues {
		longest = max(longest, q.Wait())
	}
	findings := f.hazards(hazards.PausedQueue, hazards.WaitingJob)
	if longest == 0 {
		return orOK(findings, "no job waits")
	}
	return orOK(findings, "the oldest available job has waited for %s", explain.Span(longest))
}

// checkWrites does not report missing privileges: the line with the GRANT statements
// does.
func checkWrites(f Facts) []Finding {
	_, rights := errors.AsType[*postgres.RightsError](f.Writes)
	_, disk := errors.AsType[*postgres.DiskError](f.Writes)
	switch {
	case !f.seen() || rights || f.Election.Replay.Replica || f.Pool.Replay.Replica:
		return nil
	case disk:
		return []Finding{fail("make room on the server's disk: no job can start or finish until then", "%v", f.Writes)}
	case errors.Is(f.Writes, postgres.ErrWritesRejected):
		return []Finding{fail("find out who set default_transaction_read_only (ALTER SYSTEM, ALTER DATABASE or ALTER ROLE), and reset it", "%v", f.Writes)}
	case f.Writes != nil:
		return []Finding{fail("run forge doctor again", "%v", f.Writes)}
	default:
		return ok("the server writes to its disk")
	}
}

func checkSnapshots(f Facts) []Finding {
	if !f.seen() {
		return nil
	}
	return orOK(f.hazards(hazards.OldSnapshot), "nothing keeps VACUUM from removing dead rows")
}
