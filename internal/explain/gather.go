package explain

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/notifyqueue"
)

// Queryer runs queries: a pool or a connection.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// JobGone replaces the state of a job whose row was removed.
const JobGone = "gone, past its retention"

// Tick reads the data about a tick of a cron and explains it. It returns
// cronstore.ErrNotFound if the cron never existed.
func Tick(ctx context.Context, db Queryer, name string, tick time.Time) (Explanation, error) {
	facts, err := gather(ctx, db, name, tick)
	if err != nil {
		return Explanation{}, err
	}
	return Explain(facts)
}

func gather(ctx context.Context, db Queryer, name string, tick time.Time) (Facts, error) {
	facts := Facts{Tick: tick}
	var err error
	if facts.Cron, err = cronstore.Get(ctx, db, name); err != nil {
		return facts, err
	}
	if facts.Now, err = cronstore.Now(ctx, db); err != nil {
		return facts, err
	}
	row, err := cronstore.FindTick(ctx, db, name, tick)
	if errors.Is(err, cronstore.ErrNotFound) {
		return facts, nil
	}
	if err != nil {
		return facts, err
	}
	facts.Row = &row
	if facts.Told, err = notifyqueue.OfTicks(ctx, db, name, []time.Time{tick}); err != nil || row.JobID == 0 {
		return facts, err
	}
	job, err := jobstore.Get(ctx, db, row.JobID)
	switch {
	case errors.Is(err, jobstore.ErrNotFound):
		facts.JobState = JobGone
	case err != nil:
		return facts, err
	default:
		facts.JobState = job.State
	}
	return facts, nil
}
