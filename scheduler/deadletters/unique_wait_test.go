package deadletters_test

import (
	"fmt"
	"testing"
	"time"
)

// An open transaction that has inserted a job with the unique key of a dead letter delays no other
// second round. The dead letter gets its round once the transaction is rolled back.
func TestOpenInsertWithKeyOfDeadLetterDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.configure("h", `{"k": {"retry": {"second_round": "1s"}}}`)
	for i := range 4 {
		c.insertDead("k", fmt.Sprint("n", i), time.Duration(10-i)*time.Minute, "{}")
	}
	const keys = `UPDATE river_job SET unique_key = ('key-' || id %% 2)::bytea, metadata = metadata || '{"forge:unique_states": "11110101"}' WHERE id < %d`
	c.exec(fmt.Sprintf(keys, 4)) // jobs 1 and 3 have one key, job 2 another, job 4 none
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `INSERT INTO river_job (kind, args, max_attempts, unique_key, unique_states) VALUES ('rival', '{}', 3, 'key-1', B'11110101')`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	defer c.lead(1)()
	const states = `SELECT id || ' ' || state FROM river_job ORDER BY id`
	c.await(states, "1 discarded", "2 available", "3 discarded", "4 available")
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the other rounds were given after %v", took)
	}
	time.Sleep(2 * time.Second) // the job is postponed
	c.await(states, "1 discarded", "2 available", "3 discarded", "4 available")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.await(`SELECT state || ' ' || count(*) FROM river_job GROUP BY state ORDER BY state`, "available 3", "discarded 1")
	c.await(`SELECT sum((data ->> 'jobs')::int)::text FROM forge_events WHERE type = 'second_rounds_given'`, "3")
}
