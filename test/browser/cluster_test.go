package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// waitTimeout is for whatever must come in the end.
const waitTimeout = nodes.WaitTimeout

var forgeBinary = sync.OnceValues(func() (string, error) { return nodes.Build(binaries, "cmd/forge") })

// node is a running `forge serve`.
type node struct {
	id, listen string
	process    *nodes.Process
	// config is the file that it reads, database what it is told of its database.
	config, database string
	// grave is the page of the group of a dead letter that stays.
	grave string
	// pit is that of one with a hostile name and error, whose job is worst.
	pit   string
	worst int64
}

func (n *node) url(path string) string { return "http://" + n.listen + path }

// launch starts the node at an address, with more in its environment.
func (n *node) launch(t *testing.T, listen string, more ...string) *nodes.Output {
	t.Helper()
	binary, err := forgeBinary()
	if err != nil {
		t.Fatal(err)
	}
	var output *nodes.Output
	n.process, output = nodes.Launch(t, binary, append(more, n.database), "serve", "--config", n.config, "--node-id", n.id, "--listen", listen)
	return output
}

// await waits until the node is ready.
func (n *node) await(t *testing.T, output *nodes.Output) {
	t.Helper()
	n.process.AwaitReady(t, output)
	n.listen = output.Address()
}

// beside is a node on the same database.
func (n *node) beside(id string) *node { return &node{id: id, config: n.config, database: n.database} }

// startNodes runs nodes on a database of their own until the test ends. Their alerts
// tell the receiver.
func startNodes(t *testing.T, receiver string, ids ...string) []*node {
	t.Helper()
	first := &node{config: filepath.Join(t.TempDir(), "forge.toml"), database: "FORGE_DATABASE_URL=" + pgtest.URL(t)}
	if err := os.WriteFile(first.config, []byte(config(receiver)), 0o600); err != nil {
		t.Fatal(err)
	}
	first.addHistory(t)
	started, outputs := make([]*node, len(ids)), make([]*nodes.Output, len(ids))
	for i, id := range ids {
		started[i] = first.beside(id)
		outputs[i] = started[i].launch(t, nodes.AnyPort)
	}
	for i, n := range started {
		n.await(t, outputs[i])
	}
	first = started[0]
	nodes.Eventually(t, waitTimeout, "every role is led and a job ran", func() bool { return led(first) == 3 && lastJob(first) != 0 })
	first.addDeadLetters(t)
	first.addJobs(t)
	first.makeToken(t, "reader", "viewer") // what the page of the tokens shows
	return started
}

// addDeadLetters has dead letters die that stay: one as they usually are, and hostile ones.
func (n *node) addDeadLetters(t *testing.T) {
	t.Helper()
	n.enqueue(t, `{"kind": "lasting"}`)
	n.enqueue(t, `{"kind": "wordy", "args": {"<b>`+endless+`</b>": "\u001b[31m \u202e `+endless+`"}}`)
	n.post(t, "/api/v1/crons/"+url.PathEscape(hostile)+"/trigger", "")
	n.post(t, "/api/v1/alerts/"+url.PathEscape(hostile)+"/silence", `{"for": "1h", "reason": "<b>`+endless[:200]+`"}`)
	nodes.Eventually(t, waitTimeout, "the jobs have died", func() bool {
		n.grave, n.pit, n.worst = deadGroup(n, "lasting"), deadGroup(n, hostile), deadJob(n, hostile)
		return n.grave != "" && n.pit != "" && n.worst != 0 && deadGroup(n, "wordy") != ""
	})
}

// post sends a document to the API, and returns the answer.
func (n *node) post(t *testing.T, path, body string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("POST %s: %s, %v\n%s", path, response.Status, err, answer)
	}
	return answer
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
	var added job
	if err := json.Unmarshal(n.post(t, "/api/v1/jobs", body), &added); err != nil || added.ID == 0 {
		t.Fatalf("enqueue %s: %v", body, err)
	}
	return added.ID
}

// awaitJob waits until a job is as it should be.
func (n *node) awaitJob(t *testing.T, id int64, what string, is func(job) bool) {
	t.Helper()
	nodes.Eventually(t, waitTimeout, fmt.Sprintf("job %d is %s", id, what), func() bool {
		var now job
		return n.get(fmt.Sprintf("/api/v1/jobs/%d", id), &now) == nil && is(now)
	})
}

// inState is for awaitJob.
func inState(state string) (what string, is func(job) bool) {
	return state, func(j job) bool { return j.State == state }
}
