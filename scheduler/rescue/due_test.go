package rescue_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// A due job that another session has locked, as an enqueue does that replaces its arguments,
// delays no other due job.
func TestLockedDueJobDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(t, `INSERT INTO river_job (id, kind, args, max_attempts, state, scheduled_at)
		SELECT n, 'k', '{}', 3, 'scheduled', now() + n * interval '1 millisecond' FROM generate_series(1, 2) AS n`)
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `UPDATE river_job SET args = '{"v": 2}' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	c.lead(t, c.makeLeader(t, 1))
	c.waitFor(t, "the other job to be available", func() bool { return c.state(t, 2) == "available" })
	if state := c.state(t, 1); state != "scheduled" {
		t.Errorf("the locked job is %s", state)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.waitFor(t, "the job to be available", func() bool { return c.state(t, 1) == "available" })
}

// The leader resumes a queue at the end of its pause, and leaves other pauses alone. A deposed
// leader resumes nothing.
func TestPausesOfQueuesEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now()), ('held', now())`)
	store := jobstore.New(c.pool)
	pause := func(queue string, lasts time.Duration) jobstore.QueuePause {
		t.Helper()
		pause, _, err := store.PauseQueue(t.Context(), queue, jobstore.QueuePauseOrder{For: lasts})
		if err != nil {
			t.Fatal(err)
		}
		return pause
	}
	read := func(queue string) jobstore.QueuePause {
		t.Helper()
		q, err := store.Queue(t.Context(), queue)
		if err != nil {
			t.Fatal(err)
		}
		return q.QueuePause
	}
	held := pause("held", 0)
	mail := pause("mail", 2*time.Second)
	c.lead(t, c.makeLeader(t, 1))
	c.waitFor(t, "the pause to end", func() bool { return read("mail").PausedAt.IsZero() })
	var late time.Duration
	if err := c.pool.QueryRow(t.Context(), `SELECT at - $1::timestamptz FROM forge_events WHERE type = 'queue_resumed'`, mail.PausedUntil).Scan(&late); err != nil || late < 0 {
		t.Errorf("resumed %v after the end of the pause, %v", late, err)
	}
	if read("held") != held {
		t.Error("a pause without an end was ended")
	}
	c.makeLeader(t, 2) // the first leader is deposed
	pause("mail", time.Second)
	time.Sleep(2 * time.Second)
	if read("mail").PausedAt.IsZero() {
		t.Error("a deposed leader has ended a pause")
	}
}
