package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

type napArgs struct{}

func (napArgs) Kind() string { return "nap" }

// startNapper runs a node of a program's own, in this process. Its worker asks for
// each of these naps, and then completes; began tells when it was run.
func (c *cluster) startNapper(began chan<- time.Time, naps ...time.Duration) (node *forge.Node, listen string) {
	c.t.Helper()
	workers := river.NewWorkers()
	runs := 0
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[napArgs]) error {
		began <- time.Now()
		if runs++; runs <= len(naps) {
			return river.JobSnooze(naps[runs-1])
		}
		return nil
	}))
	return c.embed(workers, unhurried)
}

// embed runs a node of a program with workers of its own, in this process.
func (c *cluster) embed(workers *river.Workers, text string) (node *forge.Node, listen string) {
	c.t.Helper()
	listen = freeAddress(c.t)
	cfg, err := forge.ParseConfig("test", fmt.Sprintf("[database]\nurl = %q\n[http]\nlisten = %q\n%s", c.url, listen, text))
	if err != nil {
		c.t.Fatal(err)
	}
	node, err = forge.New(cfg, forge.WithWorkers(workers), forge.WithLogger(slog.New(slog.NewTextHandler(c.t.Output(), nil))))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	select {
	case <-node.Ready():
	case err := <-ended:
		ended <- nil
		c.t.Fatal(err)
	}
	return node, listen
}

// A worker that asks to be run later is, when that time has come and not before, and
// it burns no attempt: this job has but one.
func TestSnoozedJobRunsWhenItIsDue(t *testing.T) {
	t.Parallel()
	const brief = time.Second
	c := newCluster(t, "")
	began := make(chan time.Time, 3)
	node, listen := c.startNapper(began, time.Hour, brief)
	added, err := node.Client().Insert(t.Context(), napArgs{}, &river.InsertOpts{MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(added.Job.ID)
	show := func() jobstore.Job { return decode[jobstore.Job](t, c.demand(0, "", "job", "show", id, "-o", "json")) }

	c.awaitState(id, "scheduled")
	job := show()
	first := (<-began).Truncate(time.Microsecond) // as exact as the database
	if wait := job.ScheduledAt.Sub(first); job.Attempt != 0 || job.Snoozes != 1 || wait < time.Hour || wait > 2*time.Hour ||
		len(job.Attempts) != 1 || job.Attempts[0].Outcome != jobstore.OutcomeSnoozed || job.Attempts[0].Error != "" {
		t.Errorf("after the long nap was asked for, due in %v: %+v", wait, job)
	}
	for _, want := range []string{"0 of 1", "snoozed       once", "1         snoozed"} {
		c.demand(0, want, "job", "show", id)
	}
	_, page, _ := get(listen, "/jobs/"+id)
	for _, want := range []string{"<dt>Snoozed</dt><dd>1 time</dd>", "/></svg>snoozed</span>"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q", want)
		}
	}

	c.demand(0, "was scheduled and is available", "job", "retry", id)
	second := <-began
	if third := <-began; third.Sub(second) < brief {
		t.Errorf("it was run again after %v", third.Sub(second))
	}
	c.awaitState(id, "completed")
	if job = show(); job.Attempt != 1 || job.Snoozes != 2 || len(job.Attempts) != 1 || job.Attempts[0].Outcome != jobstore.OutcomeCompleted {
		t.Errorf("in the end: %+v", job)
	}
}
