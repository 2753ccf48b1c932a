package e2e

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A leader is stopped with a tick in flight, another one takes over, and it
// wakes: it writes nothing more in the name of its term. Its own clock and its
// broken session would tell it; here the round under way hears of neither, so that
// the server alone refuses.
func TestWokenLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	program := failpointBinary(t)
	for _, place := range []string{"crons/before-fence", "crons/before-commit"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, everySecond+steady)
			woken := c.wakeLeader(program, place, "crons/cancel", "sleep:2s")
			c.awaitTicks(woken.next)       // two seconds, and more, in which it could have written
			c.signal("a", syscall.SIGKILL) // its work cannot be told to end
			<-c.nodes["a"].done
			delete(c.nodes, "a")
			c.settle()
			c.demandEveryTickOnce("second")
			if n := c.writtenBy(woken.term); n != woken.written {
				t.Errorf("%d rows bear the term that was over; %d did when its leader slept", n, woken.written)
			}
		})
	}
}

// unheard keeps a node that is not heard of from being taken for dead, and its
// connections from being ended.
const unheard = `
[cluster]
heartbeat_interval = "10m"
dead_threshold = "1h"
`

// woken is a leader that was stopped and goes on after its term was over.
type woken struct {
	term, next int64
	written    int64 // rows that bore its term when it slept
}

// wakeLeader stops a leader at a place after its first ticks, and wakes it when
// another one leads, which does something else before its first tick. The stopped
// one does without some protections.
func (c *cluster) wakeLeader(program, place, without, successor string) woken {
	c.t.Helper()
	order := filepath.Join(c.t.TempDir(), "order")
	c.startProgram(program, "a", "FORGE_FAILPOINTS=@"+order, "FORGE_FAILPOINTS_OFF="+without)
	_, term := c.leader(0)
	c.startProgram(program, "b", "FORGE_FAILPOINTS=crons/before-fence="+successor+"@1")
	c.awaitTicks(term)
	rewrite(c.t, order, place+"=stop")
	id, next := c.leader(term)
	if id != "b" {
		c.t.Fatalf("%s leads term %d", id, next)
	}
	w := woken{term: term, next: next, written: c.writtenBy(term)}
	c.signal("a", syscall.SIGCONT)
	return w
}

// writtenBy counts what a term has recorded and inserted.
func (c *cluster) writtenBy(term int64) int64 {
	c.t.Helper()
	return c.number(`SELECT (SELECT count(*) FROM forge_cron_ticks WHERE term = $1)
		+ (SELECT count(*) FROM river_job j JOIN forge_cron_ticks t ON t.job_id = j.id WHERE t.term = $1)`, term)
}
