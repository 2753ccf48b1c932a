package browser_test

import (
	"fmt"
	"testing"

	"github.com/forge-scheduler/forge/test/nodes"
)

// checkDrain does the task "drain a node and know when it may stop", while a job runs there.
func checkDrain(t *testing.T, n *node) {
	t.Helper()
	id := enqueueOn(t, n, "south")
	k := &task{T: t, node: n, tab: newTab(t)}
	open(t, k.tab, n.url("/"))
	k.click(`#nodes a.node[href="/nodes/south"]`)
	k.click(`a[href="/nodes/south/drain"]`)
	k.click("#act-move button")
	wantSaid(t, k.tab, "south is drained")
	k.reads(".stop", "Not safe to stop yet. 1 job runs")
	n.post(t, fmt.Sprintf("/api/v1/jobs/%d/cancel", id), "{}")
	k.reads(".stop.safe", "Safe to stop now. It leads no role and runs no job.")
	if k.clicks > mostClicks {
		t.Errorf("it took %d clicks, want at most %d", k.clicks, mostClicks)
	}
	n.post(t, "/api/v1/nodes/south/undrain", "")
	awaitTrue(t, k.tab, `document.querySelector(".stop") === null`)
}

// enqueueOn starts a job that runs until it is cancelled, and that a node got.
func enqueueOn(t *testing.T, n *node, id string) int64 {
	t.Helper()
	var found int64
	var others []int64
	defer func() {
		for _, other := range others {
			n.post(t, fmt.Sprintf("/api/v1/jobs/%d/cancel", other), "{}")
		}
	}()
	// The leader may not know yet that a node is no longer drained.
	nodes.Eventually(t, waitTimeout, "a job runs on "+id, func() bool {
		added := n.enqueue(t, `{"kind": "sleeper"}`)
		var now struct {
			NodeID string `json:"node_id"`
			State  string `json:"state"`
		}
		path := fmt.Sprintf("/api/v1/jobs/%d", added)
		nodes.Eventually(t, waitTimeout, "the job runs", func() bool { return n.get(path, &now) == nil && now.State == "running" })
		if now.NodeID == id {
			found = added
			return true
		}
		others = append(others, added)
		return false
	})
	return found
}
