package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// dev starts `forge dev` with three nodes in a directory of its own and waits
// for its banner.
func dev(t *testing.T, dir string) (p *process, listen string) {
	t.Helper()
	listen = freeAddress(t)
	env := []string{}
	if bin := pgtest.BinDir(); bin != "" {
		env = append(env, "PATH="+bin+":"+os.Getenv("PATH"))
	}
	p = launch(t, env, "dev", "--nodes", "3", "--config", "../../forge.toml.example",
		"--data-dir", dir, "--listen", listen)
	eventually(t, 90*time.Second, "the banner", func() bool {
		return strings.Contains(p.output.String(), "Ctrl-C")
	})
	return p, listen
}

// dataDir is a directory that PostgreSQL's own user may enter.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "forge-dev-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // no secrets in it
		t.Fatal(err)
	}
	return filepath.Join(dir, "data")
}

func TestDevRunsAClusterAndStopsItWhole(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p, listen := dev(t, dir)
	banner := p.output.String()
	for _, want := range []string{"http://" + listen, "node-1", "node-2", "node-3", "scheduler (term 1)", "log_compactor"} {
		if !strings.Contains(banner, want) {
			t.Errorf("no %q in the banner:\n%s", want, banner)
		}
	}
	body, err := os.ReadFile(filepath.Join(dir, "database-url"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, url: strings.TrimSpace(string(body))}
	c.pool = pgtest.Connect(t, c.url)
	eventually(t, 20*time.Second, "runs of the one-second cron", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE metadata ->> 'forge:cron' = 'pulse' AND state = 'completed'`) >= 3
	})

	// Killing the leader is the demonstration: another leads, the node returns.
	id, term := c.leader(0)
	pid := c.number(`SELECT pid FROM forge_nodes WHERE node_id = $1`, id)
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.leader(term)
	eventually(t, 20*time.Second, "the killed node is back", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE state = 'active' AND pid <> $1`, pid) == 3
	})
	stdout, _, code := c.forge("leader", "status", "-o", "json")
	if leaders := decode[[]leaderstore.Leader](t, stdout); code != 0 || len(leaders) != 3 {
		t.Errorf("leader status: exit %d, %s", code, stdout)
	}
	c.pool.Close()

	if seen := processesOf(t, dir, listen); len(seen) < 4 {
		t.Fatalf("the check for processes left behind sees only %d of a running cluster", len(seen))
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		t.Fatal("forge dev does not stop")
	}
	demandNothingLeft(t, dir, listen)

	// The data is still there the next time.
	again, _ := dev(t, dir)
	c.pool = pgtest.Connect(t, c.url)
	if _, next := c.leader(term); next <= term {
		t.Errorf("term %d after term %d: the data was not kept", next, term)
	}
	if err := again.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-again.done
	demandNothingLeft(t, dir, listen)
}

// demandNothingLeft waits until no process of the cluster lives.
func demandNothingLeft(t *testing.T, dir, listen string) {
	t.Helper()
	eventually(t, 10*time.Second, "every process of the cluster has gone", func() bool {
		return len(processesOf(t, dir, listen)) == 0
	})
}

// processesOf lists the processes whose command line names the data directory
// or one of the nodes' addresses.
func processesOf(t *testing.T, dir, listen string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	first, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	marks := []string{dir}
	for i := range 3 {
		marks = append(marks, net.JoinHostPort(host, strconv.Itoa(first+i)))
	}
	return processesWith(t, marks...)
}

// processesWith lists the command lines that hold one of the marks.
func processesWith(t *testing.T, marks ...string) []string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatalf("this test reads /proc: %v", err)
	}
	for _, entry := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue // not a process, or gone meanwhile
		}
		for _, mark := range marks {
			if strings.Contains(string(line), mark) {
				found = append(found, string(line))
			}
		}
	}
	return found
}
