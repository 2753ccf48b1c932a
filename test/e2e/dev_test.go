package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// dev starts `forge dev` with three nodes in a directory of its own and waits
// for its banner.
func dev(t *testing.T, dir string) (p *process, listen string) {
	t.Helper()
	listen = threeFreePorts(t)
	env := []string{}
	if bin := pgtest.BinDir(); bin != "" {
		env = append(env, "PATH="+bin+":"+os.Getenv("PATH"))
	}
	p = launch(t, env, "dev", "--nodes", "3", "--config", ownExample(t, dir), "--data-dir", dir, "--listen", listen)
	eventually(t, "the banner", func() bool {
		return strings.Contains(p.output.String(), "Ctrl-C")
	})
	return p, listen
}

// threeFreePorts returns an address whose port is free, as are the next two. They are below
// those that the system gives to whoever asks for any port, so no other test gets them.
func threeFreePorts(t *testing.T) string {
	t.Helper()
	free := func(port int) bool {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil && listener.Close() == nil
	}
	for range 100 {
		port := 20_000 + 3*rand.IntN(3000)
		if free(port) && free(port+1) && free(port+2) {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	t.Fatal("no three free ports")
	return ""
}

// ownExample copies the example beside the data: the nodes' command lines name it.
func ownExample(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile("../../forge.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	path := dir + ".toml"
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDevRunsAClusterAndStopsItWhole(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(nodes.OpenDir(t), "data")
	p, listen := dev(t, dir)
	banner := p.output.String()
	for _, want := range []string{"http://" + listen, "node-1", "node-2", "node-3", "scheduler (term ", "log_compactor"} {
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
	eventually(t, "runs of the one-second cron", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE metadata ->> 'forge:cron' = 'pulse' AND state = 'completed'`) >= 3
	})

	// Killing the leader is the demonstration: another leads, the node returns.
	id, term := c.leader(0)
	pid := c.number(`SELECT pid FROM forge_nodes WHERE node_id = $1`, id)
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.leader(term)
	eventually(t, "the killed node is back", func() bool {
		return c.number(`SELECT count(*) FROM forge_nodes WHERE state = 'active' AND pid <> $1`, pid) == 3
	})
	stdout, _, code := c.forge("leader", "status", "-o", "json")
	if leaders := decode[[]leaderstore.Leader](t, stdout); code != 0 || len(leaders) != 3 {
		t.Errorf("leader status: exit %d, %s", code, stdout)
	}
	c.pool.Close()

	if seen := processesWith(t, dir); len(seen) < 4 {
		t.Fatalf("the check for processes left behind sees only %d of a running cluster", len(seen))
	}
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("forge dev does not stop")
	}
	demandNothingLeft(t, dir)

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
	demandNothingLeft(t, dir)
}

// demandNothingLeft waits until no process of the cluster lives: each names the
// directory or the file beside it.
func demandNothingLeft(t *testing.T, dir string) {
	t.Helper()
	eventually(t, "every process of the cluster has gone", func() bool {
		return len(processesWith(t, dir)) == 0
	})
}

// marks counts what unique has returned.
var marks atomic.Int64

// unique is a number for command lines that no other process has, not even of
// another run of these tests.
func unique() string { return fmt.Sprintf("%d%06d", marks.Add(1), os.Getpid()) }

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
