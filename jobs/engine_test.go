package jobs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

// withClient lets River's client run.
func withClient(o *jobs.Options) { o.Workers = river.NewWorkers() }

// subscribe subscribes to completed jobs. River closes subscriptions when its client
// stops.
func subscribe(t *testing.T, n *node) <-chan *river.Event {
	t.Helper()
	events, cancel := n.Client().Subscribe(river.EventKindJobCompleted)
	t.Cleanup(cancel)
	return events
}

// River's client inserts the rows of its queues when it starts.
func TestNodeWithoutWorkersRunsNoClient(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("echo hello")})
	for range 3 {
		id := n.work(t, jobstore.NewJob{Kind: "hello"})
		if job := n.finish(t, id, "completed", "discarded"); job.State != "completed" {
			t.Errorf("got %+v", job)
		}
	}
	var queues int
	if err := n.pool.QueryRow(t.Context(), `SELECT count(*) FROM river_queue`).Scan(&queues); err != nil || queues != 0 {
		t.Errorf("%d rows of queues, %v", queues, err)
	}
}

func TestJobRunsBesideLongOne(t *testing.T) {
	t.Parallel()
	barrier := filepath.Join(t.TempDir(), "barrier")
	n := startNode(t, map[string]config.Job{
		"wait": shell("until [ -e " + barrier + " ]; do sleep 0.01; done"), "other": shell("true"),
	})
	id := n.work(t, jobstore.NewJob{Kind: "wait"})
	n.finish(t, id, "running")
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "other"}), "completed")
	open(t, barrier)
	if job := n.finish(t, id, "completed", "available", "retryable"); job.State != "completed" || job.Attempt != 1 {
		t.Errorf("got %+v", job)
	}
}

func TestClientKeepsRunningWithOwnWorkers(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, withClient)
	events := subscribe(t, n)
	time.Sleep(4 * 50 * time.Millisecond)
	select {
	case event, open := <-events:
		t.Errorf("got %v, open %t", event, open)
	default:
	}
}

func open(t *testing.T, barrier string) {
	t.Helper()
	if err := os.WriteFile(barrier, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReplaceKeepsRunningJobs(t *testing.T) {
	t.Parallel()
	barrier := filepath.Join(t.TempDir(), "barrier")
	n := startNode(t, map[string]config.Job{
		"edited":  shell("echo began; until [ -e " + barrier + " ]; do sleep 0.01; done; echo old"),
		"removed": shell("true"),
	})
	old := n.work(t, jobstore.NewJob{Kind: "edited"})
	// The job is in state running shortly before its definition is looked up.
	eventually(t, func() bool { return n.logs(t, old, 1, jobstore.StreamStdout) == "began\n" }, func() string { return "the job does not begin" })

	err := n.Replace(map[string]config.Job{"edited": shell("echo new"), "added": shell("echo added")},
		map[string]int{"reports": 1}, nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 2 && c.Free["reports"] == 1 })
	if got := n.Kinds(); len(got) != 2 || got[0] != "added" || got[1] != "edited" {
		t.Errorf("kinds are %v", got)
	}
	edited := n.work(t, jobstore.NewJob{Kind: "edited"})
	added, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "added", Queue: "reports"})
	if err != nil {
		t.Fatal(err)
	}
	n.send(t, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{"reports": {added}}})
	for id, want := range map[int64]string{edited: "new\n", added: "added\n"} {
		n.finish(t, id, "completed")
		if got := n.logs(t, id, 1, jobstore.StreamStdout); got != want {
			t.Errorf("job %d printed %q, want %q", id, got, want)
		}
	}
	open(t, barrier)
	n.finish(t, old, "completed")
	if got := n.logs(t, old, 1, jobstore.StreamStdout); got != "began\nold\n" {
		t.Errorf("the job that ran meanwhile printed %q", got)
	}
}

func TestFailedReplaceChangesNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"kept": shell("echo kept")})
	if err := n.Replace(map[string]config.Job{"kept": {Kind: config.KindShell}}, nil, nil, 1); err == nil {
		t.Fatal("a job without a command was accepted")
	}
	id := n.work(t, jobstore.NewJob{Kind: "kept"})
	n.finish(t, id, "completed")
	if got := n.logs(t, id, 1, jobstore.StreamStdout); got != "kept\n" {
		t.Errorf("printed %q", got)
	}
	if got := n.Queues()["default"]; got != 4 {
		t.Errorf("%d slots, want 4", got)
	}
}
