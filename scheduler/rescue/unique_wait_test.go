package rescue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// withoutRetryable are the unique states of a kind that is unique by state without retryable, and
// insertUniqueSQL inserts an available job of it with the key $1.
const (
	withoutRetryable = "11010001"
	insertUniqueSQL  = `INSERT INTO river_job (kind, args, max_attempts, unique_key, unique_states)
		VALUES ('k', '{}', 3, $1::text::bytea, B'` + withoutRetryable + `')`
)

// insertRetryable inserts retryable jobs with the ids from first to last. The unique key of each
// is key-ID, and the jobs have given it up until they are due. All are due in the past.
func (c *cluster) insertRetryable(t *testing.T, first, last int, uniqueStates string) {
	t.Helper()
	c.exec(t, `SELECT setval('river_job_id_seq', 10000)`)
	c.exec(t, `INSERT INTO river_job (id, kind, args, max_attempts, attempt, state, scheduled_at, unique_key, unique_states)
		SELECT n, 'k', '{}', 3, 1, 'retryable', now() - interval '1 hour' + n * interval '1 millisecond', ('key-' || n)::bytea, $3::text::bit(8)
		FROM generate_series($1::int, $2::int) AS n`, first, last, uniqueStates)
	if kept := c.count(t, `unique_states IS NULL AND metadata ? 'forge:unique_states'`); kept < last-first+1 {
		t.Fatalf("%d jobs have given up their keys", kept)
	}
}

// insertDue inserts a due job without a unique key.
func (c *cluster) insertDue(t *testing.T, id int) {
	t.Helper()
	c.exec(t, `INSERT INTO river_job (id, kind, args, max_attempts, state, scheduled_at) VALUES ($1, 'k', '{}', 3, 'scheduled', now())`, id)
}

func (c *cluster) count(t *testing.T, condition string) (n int) {
	t.Helper()
	if err := c.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE "+condition).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// takeKeys opens a transaction of an application that has inserted jobs with the keys of the jobs
// from first to last.
func (c *cluster) takeKeys(t *testing.T, first, last int) pgx.Tx {
	t.Helper()
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	for n := first; n <= last; n++ {
		if _, err := tx.Exec(t.Context(), insertUniqueSQL, fmt.Sprint("key-", n)); err != nil {
			t.Fatal(err)
		}
	}
	return tx
}

// waitBriefly is like waitFor, but for what must not wait for a transaction that stays open.
func (c *cluster) waitBriefly(t *testing.T, what string, met func() bool) {
	t.Helper()
	began := time.Now()
	c.waitFor(t, what, met)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("waited %v for %s", took, what)
	}
}

// An open transaction that has inserted a job with the key of a due job delays no other due job
// and no end of a pause. The job itself is available soon after the transaction is rolled back.
func TestOpenInsertWithKeyOfDueJobDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now())`)
	if _, _, err := jobstore.New(c.pool).PauseQueue(t.Context(), "mail", jobstore.QueuePauseOrder{For: time.Second}); err != nil {
		t.Fatal(err)
	}
	c.insertRetryable(t, 1, 2, withoutRetryable)
	c.insertDue(t, 3)
	tx := c.takeKeys(t, 1, 1)
	c.lead(t, c.makeLeader(t, 1))
	c.waitBriefly(t, "the job without a key", func() bool { return c.state(t, 3) == "available" })
	c.waitBriefly(t, "the job with another key", func() bool { return c.state(t, 2) == "available" })
	c.waitBriefly(t, "the end of the pause", func() bool {
		q, err := jobstore.New(c.pool).Queue(t.Context(), "mail")
		return err == nil && q.PausedAt.IsZero()
	})
	if state := c.state(t, 1); state != "retryable" {
		t.Errorf("the job whose key is not free is %s", state)
	}
	// The jobs that fall due while the leader waits again and again are on time, too.
	c.exec(t, `INSERT INTO river_job (id, kind, args, max_attempts, state, scheduled_at)
		SELECT n, 'k', '{}', 3, 'scheduled', now() + (n - 10) * interval '10 milliseconds' FROM generate_series(10, 300) AS n`)
	c.waitBriefly(t, "the jobs that fell due meanwhile", func() bool { return c.count(t, `state = 'scheduled'`) == 0 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.waitBriefly(t, "the job whose key is free again", func() bool { return c.state(t, 1) == "available" })
}

// A due job whose key an open transaction has taken is discarded once that is committed.
func TestDueJobIsDiscardedAfterCommitOfRival(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.insertRetryable(t, 1, 1, withoutRetryable)
	tx := c.takeKeys(t, 1, 1)
	c.insertDue(t, 2)
	c.lead(t, c.makeLeader(t, 1))
	c.waitBriefly(t, "the other job", func() bool { return c.state(t, 2) == "available" })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.waitBriefly(t, "the job to be discarded", func() bool { return c.state(t, 1) == "discarded" })
}

// More due jobs than a batch has, whose keys an open transaction has taken, delay neither the due
// jobs after them nor those with free keys among them.
func TestManyOpenInsertsDelayNoOtherDueJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const before, free, after = 30, 5, 500
	c.insertRetryable(t, 1, before+free+after, withoutRetryable)
	c.insertDue(t, 1000)
	earlier, later := c.takeKeys(t, 1, before), c.takeKeys(t, before+free+1, before+free+after)
	c.lead(t, c.makeLeader(t, 1))
	c.waitBriefly(t, "the job without a key", func() bool { return c.state(t, 1000) == "available" })
	c.waitFor(t, "the jobs with free keys", func() bool {
		return c.count(t, fmt.Sprintf(`id BETWEEN %d AND %d AND state = 'available'`, before+1, before+free)) == free
	})
	if waiting := c.count(t, `state = 'retryable'`); waiting != before+after {
		t.Errorf("%d jobs wait for their keys, want %d", waiting, before+after)
	}
	for _, tx := range []pgx.Tx{earlier, later} {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.waitFor(t, "all jobs", func() bool { return c.count(t, `state = 'available'`) == before+free+after+1 })
}

// A due job that has lost its key is discarded even if its unique states include discarded.
func TestDueJobThatLostItsKeyIsDiscarded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.insertRetryable(t, 1, 2, "11011001") // and discarded
	c.exec(t, insertUniqueSQL, "key-1")
	c.lead(t, c.makeLeader(t, 1))
	for id, want := range map[int64]string{1: "discarded", 2: "available"} {
		c.waitBriefly(t, fmt.Sprintf("job %d to be %s", id, want), func() bool { return c.state(t, id) == want })
	}
}

// Of two due jobs with one key, the one that holds it is released, even if the other is due first.
func TestDueJobThatHoldsItsKeyIsReleased(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.insertRetryable(t, 2, 2, withoutRetryable)
	c.exec(t, `INSERT INTO river_job (id, kind, args, max_attempts, state, scheduled_at, unique_key, unique_states)
		VALUES (100, 'k', '{}', 3, 'scheduled', now(), 'key-2', B'11010001')`)
	c.lead(t, c.makeLeader(t, 1))
	for id, want := range map[int64]string{2: "discarded", 100: "available"} {
		c.waitBriefly(t, fmt.Sprintf("job %d to be %s", id, want), func() bool { return c.state(t, id) == want })
	}
}

// An open transaction that has changed paused queues delays neither due jobs nor the ends of the
// pauses of other queues.
func TestLockedPausesDelayNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now()), ('other', now())`)
	store := jobstore.New(c.pool)
	for _, queue := range []string{"mail", "other"} {
		for _, jobs := range []jobstore.JobSelection{{}, {Kind: "k"}} {
			if _, _, err := store.PauseQueue(t.Context(), queue, jobstore.QueuePauseOrder{For: time.Second, Jobs: jobs}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, sql := range []string{
		`UPDATE river_queue SET updated_at = now() WHERE name = 'mail'`,
		`UPDATE forge_pauses SET reason = 'x' WHERE queue = 'mail'`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second) // the pauses end
	c.insertDue(t, 1)
	c.lead(t, c.makeLeader(t, 1))
	paused := func(queue string) bool {
		q, err := store.Queue(t.Context(), queue)
		if err != nil {
			t.Fatal(err)
		}
		var parts int
		if err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_pauses WHERE queue = $1`, queue).Scan(&parts); err != nil {
			t.Fatal(err)
		}
		return !q.PausedAt.IsZero() || parts > 0
	}
	c.waitBriefly(t, "the job", func() bool { return c.state(t, 1) == "available" })
	c.waitBriefly(t, "the end of the other pauses", func() bool { return !paused("other") })
	if !paused("mail") {
		t.Error("a locked pause was ended")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.waitBriefly(t, "the end of the pauses", func() bool { return !paused("mail") })
}
