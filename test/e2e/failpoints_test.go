package e2e

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// strikes are where a leader dies inside the transaction of a tick, each at the
// second tick that it fires; the last one hangs, with the transaction open.
var strikes = []string{
	"crons/after-read=kill@2", "crons/before-commit=kill@2", "crons/after-commit=kill@2", "crons/before-commit=stop@2",
}

// Each node is armed, so that whoever leads is struck: before it has written,
// when all is written, and when all is committed and nobody knows yet.
func TestLeaderStruckInsideATickLosesAndDoublesNone(t *testing.T) {
	t.Parallel()
	program := failpointBinary(t)
	c := newCluster(t, everySecond)
	armed := map[string]string{}
	arm := func(id, strike string) {
		armed[id] = strike
		c.startProgram(program, id, "FORGE_FAILPOINTS="+strike)
	}
	for i, strike := range strikes[:3] {
		arm(string(rune('a'+i)), strike)
	}
	rest := strikes[3:]
	var term int64
	for range strikes {
		var id string
		id, term = c.leader(term)
		if len(rest) > 0 {
			arm("d", rest[0])
			rest = nil
		}
		if len(armed) == 1 { // somebody has to take over from the last one
			c.startAll("y", "z")
		}
		t.Logf("term %d: %s will be struck by %s", term, id, armed[id])
		c.awaitStrike(id, armed[id], term)
		delete(armed, id)
	}
	_, term = c.leader(term)
	eventually(t, 20*time.Second, "ticks of the last term", func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks WHERE term = $1`, term) > 1
	})
	c.settle()
	c.demandEveryTickOnce("second")
	for reason, want := range map[string]int64{"crashed": 3, "lease_expired": 1} {
		if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND end_reason = $1`, reason); n != want {
			t.Errorf("%d tenures ended as %s; want %d", n, reason, want)
		}
	}
}

// failpointBinary builds a forge that can be struck.
func failpointBinary(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "forge-failpoints")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "failpoints", "-o", program, "../../cmd/forge").CombinedOutput() //nolint:gosec // our own
	if err != nil {
		t.Fatalf("build forge with failpoints: %v\n%s", err, out)
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
	case <-time.After(30 * time.Second):
		c.t.Fatalf("%s is not struck by %s", id, strike)
	}
	delete(c.nodes, id)
	exit, ok := errors.AsType[*exec.ExitError](p.err)
	if status, isStatus := exit.Sys().(syscall.WaitStatus); !ok || !isStatus || status.Signal() != syscall.SIGKILL {
		c.t.Fatalf("%s ended by itself: %v", id, p.err)
	}
}
