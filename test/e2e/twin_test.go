package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// A second process under a node id waits for the first to go, and is then refused
// with what to do; the first is not disturbed. That holds with session locks and
// without them.
func TestTwinIsRefused(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"advisory", "lease"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, unhurried+"strategy = \""+strategy+"\"\n"+everySecond)
			c.start("a")
			_, term := c.leader(0)
			twin := launch(t, []string{"FORGE_DATABASE_URL=" + c.url},
				"serve", "--config", c.config, "--node-id", "a", "--listen", nodes.AnyPort)
			select {
			case <-twin.done:
			case <-time.After(nodes.WaitTimeout):
				t.Fatal("the twin runs")
			}
			first := "process " + strconv.Itoa(c.nodes["a"].Process.Pid)
			for _, want := range []string{`node id "a" is held by ` + first, "stop that process", "node.id"} {
				if out := twin.output.String(); twin.Err() == nil || !strings.Contains(out, want) {
					t.Errorf("%v, without %q:\n%s", twin.Err(), want, out)
				}
			}
			if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND term > $1`, term); n != 0 {
				t.Errorf("%d terms after the twin's start", n)
			}
			c.stopAll()
		})
	}
}
