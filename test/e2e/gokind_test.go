package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/jobs"
)

type waveArgs struct {
	Name string `json:"name"`
}

func (waveArgs) Kind() string { return "wave" }

const waving = `
[jobs.wave]
kind = "go"
queue = "waves"
retry = { max_attempts = 2 }
schema = { required = ["name"], properties = { name = { type = "string" } } }
[[crons]]
name = "waves"
schedule = "@every 1s"
job = "wave"
args = { name = "Ada" }
`

// A cron fires a kind that only a Go program has a worker for, and whoever enqueues
// it by its name is held to its schema.
func TestCronFiresAProgramsKind(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	type wave struct {
		run jobs.Run
		job river.Job[waveArgs]
	}
	waves := map[string]chan wave{"Ada": make(chan wave, 1), "Bo": make(chan wave, 1)}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[waveArgs]) error {
		run, _ := jobs.FromContext(ctx)
		select {
		case waves[job.Args.Name] <- wave{run, *job}:
		default: // one was seen
		}
		return nil
	}))
	_, listen := c.embed(workers, unhurried+waving)
	got := <-waves["Ada"]
	if got.run.Cron != "waves" || got.run.Tick.IsZero() || got.job.Args.Name != "Ada" || got.job.Queue != "waves" || got.job.MaxAttempts != 2 {
		t.Errorf("the cron's job is %+v of %+v", got.job.JobRow, got.run)
	}

	c.demand(2, "--args.name: missing", "job", "enqueue", "wave")
	c.demand(2, "--args.name: wrong type (got number); want string", "cron", "trigger", "waves", "--args", `{"name": 7}`)
	for path, body := range map[string]string{"/api/v1/jobs": `{"kind": "wave"}`, "/api/v1/crons/waves/trigger": `{"args": {"n": 1}}`} {
		if status, answer := post(t, listen, path, body); status != http.StatusUnprocessableEntity || !strings.Contains(answer, "args.name: missing.") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	c.demand(0, "enqueued job", "job", "enqueue", "wave", "--args", `{"name": "Bo"}`)
	got = <-waves["Bo"]
	if got.run.Cron != "" || got.job.MaxAttempts != 2 {
		t.Errorf("the job of the command is %+v of %+v", got.job.JobRow, got.run)
	}
}
