package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

const (
	// ledWork has jobs end when a file says so.
	ledWork = `
[metrics]
scrape_interval = "1s"
[jobs.held]
kind = "shell"
command = ["sh", "-c", "until [ -e %s ]; do sleep 0.05; done"]
[jobs.short]
kind = "shell"
command = ["true"]
`

	// leadersWorkSQL records each row that a role's leader writes, with whether the node
	// that wrote it led the role.
	leadersWorkSQL = `
CREATE TABLE role_work (role text, what text, node text, led boolean);
CREATE FUNCTION role_work() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE writer text := split_part(current_setting('application_name'), ':', 3);
BEGIN
    INSERT INTO role_work VALUES (TG_ARGV[0], lower(TG_OP) || ' ' || TG_ARGV[1], writer,
        EXISTS (SELECT FROM forge_leaders WHERE role = TG_ARGV[0] AND node_id = writer));
    RETURN NULL;
END $$;
CREATE TRIGGER role_work AFTER INSERT ON forge_cron_ticks FOR EACH ROW EXECUTE FUNCTION role_work('scheduler', 'tick');
CREATE TRIGGER role_work AFTER INSERT ON forge_metrics_cluster FOR EACH ROW EXECUTE FUNCTION role_work('metrics_aggregator', 'total');
CREATE TRIGGER role_work AFTER INSERT ON forge_metrics_rollups FOR EACH ROW EXECUTE FUNCTION role_work('metrics_aggregator', 'window');
CREATE TRIGGER role_work AFTER INSERT ON forge_job_log_packs FOR EACH ROW EXECUTE FUNCTION role_work('log_compactor', 'pack');
CREATE TRIGGER role_work AFTER DELETE ON river_job FOR EACH ROW EXECUTE FUNCTION role_work('log_compactor', 'job')`

	// compactorsWorkSQL adds a job past its retention, and one with output to merge.
	compactorsWorkSQL = `
WITH jobs AS (
    INSERT INTO river_job (kind, state, max_attempts, attempt, args, finalized_at)
    VALUES ('old', 'completed', 1, 1, '{}', now() - interval '25 h'), ('talk', 'completed', 1, 1, '{}', now())
    RETURNING id, kind)
INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk, at)
SELECT id, 1, 1, 'stdout', 'a line', now() - interval '15 minutes' FROM jobs WHERE kind = 'talk'`

	// oldTotalsSQL adds totals of a minute that is over, to roll up.
	oldTotalsSQL = `
INSERT INTO forge_metrics_cluster (metric, labels, at, value, term)
SELECT 'probe', '{}', now() - interval '1 h' + n * interval '15 s', n, 1 FROM generate_series(1, 8) n`
)

// allRoles are the roles that a leader works for.
const allRoles = "FORGE_NODE_ROLES=scheduler,metrics_aggregator,log_compactor"

// While nobody leads, workers finish what they run and nobody does a leader's work: no
// tick is recorded, no job assigned, no total, window or pack written, nothing deleted.
// The next leaders do all of it.
func TestNoRoleWorksWithoutItsLeader(t *testing.T) {
	t.Parallel()
	goOn := filepath.Join(t.TempDir(), "go")
	c := newCluster(t, everySecond+unhurried+fmt.Sprintf(ledWork, goOn))
	c.must("migrate", "up")
	c.exec(oldTotalsSQL)
	c.exec(compactorsWorkSQL)
	c.exec(leadersWorkSQL)
	c.startProgram(forgeBinary(t), "w1", "FORGE_NODE_ROLES=worker")
	c.startProgram(forgeBinary(t), "w2", "FORGE_NODE_ROLES=worker")
	c.startProgram(forgeBinary(t), "s1", allRoles)
	c.awaitRoles("s1")
	_, term := c.leader(0)
	c.awaitTicks(term)
	c.must("job", "enqueue", "held", "--config", c.config)
	eventually(t, "the held job runs", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'held' AND state = 'running'`) == 1
	})
	c.awaitLeadersWork()

	c.signal("s1", syscall.SIGKILL)
	<-c.nodes["s1"].done
	delete(c.nodes, "s1")
	eventually(t, "the server has executed what s1 had sent", func() bool {
		return c.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND split_part(application_name, ':', 3) = 's1'`) == 0
	})
	before := c.leadersWork()
	c.must("job", "enqueue", "short", "--config", c.config)
	c.exec(compactorsWorkSQL)
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the held job ends", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'held' AND state = 'completed' AND attempt = 1`) == 1
	})
	c.awaitReports(3)
	if after := c.leadersWork(); after != before {
		t.Errorf("leaders' work before and after a time without any:\n%s\n%s", before, after)
	}
	if n := c.number(`SELECT count(*) FROM river_job WHERE kind = 'short' AND state = 'available'`); n != 1 {
		t.Error("a job was assigned while nobody led")
	}

	c.startProgram(forgeBinary(t), "s2", allRoles)
	_, next := c.leader(term)
	c.awaitRoles("s2")
	c.awaitTicks(next)
	c.awaitLeadersWork()
	eventually(t, "the job that waited is done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'short' AND state = 'completed'`) == 1
	})
	c.settle()
	c.demandEveryTickOnce("second")
	if n := c.number(`SELECT count(*) FROM role_work WHERE NOT led`); n != 0 {
		t.Errorf("%d rows of a role by nodes that did not lead it:\n%s", n, c.leadersWork())
	}
}

// awaitLeadersWork waits until a leader of each role has done what there is to do.
func (c *cluster) awaitLeadersWork() {
	c.t.Helper()
	for _, what := range []string{"insert tick", "insert total", "insert window", "insert pack", "delete job"} {
		eventually(c.t, what, func() bool {
			return c.number(`SELECT count(*) FROM role_work WHERE what = $1 AND led`, what) > 0
		})
	}
	eventually(c.t, "old jobs are deleted and output is merged", func() bool {
		return c.number(`SELECT (SELECT count(*) FROM river_job WHERE kind = 'old')
			+ (SELECT count(*) FROM forge_job_logs AS l JOIN river_job AS j ON j.id = l.job_id WHERE j.kind = 'talk')`) == 0
	})
}

// awaitReports waits until each node has reported its metrics so many times more: as
// often an aggregator would have added them up.
func (c *cluster) awaitReports(times int) {
	c.t.Helper()
	last := c.instant(`SELECT clock_timestamp()`)
	for range times {
		eventually(c.t, "every node reports", func() bool {
			return c.number(`SELECT count(*) FROM forge_metrics_nodes AS m JOIN forge_nodes AS n USING (node_id, incarnation)
				WHERE n.state = 'active' AND m.at > $1 AND n.node_id LIKE 'w%'`, last) == 2
		})
		last = c.instant(`SELECT clock_timestamp()`)
	}
}

// leadersWork lists what was written for each role, by which node, and how often.
func (c *cluster) leadersWork() string {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `
SELECT format('%s by %s, led: %s: %s', what, node, led, count(*)) FROM role_work GROUP BY what, node, led ORDER BY 1`)
	if err != nil {
		c.t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
