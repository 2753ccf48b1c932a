package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	ratedJobs = `
[queues.rated]
rate_limit = { limit = 10, per = "2s", key = "args.tenant", burst = 4 }

[jobs.call]
kind = "shell"
queue = "rated"
command = ["true"]
retry = { max_attempts = 9, backoff = "100ms", max_backoff = "100ms" }
`

	// recordStarts records the start of each attempt, by the job's row.
	recordStarts = `
CREATE TABLE starts (tenant text, at timestamptz);
CREATE FUNCTION record_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.starts VALUES (NEW.args ->> 'tenant', NEW.attempted_at);
    RETURN NULL;
END $$;
CREATE TRIGGER record_start AFTER UPDATE OF state ON river_job FOR EACH ROW
WHEN (NEW.state = 'running' AND OLD.state <> 'running') EXECUTE FUNCTION record_start()`
)

// Leaders and nodes are killed while jobs of two tenants wait for a rate. In no window do more
// start than the rate and its burst allow, attempts of killed nodes included, and all jobs end.
func TestRateHoldsWhileLeadersAndNodesDie(t *testing.T) {
	t.Parallel()
	const jobs, perTenant = 80, 40
	c := newCluster(t, ratedJobs+unhurried)
	for _, id := range []string{"s1", "s2", "s3"} {
		c.startProgram(forgeBinary(t), id, "FORGE_NODE_ROLES=scheduler")
	}
	for _, id := range []string{"w1", "w2", "w3"} {
		c.startProgram(forgeBinary(t), id, "FORGE_NODE_ROLES=worker")
	}
	leads, term := c.leader(0)
	c.exec(recordStarts)
	c.exec(fmt.Sprintf(`INSERT INTO river_job (kind, queue, args) SELECT 'call', 'rated', jsonb_build_object('tenant', 't' || i %% 2) FROM generate_series(1, %d) AS i`, jobs))
	c.exec(`SELECT pg_notify('public.river_insert', '{"queue": "rated"}')`)
	for kill, worker := range []string{"w1", "w2"} {
		enough := int64(20 * (kill + 1))
		eventually(t, "some jobs to start", func() bool { return c.number(`SELECT count(*) FROM starts`) >= enough })
		c.signal(leads, syscall.SIGKILL)
		c.signal(worker, syscall.SIGKILL)
		leads, term = c.leader(term)
	}
	eventually(t, "all jobs to end", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed'`) == jobs
	})
	for _, tenant := range []string{"t0", "t1"} {
		starts := c.starts(tenant)
		if len(starts) < perTenant {
			t.Errorf("%d starts of %s, want at least %d", len(starts), tenant, perTenant)
		}
		for _, rate := range []struct {
			limit int
			span  time.Duration
		}{{10, 2 * time.Second}, {4, 800 * time.Millisecond}} {
			for i := rate.limit; i < len(starts); i++ {
				if within := starts[i].Sub(starts[i-rate.limit]); within <= rate.span {
					t.Errorf("%d jobs of %s started within %s, the limit is %d in %s", rate.limit+1, tenant, within, rate.limit, rate.span)
				}
			}
		}
	}
}

// starts returns the starts of a tenant's jobs, the earliest first.
func (c *cluster) starts(tenant string) []time.Time {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `SELECT at FROM starts WHERE tenant = $1 ORDER BY at`, tenant)
	if err != nil {
		c.t.Fatal(err)
	}
	starts, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		c.t.Fatal(err)
	}
	return starts
}
