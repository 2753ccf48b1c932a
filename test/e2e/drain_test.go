package e2e

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

const sleeperJob = `
[jobs.sleeper]
kind = "shell"
command = ["sleep", "600"]
`

// forge node drain --wait returns when stopping the node interrupts nothing, and gives up if a
// job runs for longer.
func TestDrainWaitsUntilTheNodeIsSafeToStop(t *testing.T) {
	t.Parallel()
	c := newCluster(t, sleeperJob+unhurried)
	c.startAll("a", "b")
	c.forge("node", "drain", "b", "--wait")
	type line struct {
		nodestore.Node
		handover.Duty
	}
	show := func(id string) line {
		out, errs, code := c.forge("node", "show", id, "-o", "json")
		if code != 0 {
			t.Fatalf("show: exit %d: %s", code, errs)
		}
		return decode[line](t, out)
	}
	if b := show("b"); !b.SafeToStop || b.State != nodestore.Draining || len(b.Leads) != 0 {
		t.Errorf("b after the drain: %+v", b)
	}
	c.awaitRoles("a") // a role may have had no leader when b was drained
	if a := show("a"); a.SafeToStop || len(a.Leads) != 3 {
		t.Errorf("a leads %v, and is safe to stop: %v", a.Leads, a.SafeToStop)
	}
	if out, errs, code := c.forge("job", "enqueue", "sleeper"); code != 0 {
		t.Fatalf("enqueue: exit %d: %s%s", code, out, errs)
	}
	eventually(t, "the job runs on a", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'sleeper' AND state = 'running'`) == 1
	})
	if out, errs, code := c.forge("node", "undrain", "b"); code != 0 {
		t.Fatalf("undrain: exit %d: %s%s", code, out, errs)
	}
	_, errs, code := c.forge("node", "drain", "a", "--wait", "--timeout", "15s")
	if code != 124 || !strings.Contains(errs, "a cannot be stopped safely yet: 1 job runs") {
		t.Errorf("drain with a running job: exit %d: %s", code, errs)
	}
	if list, _, _ := c.forge("node", "list"); !strings.Contains(list, "no: 1 job runs") {
		t.Errorf("the list:\n%s", list)
	}
	if out, errs, code := c.forge("job", "cancel", "--kind", "sleeper", "--yes"); code != 0 {
		t.Fatalf("cancel: exit %d: %s%s", code, out, errs)
	}
	if _, errs, code := c.forge("node", "drain", "a", "--wait"); code != 0 {
		t.Errorf("drain after the job: exit %d: %s", code, errs)
	}
	if _, errs, code := c.forge("node", "show", "c"); code != 4 || !strings.Contains(errs, "no node") {
		t.Errorf("show of an unknown node: exit %d: %s", code, errs)
	}
	c.stop("a")
	if n := c.number(`SELECT count(*) FROM river_job WHERE errors <> '{}' AND kind <> 'sleeper'`); n != 0 {
		t.Errorf("%d jobs were interrupted", n)
	}
}
