package assign_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// apply applies a configuration with one job that runs a command. It returns the digest
// of the job's definition.
func (c *cluster) apply(t *testing.T, command string) (digest string) {
	t.Helper()
	body := []byte(`{"jobs": {"k": {"kind": "shell", "command": ["` + command + `"]}}}`)
	outcome, err := cronstore.New(c.pool).Apply(t.Context(), cronstore.Applied{Hash: command, NodeID: "a", Body: body}, true)
	if err != nil || outcome.State != cronstore.StateApplied {
		t.Fatalf("apply: %+v, %v", outcome, err)
	}
	digests, err := config.Definitions(body)
	if err != nil {
		t.Fatal(err)
	}
	return digests["k"]
}

// A job goes only to nodes with the applied definition, even after the configuration
// changes and changes back. A worker of the same name with another definition does not
// get it.
func TestJobsGoToNodesWithAppliedDefinition(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	edited := c.apply(t, "new")
	first := c.apply(t, "old")
	kinds := []string{"go", "k"}
	older := c.join(t, nodestore.Node{NodeID: "a", Slots: 100, Kinds: kinds, Definitions: map[string]string{"k": first}})
	newer := c.join(t, nodestore.Node{NodeID: "b", Slots: 100, Kinds: kinds, Definitions: map[string]string{"k": edited}})
	undefined := c.join(t, nodestore.Node{NodeID: "c", Slots: 100, Kinds: []string{"k"}})
	c.lead(t, fence, assign.LeastLoaded)
	allClaimed := func(what string) {
		t.Helper()
		c.waitFor(t, what, func() bool { return c.count(t, "state = 'available'") == 0 })
	}

	c.insert(t, 10, "k", "default", "")
	allClaimed("jobs under the first definition")
	if older.claimed() != 10 {
		t.Fatalf("claimed by the node that holds it: %d of 10", older.claimed())
	}
	c.apply(t, "new")
	c.insert(t, 10, "k", "default", "")
	allClaimed("jobs under the second definition")
	if older.claimed() != 10 || newer.claimed() != 10 {
		t.Fatalf("claimed: %d by the old file, %d by the new one; want 10 each", older.claimed(), newer.claimed())
	}
	c.apply(t, "old")
	c.insert(t, 10, "k", "default", "")
	allClaimed("jobs under the first definition again")
	if older.claimed() != 20 || undefined.claimed() != 0 {
		t.Errorf("claimed: %d by the old file, %d by a node that defines nothing; want 20 and 0", older.claimed(), undefined.claimed())
	}
}

// A job whose definition no node has waits, and does not delay other jobs.
func TestJobsWaitForTheirDefinition(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	edited := c.apply(t, "new")
	node := nodestore.Node{
		NodeID: "a", Slots: 100, Kinds: []string{"go", "k"}, Definitions: map[string]string{"k": "other"},
		Queues: map[string]int{"default": 100},
	}
	fake := c.join(t, node)
	c.lead(t, fence, assign.LeastLoaded)
	c.insert(t, 3, "k", "default", "")
	c.insert(t, 5, "go", "default", "")
	c.waitFor(t, "the jobs of the Go program's own worker", func() bool { return c.count(t, "state = 'running'") == 5 })
	if n := c.count(t, "kind = 'k' AND state = 'available'"); n != 3 {
		t.Fatalf("%d jobs wait, want 3", n)
	}
	node.Incarnation, node.Definitions = fake.node.Incarnation, map[string]string{"k": edited}
	if err := nodestore.New(c.pool).Reconfigure(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	c.waitFor(t, "the waiting jobs", func() bool { return c.count(t, "state = 'available'") == 0 })
}
