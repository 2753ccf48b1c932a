package hazards

import (
	"context"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// maxTenures bounds the number of tenures read: the newest of all roles.
const maxTenures = 200

// Facts holds the data in which Find looks for hazards.
type Facts struct {
	Clock     postgres.Clock
	Queues    []jobstore.Queue    // as WaitingQueues reads them
	Snapshots []postgres.Snapshot // oldest first
	// Tenures are the newest tenures, newest first.
	Tenures []leaderstore.Tenure
	Clocks  []aggregator.Clock
}

// Read reads the facts.
func Read(ctx context.Context, db postgres.DB) (f Facts, err error) {
	if f.Clock, err = postgres.ReadClock(ctx, db); err != nil {
		return f, err
	}
	if f.Queues, err = jobstore.New(db).WaitingQueues(ctx); err != nil {
		return f, err
	}
	if f.Snapshots, err = postgres.Snapshots(ctx, db); err != nil {
		return f, err
	}
	if f.Tenures, err = leaderstore.New(db).History(ctx, "", maxTenures); err != nil {
		return f, err
	}
	f.Clocks, err = aggregator.NewStore(db).Clocks(ctx)
	return f, err
}
