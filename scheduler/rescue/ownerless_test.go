package rescue_test

import (
	"fmt"
	"testing"
	"time"
)

// A row that somebody has set to running, which no node runs, is rescued after an hour.
func TestRunningJobsWithoutOwnerAreRescued(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	insert := func(ago time.Duration) (id int64) {
		t.Helper()
		err := c.pool.QueryRow(t.Context(), `
			INSERT INTO river_job (kind, args, state, max_attempts, created_at) VALUES ('k', '{}', 'running', 3, now() - $1::interval)
			RETURNING id`, ago).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	recent, old, foreign := insert(50*time.Minute), insert(61*time.Minute), c.running(t, "host_2026_11_20T15_04_05_000000", 1, "{}")
	c.lead(t, c.makeLeader(t, 1))
	c.waitFor(t, "the old job to be rescued", func() bool { return c.state(t, old) == "available" })
	for _, id := range []int64{recent, foreign} {
		if got := c.state(t, id); got != "running" {
			t.Errorf("job %d is %s", id, got)
		}
	}
	if n := c.count(t, fmt.Sprint(`id = `, old, ` AND errors[1] ->> 'error' LIKE 'node lost: the row names no node%'`)); n != 1 {
		t.Error("the rescued job has no error that says why")
	}
}
