package doctor

import (
	"errors"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// hazards adds the hazards of the given kinds.
func (r *report) hazards(f hazards.Facts, kinds ...hazards.Kind) {
	for _, h := range f.Of(kinds...) {
		r.warn(h.Remedy, "%s", h.Text)
	}
}

func checkFailovers(f Facts, r *report) {
	r.hazards(f.Cluster.Hazards, hazards.UnsteadyRole)
	r.orOK("no role loses its leaders")
}

func checkQueues(f Facts, r *report) {
	var longest time.Duration
	for _, q := range f.Cluster.Hazards.Queues {
		longest = max(longest, q.Wait())
	}
	r.hazards(f.Cluster.Hazards, hazards.PausedQueue, hazards.WaitingJob)
	if longest == 0 {
		r.orOK("no job waits")
	}
	r.orOK("the oldest available job has waited for %s", explain.Span(longest))
}

// checkWrites does not report missing privileges and tables: the lines with the GRANT statements
// and on the schema do.
func checkWrites(f Facts, r *report) {
	_, rights := errors.AsType[*postgres.RightsError](f.Writes)
	_, disk := errors.AsType[*postgres.DiskError](f.Writes)
	_, absent := errors.AsType[*postgres.TablesError](f.Writes)
	switch {
	case rights || absent || f.Election.Replay.Replica || f.Pool.Replay.Replica:
	case disk:
		r.fail("make room on the server's disk: no job can start or finish until then", "%v", f.Writes)
	case errors.Is(f.Writes, postgres.ErrWritesRejected):
		r.fail("find out who set default_transaction_read_only (ALTER SYSTEM, ALTER DATABASE or ALTER ROLE), and reset it", "%v", f.Writes)
	case f.Writes != nil:
		r.fail("run forge doctor again", "%v", f.Writes)
	default:
		r.ok("the server writes to its disk")
	}
}

func checkSnapshots(f Facts, r *report) {
	r.hazards(f.Cluster.Hazards, hazards.OldSnapshot)
	r.orOK("nothing keeps VACUUM from removing dead rows")
}

func checkSlots(f Facts, r *report) {
	r.hazards(f.Cluster.Hazards, hazards.LaggingSlot)
	r.orOK("no replication slot lags")
}
