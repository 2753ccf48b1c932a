package jobs_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/jobs"
)

// A node stops in bounded time even if the database takes no results any more. The leader
// then returns the job, so it runs again.
func TestStopDoesNotWaitLongForFrozenDatabase(t *testing.T) {
	t.Parallel()
	barrier := filepath.Join(t.TempDir(), "barrier")
	var link *pgtest.Link
	n := startNode(t, map[string]config.Job{"wait": shell("echo began; until [ -e " + barrier + " ]; do sleep 0.01; done")},
		func(o *jobs.Options) {
			link = pgtest.Proxy(t, o.ClusterURL)
			o.Pool = pgtest.Connect(t, link.URL())
		})
	id := n.work(t, jobstore.NewJob{Kind: "wait"})
	n.finish(t, id, "running")
	link.Stall()
	defer link.Resume()
	open(t, barrier)
	time.Sleep(time.Second) // the result is being written
	began := time.Now()
	n.stop()
	if took := time.Since(began); took > jobs.ResultTimeout+15*time.Second {
		t.Errorf("stopped after %s", took)
	}
	if job := n.finish(t, id, "running"); job.Attempt != 1 {
		t.Errorf("got %+v", job)
	}
}
