package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// reserving keeps a role that is transferred for its new leader for longer, should the
// machine be slow.
const reserving = "check_interval = \"2s\"\n"

// Operators move a role about: each hand-over is named in the history, ends with
// a successor and costs no tick.
func TestOperatorsHandOverWithoutLosingATick(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leader")
	c := newCluster(t, everySecond+steady+"leader_file = \""+file+"\"\n"+reserving)
	c.startAll("a", "b", "c")
	watch := launch(t, []string{"FORGE_DATABASE_URL=" + c.url}, "leader", "watch", "--role", "scheduler", "-o", "json")
	id, term := c.leader(0)
	eventually(t, "the watch has begun", func() bool { return strings.Contains(watch.output.String(), `"leads"`) })

	target := other(id)
	first := c.handsOver("leader", "transfer", "scheduler", "--to", target)
	if first.NodeID != target || first.Term <= term {
		t.Fatalf("transferred to %s in term %d", first.NodeID, first.Term)
	}
	eventually(t, "the leader file names "+target, func() bool {
		line, err := os.ReadFile(file)
		return err == nil && string(line) == target+"\n"
	})
	c.awaitTicks(first.Term)
	second := c.handsOver("leader", "step-down", "scheduler")
	if second.NodeID == first.NodeID {
		t.Fatalf("%s stepped down and leads again", first.NodeID)
	}
	third := c.handsOver("leader", "transfer", "scheduler", "--to", first.NodeID) // which would leave it to others yet
	if third.NodeID != first.NodeID || third.Term != second.Term+1 {
		t.Fatalf("transferred to %s, in term %d after %d", third.NodeID, third.Term, second.Term)
	}
	if gap := c.number(`SELECT extract(epoch FROM next.acquired_at - last.ended_at)::bigint FROM forge_leader_history last, forge_leader_history next
		WHERE last.role = 'scheduler' AND next.role = last.role AND last.term = $1 AND next.term = $2`, second.Term, third.Term); gap > 3 {
		t.Errorf("nobody led for %d s: %s waited until it would stand again", gap, third.NodeID)
	}
	c.awaitTicks(third.Term)
	c.drains(third.NodeID)
	_, last := c.leader(third.Term)
	eventually(t, "a lease has passed: a leader that works keeps its role", func() bool {
		return c.number(`SELECT count(*) FROM forge_leaders WHERE role = 'scheduler' AND renewed_at > acquired_at + interval '6 s'`) == 1
	})

	c.tenureEnded(term, "transferred")
	c.tenureEnded(first.Term, "stepped_down")
	c.tenureEnded(second.Term, "transferred")
	c.tenureEnded(third.Term, "stepped_down")
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND term > $1`, last); n != 0 {
		t.Errorf("%d terms after the last hand-over", n)
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history
		WHERE role <> 'scheduler' AND end_reason IS NOT NULL`); n > 2 {
		t.Errorf("the other roles changed hands %d times; want once each at most, by the drain", n)
	}
	for _, want := range []string{`"lost"`, `"elected"`, `"transferred"`, `"stepped_down"`, `"node_id":"` + target + `"`} {
		eventually(t, "the watch tells "+want, func() bool { return strings.Contains(watch.output.String(), want) })
	}
	c.settle()
	c.demandEveryTickOnce("second")
}

func other(id string) string {
	if id == "a" {
		return "b"
	}
	return "a"
}

// handsOver runs a command that prints the successor.
func (c *cluster) handsOver(args ...string) leaderstore.Leader {
	c.t.Helper()
	began := time.Now()
	out, errs, code := c.forge(append(args, "-o", "json")...)
	if code != 0 {
		c.t.Fatalf("forge %v: exit %d: %s%s", args, code, out, errs)
	}
	c.t.Logf("forge %v: %v", args, time.Since(began))
	return decode[leaderstore.Leader](c.t, out)
}

func (c *cluster) tenureEnded(term int64, reason string) {
	c.t.Helper()
	if n := c.number(`SELECT count(*) FROM forge_leader_history
		WHERE role = 'scheduler' AND term = $1 AND end_reason = $2`, term, reason); n != 1 {
		c.t.Errorf("term %d did not end as %s", term, reason)
	}
}

// drains takes every role from a node, which stays a node, and gives it back to
// the cluster.
func (c *cluster) drains(id string) {
	c.t.Helper()
	out, errs, code := c.forge("node", "drain", id, "-o", "json")
	if code != 0 || decode[nodestore.Node](c.t, out).State != nodestore.Draining {
		c.t.Fatalf("drain: exit %d: %s%s", code, out, errs)
	}
	led := func() int64 { return c.number(`SELECT count(*) FROM forge_leaders WHERE node_id = $1`, id) }
	if n := led(); n != 0 {
		c.t.Errorf("the drained node leads %d roles", n)
	}
	_, errs, code = c.forge("leader", "transfer", "scheduler", "--to", id)
	if code != 4 || !strings.Contains(errs, "draining") {
		c.t.Errorf("transfer to a drained node: exit %d: %s", code, errs)
	}
	time.Sleep(7 * time.Second) // longer than it stands back in any case
	if n := led(); n != 0 {
		c.t.Errorf("the drained node took %d roles back", n)
	}
	out, errs, code = c.forge("node", "undrain", id, "-o", "json")
	if code != 0 || decode[nodestore.Node](c.t, out).State != nodestore.Active {
		c.t.Fatalf("undrain: exit %d: %s%s", code, out, errs)
	}
}

func TestHandOversThatCannotBe(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.start("a")
	id, term := c.leader(0)
	c.awaitRoles("a")
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation, roles, last_heartbeat_at)
		VALUES ('w', '00000000000000aa', '{worker}', now() + interval '1 h')`)
	c.exec(`INSERT INTO forge_nodes (node_id, incarnation, roles, last_heartbeat_at)
		VALUES ('mute', '00000000000000ab', '{scheduler}', now() + interval '1 h')`)
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"leader", "step-down", "nothing"}, 4, "scheduler, metrics_aggregator, log_compactor"},
		{[]string{"leader", "step-down", "metrics_aggregator"}, 4, "no other node can lead"},
		{[]string{"leader", "transfer", "scheduler"}, 2, "--to"},
		{[]string{"leader", "transfer", "scheduler", "--to", "nobody"}, 4, "no node"},
		{[]string{"leader", "transfer", "scheduler", "--to", "w"}, 4, "node.roles"},
		{[]string{"leader", "transfer", "scheduler", "--to", id}, 0, ""},
		{[]string{"node", "drain", "nobody"}, 4, "no node"},
		{[]string{"node", "drain", "a"}, 4, "no other node can lead"},
		{[]string{"node", "undrain", "nobody"}, 4, "no node"},
		// Nobody takes it, so it is this node's again, which is no successor. The leader
		// has to act before the request is withdrawn.
		{[]string{"leader", "step-down", "scheduler", "--timeout", "5s"}, 124, "scheduler"},
	} {
		out, errs, code := c.forge(test.args...)
		if code != test.code || !strings.Contains(errs, test.says) {
			t.Errorf("forge %v: exit %d, want %d: %s%s", test.args, code, test.code, out, errs)
		}
	}
	if _, again := c.leader(term); again <= term {
		t.Errorf("term %d", again)
	}
}
