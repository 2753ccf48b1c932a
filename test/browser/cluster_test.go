package browser_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// config has what the pages may have to show, names that are hard to fit among
// it.
const config = `
[cluster.leader_election]
lease_duration = "15s"

[[crons]]
name = "pulse"
schedule = "@every 1s"
command = ["date"]

[[crons]]
name = "a-name-as-long-as-names-get-in-the-wild-and-then-some-more-of-it"
schedule = "*/5 * * * * *"
command = ["printf", "%0300d", "1"]
`

// patience is for whatever must come in the end.
const patience = nodes.Patience

var forgeBinary = sync.OnceValues(func() (string, error) { return nodes.Build(binaries, "cmd/forge") })

// node is a running `forge serve`.
type node struct {
	id, listen string
	process    *nodes.Process
}

func (n *node) url(path string) string { return "http://" + n.listen + path }

// startNodes runs nodes on a database of their own until the test ends.
func startNodes(t *testing.T, ids ...string) []*node {
	t.Helper()
	binary, err := forgeBinary()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	database := "FORGE_DATABASE_URL=" + pgtest.URL(t)
	started, outputs := make([]*node, len(ids)), make([]*nodes.Output, len(ids))
	for i, id := range ids {
		started[i] = &node{id: id}
		started[i].process, outputs[i] = nodes.Launch(t, binary, []string{database}, "serve", "--config", path, "--node-id", id, "--listen", nodes.AnyPort)
	}
	for i, n := range started {
		n.process.AwaitReady(t, outputs[i])
		n.listen = outputs[i].Address()
	}
	first := started[0]
	nodes.Eventually(t, patience, "every role is led and a job ran", func() bool { return led(first) == 3 && lastJob(first) != 0 })
	return started
}

func (n *node) get(path string, into any) error {
	return nodes.Read(context.Background(), n.listen, path, into)
}

// led counts the roles that somebody leads.
func led(n *node) (count int) {
	var list struct {
		Items []struct {
			NodeID string `json:"node_id"`
		}
	}
	_ = n.get("/api/v1/leaders", &list) // none, then
	for _, leader := range list.Items {
		if leader.NodeID != "" {
			count++
		}
	}
	return count
}

// leader is the node that leads the scheduler, empty when none does.
func leader(n *node) string {
	var status struct {
		LeaderID string `json:"leader_id"`
	}
	if n.get("/cluster/status", &status) != nil {
		return ""
	}
	return status.LeaderID
}

// lastJob is the newest job that has finished, 0 when there is none.
func lastJob(n *node) int64 {
	var list struct {
		Items []struct {
			ID int64 `json:"id"`
		}
	}
	if n.get("/api/v1/jobs?state=completed&limit=1", &list) != nil || len(list.Items) == 0 {
		return 0
	}
	return list.Items[0].ID
}
