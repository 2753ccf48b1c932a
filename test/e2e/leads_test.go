package e2e

import (
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/test/nodes"
)

// Two processes of the example: the one that leads writes, and after its step-down the
// other one, under a later term.
func TestLeadsExampleStepsDown(t *testing.T) {
	t.Parallel()
	program, err := nodes.Build(t.TempDir(), "examples/leads")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "")
	url := "FORGE_DATABASE_URL=" + c.url
	mails := func(node string) func() bool {
		return func() bool {
			var n int
			err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM mails WHERE node = $1`, node).Scan(&n)
			return err == nil && n > 2
		}
	}
	a := launchProgram(t, program, []string{url}, "a", nodes.AnyPort)
	eventually(t, "a writes", mails("a"))
	launchProgram(t, program, []string{url}, "b", nodes.AnyPort)
	eventually(t, "b stands by", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'b' AND 'mailer' = ANY (roles)`) == 1
	})
	if err := a.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b writes", mails("b"))
	if n := c.number(`SELECT count(*) FROM (SELECT term, lag(term) OVER (ORDER BY id) AS before FROM mails) m WHERE term < before`); n != 0 {
		t.Errorf("%d rows of a term that was over", n)
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'mailer' AND node_id = 'a' AND end_reason = 'stepped_down'`); n != 1 {
		t.Errorf("%d tenures of a ended as stepped_down", n)
	}
}
