package jobs_test

import (
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

// While starts are slow, the node requests no more jobs. The jobs that it has are not
// lost, and their timeouts have not begun.
func TestCreditShrinksWhileStartsAreSlow(t *testing.T) {
	t.Parallel()
	job := shell("echo ran")
	job.Timeout = config.Duration(time.Second)
	n := startNode(t, map[string]config.Job{"quick": job}, func(o *jobs.Options) { o.Slots = 50 })
	release := sync.OnceFunc(n.HoldStarts())
	t.Cleanup(release) // otherwise the node cannot stop
	id := n.work(t, jobstore.NewJob{Kind: "quick"})
	n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 0 && c.Free["default"] == 0 })
	time.Sleep(1500 * time.Millisecond) // longer than the timeout
	release()
	n.wantCredit(t, func(c wire.Credit) bool { return c.Slots > 0 }) // fewer than 50 on a machine that starts commands slowly
	if done := n.finish(t, id, "completed", "retryable", "discarded"); done.State != "completed" || done.Attempt != 1 {
		t.Errorf("the job is %s after %d attempts: %s", done.State, done.Attempt, done.LastError)
	}
}
