package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// The documented shell loop: one of two programs works at a time, operators see it and
// move it, and what it writes under a term that is over is refused.
func TestShellLoopLeadsWithSQLAlone(t *testing.T) {
	t.Parallel()
	path := "PATH=" + filepath.Dir(pgtest.Program(t, "psql", "install PostgreSQL's client")) + ":" + os.Getenv("PATH")
	c := newCluster(t, "[metrics]\nscrape_interval = \"1s\"\n")
	c.start("node")
	if _, err := c.pool.Exec(t.Context(), `CREATE TABLE reports (id bigserial, node text, term bigint)`); err != nil {
		t.Fatal(err)
	}
	loop, err := filepath.Abs("../../examples/sql/nightly.sh")
	if err != nil {
		t.Fatal(err)
	}
	start := func(node string) *process {
		return launchProgram(t, loop, []string{"DATABASE_URL=" + c.url, path}, node)
	}
	writes := func(node string, after int64) {
		t.Helper()
		eventually(t, node+" writes", func() bool {
			return c.number(`SELECT count(*) FROM reports WHERE node = $1 AND term > $2`, node, after) > 0
		})
	}
	a := start("a")
	writes("a", 0)
	c.seeSQLRole("a")
	start("b")
	eventually(t, "b campaigns", func() bool { // nobody else would take the role from a
		return c.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%forge_role_campaign(''nightly'', ''b''%'`) > 0
	})
	out, errs, code := c.forge("leader", "step-down", "nightly")
	if code != 0 || !strings.Contains(out, "b") {
		t.Fatalf("step-down: exit %d, %s%s", code, out, errs)
	}
	writes("b", 1)
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-a.done
	if n := c.number(`SELECT count(*) FROM (SELECT term, lag(term) OVER (ORDER BY id) AS before FROM reports) r WHERE term < before`); n != 0 {
		t.Errorf("%d rows of a term that was over", n)
	}
	out, _, _ = c.forge("leader", "history", "--role", "nightly")
	if !strings.Contains(out, "stepped_down") {
		t.Errorf("history:\n%s", out)
	}
}

// seeSQLRole looks where operators do.
func (c *cluster) seeSQLRole(leader string) {
	c.t.Helper()
	if out, errs, _ := c.forge("leader", "status"); !strings.Contains(out, "nightly") || !strings.Contains(out, leader) {
		c.t.Errorf("leader status:\n%s%s", out, errs)
	}
	listen := c.nodes["node"].listen()
	for path, want := range map[string]string{
		"/": "<h3>Nightly</h3>", "/api/v1/leaders": `"role":"nightly","node_id":"` + leader + `"`, "/leader/nightly": `"node_id":"` + leader + `"`,
	} {
		if _, body, _ := nodes.Get(listen, path); !strings.Contains(string(body), want) {
			c.t.Errorf("%s lacks %s", path, want)
		}
	}
	eventually(c.t, "the cluster's metrics know the leader", func() bool {
		_, body, _ := nodes.Get(listen, "/metrics/cluster")
		return strings.Contains(string(body), `forge_leader_is_leader{role="nightly"} 1`)
	})
}
