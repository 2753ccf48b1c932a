package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// config has what the pages may have to show and to do, names that are hard to fit
// among it. Alerts tell the receiver at the address that it is formatted with.
const config = `
[cluster.leader_election]
lease_duration = "15s"

[metrics]
scrape_interval = "1s"

[queues.side]
max_workers = 2

[jobs.sleeper]
kind = "shell"
command = ["sleep", "600"]

[jobs.broken]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.doomed]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.lasting]
kind = "shell"
command = ["false"]
retry = { max_attempts = 1 }

[jobs.bulky]
kind = "shell"
command = ["true"]

[jobs.order]
kind = "shell"
command = ["true"]
schema = { type = "object", required = ["customer"], properties = { customer = { type = "string", title = "Customer", description = "Who ordered." }, speed = { enum = ["slow", "fast"], default = "slow" }, count = { type = "integer" } } }

[notify.hook]
type = "webhook"
url = %q

[[alerts]]
name = "quiet"
condition = "sum(forge_leader_is_leader) > 100"
notify = ["hook"]

[[crons]]
name = "pulse"
schedule = "@every 1s"
command = ["date"]

[[crons]]
name = "a-name-as-long-as-names-get-in-the-wild-and-then-some-more-of-it"
schedule = "*/5 * * * * *"
command = ["printf", "%%0300d", "1"]
`

// patience is for whatever must come in the end.
const patience = nodes.Patience

var forgeBinary = sync.OnceValues(func() (string, error) { return nodes.Build(binaries, "cmd/forge") })

// node is a running `forge serve`.
type node struct {
	id, listen string
	process    *nodes.Process
	// grave is the page of the group of a dead letter that stays.
	grave string
}

func (n *node) url(path string) string { return "http://" + n.listen + path }

// startNodes runs nodes on a database of their own until the test ends. Their alerts
// tell the receiver.
func startNodes(t *testing.T, receiver string, ids ...string) []*node {
	t.Helper()
	binary, err := forgeBinary()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(config, receiver)), 0o600); err != nil {
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
	dead := first.enqueue(t, `{"kind": "lasting"}`)
	nodes.Eventually(t, patience, fmt.Sprintf("job %d has died", dead), func() bool {
		first.grave = deadGroup(first)
		return first.grave != ""
	})
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

// job is what the API says of a job.
type job struct {
	ID      int64          `json:"id"`
	State   string         `json:"state"`
	Attempt int            `json:"attempt"`
	Args    map[string]any `json:"args"`
}

// enqueue adds a job, and returns its id.
func (n *node) enqueue(t *testing.T, body string) int64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url("/api/v1/jobs"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var added job
	if err := json.NewDecoder(response.Body).Decode(&added); err != nil || added.ID == 0 {
		t.Fatalf("enqueue %s: %s, %v", body, response.Status, err)
	}
	return added.ID
}

// awaitJob waits until a job is as it should be.
func (n *node) awaitJob(t *testing.T, id int64, what string, is func(job) bool) {
	t.Helper()
	nodes.Eventually(t, patience, fmt.Sprintf("job %d is %s", id, what), func() bool {
		var now job
		return n.get(fmt.Sprintf("/api/v1/jobs/%d", id), &now) == nil && is(now)
	})
}

// inState is for awaitJob.
func inState(state string) (what string, is func(job) bool) {
	return state, func(j job) bool { return j.State == state }
}
