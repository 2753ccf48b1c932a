package jobstore

import (
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const offerConditionsSQL = `
SELECT (SELECT max(applied_at) FROM forge_config), array_agg(name) FILTER (WHERE paused_at IS NOT NULL)
FROM river_queue
WHERE name = ANY ($1)`

// OfferConditions decide, besides the nodes, whether jobs of a transaction may be offered.
type OfferConditions struct {
	// AppliedAt is when the configuration in force was applied; zero: none is.
	AppliedAt time.Time
	// Paused contains the paused queues.
	Paused map[string]bool
}

// BatchOfferConditions adds a read of the conditions for the jobs' queues to a batch.
func BatchOfferConditions(batch *pgx.Batch, jobs []NewJob, conditions *OfferConditions) {
	batch.Queue(offerConditionsSQL, QueuesOf(jobs)).QueryRow(func(row pgx.Row) error {
		var applied *time.Time
		var paused []string
		if err := row.Scan(&applied, &paused); err != nil {
			return err
		}
		*conditions = OfferConditions{Paused: map[string]bool{}}
		if applied != nil {
			conditions.AppliedAt = *applied
		}
		for _, name := range paused {
			conditions.Paused[name] = true
		}
		return nil
	})
}

// QueuesOf returns the queues of jobs, each once.
func QueuesOf(jobs []NewJob) []string {
	queues := map[string]bool{}
	for _, job := range jobs {
		queues[job.Queue] = true
	}
	return slices.Sorted(maps.Keys(queues))
}
