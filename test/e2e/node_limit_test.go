package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// nodeLimits has jobs that end when they are told to.
const nodeLimits = `
[node]
slots = 4

[queues.scans]
max_workers_per_key = { key = "args.device", limit = 1 }

[queues.critical]
%[2]s

[jobs.scan]
kind = "shell"
queue = "scans"
command = ["sh", "-c", "until [ -e %[1]s/go ]; do sleep 0.05; done"]

[jobs.bulk]
kind = "shell"
command = ["sh", "-c", "until [ -e %[1]s/go ]; do sleep 0.05; done"]

[jobs.urgent]
kind = "shell"
queue = "critical"
command = ["true"]
`

// Each node runs as many jobs of a value as it may, and keeps the slots that a queue reserves
// for its jobs. An edited file changes both.
func TestLimitsOfNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newCluster(t, fmt.Sprintf(nodeLimits, dir, "reserve = 2")+unhurried)
	c.start("a")
	running := func(kind string) int64 {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'running' AND kind = $1`, kind)
	}
	await := func(kind string, jobs int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d jobs of kind %s to run", jobs, kind), func() bool { return running(kind) == jobs })
	}
	for range 3 {
		c.enqueue("scan", "--args", `{"device": "x"}`)
	}
	await("scan", 1)
	c.start("b")
	await("scan", 2)
	perNode := c.number(`SELECT count(DISTINCT attempted_by[1]) FROM river_job WHERE state = 'running' AND kind = 'scan'`)
	if perNode != 2 {
		t.Errorf("the scans run on %d nodes, want 2", perNode)
	}
	c.demand(0, `no node may run more such jobs at once`, "job", "explain", c.waiting("scan"))
	c.demand(0, `max_workers_per_key of 1 running jobs of queue scans with args.device = "x": job `, "job", "explain", c.waiting("scan"))

	for range 8 {
		c.enqueue("bulk")
	}
	await("bulk", 2) // four slots on each node: one scan, two reserved
	c.demand(0, "reserves the others for other queues", "job", "explain", c.waiting("bulk"))
	c.enqueue("urgent")
	eventually(t, "the urgent job to have run", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'urgent' AND state = 'completed'`) == 1
	})
	if n := running("bulk"); n != 2 {
		t.Errorf("%d bulk jobs run, want 2", n)
	}
	c.demand(0, "2 slots reserved per node", "queue", "show", "critical")
	c.demand(0, "args.device, per node", "queue", "limits")

	if err := os.WriteFile(c.config, []byte(fmt.Sprintf(nodeLimits, dir, "")+unhurried), 0o600); err != nil {
		t.Fatal(err)
	}
	c.demand(0, "", "apply", "--yes", "--config", c.config)
	await("bulk", 6)
	if n := running("scan"); n != 2 {
		t.Errorf("%d scans run, want 2", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all jobs to end", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state <> 'completed'`) == 0
	})
}

// waiting returns the id of a waiting job of a kind.
func (c *cluster) waiting(kind string) string {
	c.t.Helper()
	return fmt.Sprint(c.number(`SELECT max(id) FROM river_job WHERE state = 'available' AND kind = $1`, kind))
}
