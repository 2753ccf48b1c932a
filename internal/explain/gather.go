package explain

import (
	"context"
	"errors"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Reader explains the ticks that one database holds.
type Reader struct{ db postgres.DB }

// New returns the reader of a database.
func New(db postgres.DB) *Reader { return &Reader{db} }

// JobGone replaces the state of a job whose row was removed.
const JobGone = "gone, past its retention"

// Why reads the data about a tick of a cron and explains its verdict. It returns
// cronstore.ErrNotFound if the cron never existed.
func (r *Reader) Why(ctx context.Context, name string, tick time.Time) (Explanation, error) {
	facts, err := r.gather(ctx, name, tick)
	if err != nil {
		return Explanation{}, err
	}
	return Explain(facts)
}

// Notifications returns the sent and pending notifications about failed runs of ticks.
func (r *Reader) Notifications(ctx context.Context, cron string, ticks []time.Time) ([]alerts.Notification, error) {
	return alerts.New(r.db).OfTicks(ctx, cron, ticks)
}

func (r *Reader) gather(ctx context.Context, name string, tick time.Time) (Facts, error) {
	facts, crons := Facts{Tick: tick}, cronstore.New(r.db)
	var err error
	if facts.Cron, err = crons.Get(ctx, name); err != nil {
		return facts, err
	}
	if facts.Now, err = crons.Now(ctx); err != nil {
		return facts, err
	}
	row, err := crons.FindTick(ctx, name, tick)
	if errors.Is(err, cronstore.ErrNotFound) {
		return facts, nil
	}
	if err != nil {
		return facts, err
	}
	facts.Row = &row
	if facts.Told, err = r.Notifications(ctx, name, []time.Time{tick}); err != nil || row.JobID == 0 {
		return facts, err
	}
	job, err := jobstore.New(r.db).Get(ctx, row.JobID)
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
