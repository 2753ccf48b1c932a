package assign_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// A job that appears before those that were read is offered, even without a notification:
// inserted with an earlier time, committed late, or made available again.
func TestJobsBelowTheMarksAreOffered(t *testing.T) {
	t.Parallel()
	for name, cheap := range map[string]time.Duration{"scans from the beginning": time.Hour, "scans from the marks": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testJobsBelowTheMarks(t, func(a *assign.Assigner) {
				assign.SetOfferTimeout(a, time.Hour)
				assign.SetCheapBelow(a, cheap)
			})
		})
	}
}

func testJobsBelowTheMarks(t *testing.T, change func(*assign.Assigner)) {
	t.Helper()
	c := newCluster(t)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 900})
	c.leadUntilDone(t, c.makeLeader(t, 1), assign.LeastLoaded, change)
	awaitClaimed := func(what string, want int) {
		t.Helper()
		began := time.Now()
		c.waitFor(t, what, func() bool { return n.claimed() == want })
		t.Logf("%s: %s", what, time.Since(began))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s waited %s", what, took)
		}
	}
	late, err := c.pool.Begin(t.Context()) // its jobs have the time of its begin
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(t.Context()) }()
	if _, err := late.Exec(t.Context(), `INSERT INTO river_job (kind, args) VALUES ('k', '{}')`); err != nil {
		t.Fatal(err)
	}
	want := 0
	for range 10 { // the marks move on
		c.insert(t, 2, "k", "default", "")
		want += 2
		awaitClaimed("new jobs", want)
		time.Sleep(250 * time.Millisecond)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitClaimed("a job that was committed late", want+1)
	for priority := 1; priority <= 4; priority++ {
		c.exec(t, fmt.Sprintf(`INSERT INTO river_job (kind, args, priority, scheduled_at) VALUES ('k', '{}', %d, now() - interval '1 hour')`, priority))
		awaitClaimed(fmt.Sprint("an earlier job of priority ", priority), want+1+priority)
	}
}
