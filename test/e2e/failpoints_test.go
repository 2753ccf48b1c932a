package e2e

import (
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// strikes are where a leader dies inside the transaction of a tick; the last one
// hangs, with the transaction open.
var strikes = []string{
	"crons/after-read=kill", "crons/before-commit=kill", "crons/after-commit=kill", "crons/before-commit=stop",
}

// Whoever leads is struck: before it has written, when all is written, and when
// all is committed and nobody knows yet.
func TestLeaderStruckInsideATickLosesAndDoublesNone(t *testing.T) {
	t.Parallel()
	program, orders := failpointBinary(t), t.TempDir()
	c := newCluster(t, everySecond+steady)
	start := func(id string) {
		c.startProgram(program, id, "FORGE_FAILPOINTS=@"+filepath.Join(orders, id))
	}
	for _, id := range []string{"a", "b", "c"} {
		start(id)
	}
	var term int64
	for _, strike := range strikes {
		var id string
		id, term = c.leader(term)
		c.awaitTicks(term)
		t.Logf("term %d: %s will be struck by %s", term, id, strike)
		rewrite(t, filepath.Join(orders, id), strike)
		c.awaitStrike(id, strike, term)
		if c.nodes[id] == nil {
			start(id)
		}
	}
	_, term = c.leader(term)
	c.awaitTicks(term)
	c.settle()
	c.demandEveryTickOnce("second")
	for reason, want := range map[string]int64{"crashed": 3, "lease_expired": 1} {
		if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND end_reason = $1`, reason); n != want {
			t.Errorf("%d tenures ended as %s; want %d", n, reason, want)
		}
	}
}

// buildWithFailpoints builds a forge that can be struck, once a run.
var buildWithFailpoints = sync.OnceValues(func() (string, error) { return buildOnce("failpoints") })

func failpointBinary(t *testing.T) string {
	t.Helper()
	program, err := buildWithFailpoints()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// awaitStrike waits until a leader was struck. One that hangs goes on after
// another has taken over: what it had written must not count.
func (c *cluster) awaitStrike(id, strike string, term int64) {
	c.t.Helper()
	p := c.nodes[id]
	if strings.Contains(strike, "=stop") {
		_, _ = c.leader(term)
		c.signal(id, syscall.SIGCONT)
		return
	}
	select {
	case <-p.done:
	case <-time.After(nodes.WaitTimeout):
		c.t.Fatalf("%s is not struck by %s", id, strike)
	}
	delete(c.nodes, id)
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		c.t.Fatalf("%s ended by itself: %v", id, p.Err())
	}
}
