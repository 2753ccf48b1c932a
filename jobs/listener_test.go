package jobs_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// cutListener ends the connection on which the node receives offers.
func (n *node) cutListener(t *testing.T) {
	t.Helper()
	var ended int
	err := n.pool.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query NOT LIKE '%forge_credit%'
		  AND (query LIKE 'LISTEN %' OR query = '-- ping')`).Scan(&ended) // the notifier sends a ping from time to time
	if err != nil || ended != 1 {
		t.Fatalf("ended %d listeners: %v", ended, err)
	}
}

// If a node has not been notified of a pause, its claim is rejected. It runs the job
// after the queue is resumed.
func TestClaimFromPausedQueueIsRejected(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("true")}, withClient)
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
	exec(t, n.pool, `UPDATE river_queue SET paused_at = now()`)
	refused := testutil.ToFloat64(n.metrics.AssignmentRefused)
	id := n.work(t, jobstore.NewJob{Kind: "hello"})
	eventually(t, func() bool { return testutil.ToFloat64(n.metrics.AssignmentRefused) > refused },
		func() string { return "the claim was not rejected" })
	n.finish(t, id, "available")
	exec(t, n.pool, `UPDATE river_queue SET paused_at = NULL`)
	n.offer(t, id)
	n.finish(t, id, "completed")
}

// A node that missed the notification of a resumed queue reads the queue's state after it
// reconnects, and runs the job that was offered in the meantime.
func TestMissedResumeIsReadAfterReconnect(t *testing.T) {
	t.Parallel()
	barrier := filepath.Join(t.TempDir(), "barrier")
	n := startNode(t, map[string]config.Job{
		"hello": shell("true"), "wait": shell("until [ -e " + barrier + " ]; do sleep 0.01; done"),
	}, withClient)
	paused, cancel := n.Client().Subscribe(river.EventKindQueuePaused)
	defer cancel()
	n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
	if err := n.Client().QueuePause(t.Context(), "default", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case <-paused:
	case <-time.After(waitTimeout):
		t.Fatal("the node never paused the queue")
	}
	id := n.work(t, jobstore.NewJob{Kind: "wait"})
	n.wantCredit(t, func(c wire.Credit) bool { return c.Seen == n.seq.Load() && c.Slots == 3 })
	exec(t, n.pool, `UPDATE river_queue SET paused_at = NULL`)
	n.cutListener(t)
	n.finish(t, id, "running")
	// The job takes one slot, first as an offer and then while it runs, so no change of
	// the credit causes this report: the node sends it because it has reconnected.
	n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 3 })
	open(t, barrier)
	n.finish(t, id, "completed")
}

func TestOffersArriveAfterReconnect(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]config.Job{"hello": shell("true")})
	for range 5 {
		n.cutListener(t)
		n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 4 }) // sent without a request after reconnecting
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
		n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 4 && c.Seen == n.seq.Load() })
	}
}
