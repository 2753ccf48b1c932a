package jobstore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A pause of jobs that has ended, and that the leader has not deleted yet, is replaced by a new
// one.
func TestEndedPauseOfJobsIsReplaced(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now())`)
	mustExec(t, pool, `INSERT INTO river_job (kind, args) VALUES ('send', '{"tenant": "a"}'), ('send', '{"tenant": "b"}')`)
	jobs := JobSelection{Key: "args.tenant", Value: "a"}
	pauseJobs(t, pool, QueuePauseOrder{By: "ada", Reason: "old", For: time.Hour, Jobs: jobs}, true)
	pauseJobs(t, pool, QueuePauseOrder{By: "eve", For: time.Hour, Jobs: jobs}, false)
	mustExec(t, pool, `UPDATE forge_pauses SET paused_at = now() - interval '1 hour', until = now()`)
	pause, changed, err := New(pool).PauseQueue(t.Context(), "default", QueuePauseOrder{By: "eve", Reason: "new", For: 2 * time.Hour, Jobs: jobs})
	if err != nil || !changed {
		t.Fatalf("paused again: changed %t, %v", changed, err)
	}
	if pause.PausedBy != "eve" || pause.PauseReason != "new" || time.Since(pause.PausedAt) > time.Minute || time.Until(pause.PausedUntil) < time.Hour {
		t.Errorf("the new pause is %+v", pause)
	}
	if _, err := New(pool).EndPauses(t.Context(), time.Now(), 10); err != nil {
		t.Fatal(err)
	}
	rows, err := claimUnlimited(t.Context(), client, Offer{Queue: "default", IDs: []int64{1, 2}, Term: 1, MaxAttemptedBy: 100})
	if err != nil || len(rows) != 1 || rows[0].ID != 2 {
		t.Errorf("claimed %d jobs: %v", len(rows), err)
	}
	mustExec(t, pool, `UPDATE forge_pauses SET until = now()`)
	pause, changed, err = New(pool).PauseQueue(t.Context(), "default", QueuePauseOrder{Jobs: jobs})
	if err != nil || !changed || pause.PausedBy != "" || pause.PauseReason != "" || !pause.PausedUntil.IsZero() {
		t.Errorf("paused without an end: %+v, changed %t, %v", pause, changed, err)
	}
}

// A pause of a queue that has ended, and that the leader has not ended yet, is replaced by a new
// one, which the leader does not end.
func TestEndedPauseOfQueueIsReplaced(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now())`)
	for _, order := range []QueuePauseOrder{{By: "ada", Reason: "old", For: time.Hour}, {By: "eve", Reason: "new", For: 2 * time.Hour}, {}} {
		pause, changed, err := New(pool).PauseQueue(t.Context(), "mail", order)
		if err != nil || !changed {
			t.Fatalf("pause %+v: changed %t, %v", order, changed, err)
		}
		until := pause.PausedUntil.IsZero()
		if order.For != 0 {
			until = pause.PausedUntil.Sub(pause.PausedAt) == order.For
		}
		if pause.PausedBy != order.By || pause.PauseReason != order.Reason || time.Since(pause.PausedAt) > time.Minute || !until {
			t.Errorf("pause %+v: %+v", order, pause)
		}
		again, changed, err := New(pool).PauseQueue(t.Context(), "mail", QueuePauseOrder{By: "bob"})
		if err != nil || changed || again != pause {
			t.Errorf("paused twice: %+v, changed %t, %v", again, changed, err)
		}
		if ended, err := New(pool).EndPauses(t.Context(), time.Now(), 10); err != nil || len(ended) != 0 {
			t.Errorf("ended %v, %v", ended, err)
		}
		mustExec(t, pool, `UPDATE river_queue
			SET paused_at = paused_at - interval '1 day', metadata = jsonb_set(jsonb_set(metadata, '{forge:pause,at}',
				to_jsonb(extract(epoch FROM paused_at - interval '1 day'))), '{forge:pause,until}', to_jsonb(extract(epoch FROM now())))`)
	}
}

// The leader ends no pause that replaces an ended one while the leader ends that.
func TestEndPausesKeepsNewPauses(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now())`)
	orders := []QueuePauseOrder{{For: time.Second}, {For: time.Second, Jobs: JobSelection{Kind: "send"}}}
	for _, order := range orders {
		pauseJobs(t, pool, order, true)
	}
	time.Sleep(1100 * time.Millisecond) // the pauses end
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, order := range orders {
		order.For = time.Hour
		if _, changed, err := New(tx).PauseQueue(t.Context(), "default", order); err != nil || !changed {
			t.Fatalf("paused again: changed %t, %v", changed, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		for range 20 { // before and after the new pauses are committed
			if _, err := New(pool).EndPauses(t.Context(), time.Now(), 10); err != nil {
				ended <- err
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		ended <- nil
	}()
	time.Sleep(100 * time.Millisecond)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	pauses, err := New(pool).JobPauses(t.Context(), "default")
	if err != nil || len(pauses) != 1 {
		t.Errorf("pauses of jobs: %s, %v", cmp.Diff(nil, pauses), err)
	}
	if q, err := New(pool).Queue(t.Context(), "default"); err != nil || q.PausedAt.IsZero() {
		t.Errorf("the queue is paused since %v, %v", q.PausedAt, err)
	}
}
