package dashboard

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (f fakeJobs) States(ctx context.Context, ids []int64) (map[int64]string, error) {
	states := map[int64]string{}
	for _, id := range ids {
		if job, err := f.Get(ctx, id); err == nil {
			states[id] = job.State
		}
	}
	_, err := f.List(ctx, jobstore.Filter{})
	return states, err
}

func (f fakeCrons) NewestTicks(ctx context.Context, crons []string, limit int) (map[string][]cronstore.Tick, error) {
	newest := map[string][]cronstore.Tick{}
	for _, cron := range crons {
		ticks, err := f.Ticks(ctx, cron, time.Time{}, limit)
		if err != nil {
			return nil, err
		}
		newest[cron] = ticks
	}
	return newest, nil
}
