package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// config has what the pages may have to show, names that are hard to fit among
// it.
const config = `
[[crons]]
name = "pulse"
schedule = "@every 1s"
command = ["date"]

[[crons]]
name = "a-name-as-long-as-names-get-in-the-wild-and-then-some-more-of-it"
schedule = "*/5 * * * * *"
command = ["printf", "%0300d", "1"]
`

var forgeBinary = sync.OnceValues(func() (path string, err error) {
	if path, err = filepath.Abs(filepath.Join(binaries, "forge")); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", path, "../../cmd/forge").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build forge: %w\n%s", err, out)
	}
	return path, nil
})

// node is a running `forge serve`.
type node struct {
	id, listen string
	cmd        *exec.Cmd
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
	environ := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "FORGE_") || strings.HasPrefix(pair, "DATABASE_URL=")
	})
	environ = append(environ, "FORGE_DATABASE_URL="+pgtest.URL(t))
	nodes := make([]*node, 0, len(ids))
	for _, id := range ids {
		n := &node{id: id, listen: freeAddress(t)}
		n.cmd = exec.Command(binary, "serve", "--config", path, "--node-id", id, "--listen", n.listen)
		n.cmd.Env = environ
		if err := n.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.kill)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		eventually(t, n.id+" is ready", func() bool { return n.get("/readyz", nil) == nil })
	}
	eventually(t, "a scheduler leads and a job ran", func() bool { return leader(nodes[0]) != "" && lastJob(nodes[0]) != 0 })
	return nodes
}

// kill is kill -9; a second time it does nothing.
func (n *node) kill() {
	_ = n.cmd.Process.Kill() // it may be gone
	_ = n.cmd.Wait()         // killed is an error
}

func (n *node) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url(path), http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
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

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	const patience = 20 * time.Second
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
