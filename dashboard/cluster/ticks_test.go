package cluster_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// recordingJobs have all completed except the last one. They record the requested ids.
type recordingJobs struct {
	cluster.Jobs

	asked [][]int64
}

func (j *recordingJobs) States(_ context.Context, ids []int64) (map[int64]string, error) {
	j.asked = append(j.asked, ids)
	states := map[int64]string{}
	for _, id := range ids {
		states[id] = "completed"
	}
	states[slices.Max(ids)] = "running"
	return states, nil
}

// Completed runs stay completed. So for a cron that fires every second, only the states of
// its newest jobs are read, not of all jobs in its strip.
func TestStatesOfRunsThatSucceededAreReadOnce(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	cron := c.Crons[0]
	c.Ticks[cron.Name] = []cronstore.Tick{{Cron: cron.Name, JobID: 3}, {Cron: cron.Name, JobID: 2}, {Cron: cron.Name, JobID: 1}}
	jobs := &recordingJobs{}
	cache := cluster.NewTickCache(dashboardtest.Crons{Cluster: c}, jobs)
	for i := range 2 {
		cron.Watermark = dashboardtest.Epoch.Add(time.Duration(i) * time.Second)
		_, states, err := cache.Get(t.Context(), []cronstore.Cron{cron}, dashboardtest.Epoch)
		if err != nil || len(states) != 3 {
			t.Fatalf("%v, %v", states, err)
		}
	}
	if want := [][]int64{{3, 2, 1}, {3}}; !slices.EqualFunc(jobs.asked, want, slices.Equal[[]int64]) {
		t.Errorf("asked for %v, want %v", jobs.asked, want)
	}
}

func TestTicksAreReadAgainOnlyWhenTheWatermarkMoved(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	cache := cluster.NewTickCache(dashboardtest.Crons{Cluster: c}, &recordingJobs{})
	cron := c.Crons[0]
	steps := []struct {
		name  string
		cron  cronstore.Cron
		now   time.Time
		reads int
	}{
		{"first", cron, dashboardtest.Epoch, 1},
		{"unchanged", cron, dashboardtest.Epoch.Add(time.Second), 1},
		{"watermark moved", cronstore.Cron{Name: cron.Name, Watermark: dashboardtest.Epoch.Add(time.Second)}, dashboardtest.Epoch.Add(2 * time.Second), 2},
		{"long ago", cronstore.Cron{Name: cron.Name, Watermark: dashboardtest.Epoch.Add(time.Second)}, dashboardtest.Epoch.Add(time.Minute), 3},
	}
	for _, step := range steps {
		if _, _, err := cache.Get(t.Context(), []cronstore.Cron{step.cron}, step.now); err != nil {
			t.Fatal(err)
		}
		if got := c.ReadCount(); got != step.reads {
			t.Errorf("%s: %d readings, want %d", step.name, got, step.reads)
		}
	}
	cache.Keep(nil)
	if cache.Len() != 0 {
		t.Error("a cron that is gone is still kept")
	}
}
