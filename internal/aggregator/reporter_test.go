package aggregator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// Jobs of many kinds, enqueued with SQL, have few series, and the next process of the node
// does not add as many again. None of the jobs is lost.
func TestReportedKindsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.interval = time.Hour
	const jobs = metrics.MaxKinds + 200
	const reported = `
		FROM forge_metrics_nodes, jsonb_array_elements(coalesce(samples -> 'base', '[]') || (samples -> 'samples')) AS s
		WHERE s ->> 'n' = '` + metrics.JobEnqueuedName + `'`
	for n, incarnation := range []string{"00000000000000aa", "00000000000000ab"} {
		c.exec(`SELECT forge_enqueue('k' || n) FROM generate_series($1::int, $2::int) AS n`, n*jobs+1, (n+1)*jobs)
		p := c.start("a", incarnation)
		c.awaitRow(fmt.Sprintf(`SELECT coalesce(sum((s ->> 'v')::float8), 0) >= %d`, (n+1)*jobs) + reported)
		p.end()
		var kinds, counted int
		if err := c.pool.QueryRow(t.Context(), `SELECT count(DISTINCT s #>> '{l,kind}'), sum((s ->> 'v')::float8)::int`+reported).Scan(&kinds, &counted); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(kinds, " kinds, ", counted, " jobs"), fmt.Sprint(metrics.MaxKinds+1, " kinds, ", (n+1)*jobs, " jobs"); got != want {
			t.Errorf("process %d: %s, want %s", n+1, got, want)
		}
	}
}

// A node that stops while it reads the records of enqueued jobs counts them.
func TestStoppingNodeCountsJobsThatItHasTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.interval = time.Hour
	c.exec(`INSERT INTO forge_enqueued (kind, jobs) VALUES ('report', 3)`)
	c.exec(`CREATE FUNCTION wait_a_second() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END'`)
	c.exec(`CREATE TRIGGER slow AFTER DELETE ON forge_enqueued FOR EACH STATEMENT EXECUTE FUNCTION wait_a_second()`)
	p := c.start("a", "00000000000000aa")
	c.awaitRow(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`)
	p.end()
	c.awaitRow(`SELECT NOT EXISTS (SELECT FROM forge_enqueued)`)
	var counted int
	err := c.pool.QueryRow(t.Context(), `
		SELECT coalesce(sum((s ->> 'v')::float8), 0)::int FROM forge_metrics_nodes, jsonb_array_elements(samples -> 'samples') AS s
		WHERE s ->> 'n' = '`+metrics.JobEnqueuedName+`' AND s #>> '{l,kind}' = 'report'`).Scan(&counted)
	if err != nil || counted != 3 {
		t.Errorf("%d jobs are counted, want 3 (%v)", counted, err)
	}
}
