package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/test/nodes"
)

// Two processes of the example: one counts, the other takes over when the first
// is killed, and nobody counts under a term that is over.
func TestSingletonExampleCountsOnce(t *testing.T) {
	t.Parallel()
	program, err := nodes.Build(t.TempDir(), "examples/singleton")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, "")
	url := "FORGE_DATABASE_URL=" + c.url
	counts := func(sql string) bool {
		var n int
		err := c.pool.QueryRow(t.Context(), sql).Scan(&n)
		return err == nil && n > 2
	}
	a := launchProgram(t, program, []string{url}, "a", nodes.AnyPort)
	eventually(t, "a counts", func() bool { return counts(`SELECT count(*) FROM counts WHERE node = 'a'`) })
	if out, _, _ := c.forge("leader", "status", "-o", "wide"); !strings.Contains(out, `{"pid": `) {
		t.Errorf("no metadata in\n%s", out)
	}
	b := launchProgram(t, program, []string{url}, "b", nodes.AnyPort)
	eventually(t, "b stands by", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'b' AND 'counter' = ANY (roles)`) == 1
	})
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b counts", func() bool {
		return counts(`SELECT count(*) FROM counts WHERE node = 'b' AND term > (SELECT max(term) FROM counts WHERE node = 'a')`)
	})
	term := c.number(`SELECT max(term) FROM counts`)
	if err := b.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-b.done
	if b.Err() != nil || !strings.Contains(b.output.String(), fmt.Sprintf("b: b counts in term %d", term)) {
		t.Errorf("b: %v\n%s", b.Err(), b.output)
	}
	// The count goes on where it stood.
	if n := c.number(`SELECT count(*) FROM (SELECT n, lag(n) OVER w AS before, term, lag(term) OVER w AS earlier
		FROM counts WINDOW w AS (ORDER BY n)) c WHERE n <> before + 1 OR term < earlier`); n != 0 {
		t.Errorf("%d steps of the count are out of order", n)
	}
}
