//go:build linux

package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/jobs"
)

// crashURL makes this test binary run a node, which the test kills.
const crashURL = "FORGE_TEST_CRASH_URL"

const crashIncarnation = "00000000000000cc"

func TestMain(m *testing.M) {
	if url := os.Getenv(crashURL); url != "" {
		if err := runCrashNode(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(m)
}

func runCrashNode(url string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	runner, err := jobs.New(jobs.Options{
		Pool: pool, NodeID: nodeID, Incarnation: crashIncarnation, Slots: 1, ClusterURL: url,
		Jobs: map[string]config.Job{
			"quick": shell("echo $PPID"),
			"tree":  shell("setsid sleep 320 & echo $!; sh -c 'sleep 321 & echo $!; wait' & echo $$; wait"),
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Metrics: metrics.New("test"),
	})
	if err != nil {
		return err
	}
	return runner.Run(context.Background())
}

// startCrashNode starts a node in another process and adds a job for it.
func startCrashNode(t *testing.T, kind string) (n *node, process *osexec.Cmd, id int64) {
	t.Helper()
	url := pgtest.URL(t)
	n = &node{pool: pgtest.Connect(t, url), incarnation: crashIncarnation, credits: listen(t, url)}
	exec(t, n.pool, `INSERT INTO forge_leaders (role, term) VALUES ('scheduler', $1)`, term)
	exec(t, n.pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ($1, $2)`, nodeID, crashIncarnation)
	process = osexec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), crashURL+"="+url)
	process.Stderr = t.Output()
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	n.awaitListening(t)
	inserter, err := jobs.NewInserter(n.pool, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err = inserter.Insert(t.Context(), jobstore.NewJob{Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	n.offer(t, id)
	return n, process, id
}

func TestKilledNodeLeavesNoProcess(t *testing.T) {
	t.Parallel()
	n, process, id := startCrashNode(t, "tree")
	var pids []string
	eventually(t, func() bool {
		pids = strings.Fields(n.logs(t, id, 1, jobstore.StreamStdout))
		return len(pids) == 3
	}, func() string { return fmt.Sprintf("the job never began: %v", pids) })

	_ = process.Process.Kill()
	_ = process.Wait()
	for _, pid := range pids {
		wantGone(t, pid)
	}
	n.finish(t, id, "running") // the killed node could not change the state
}

// A shim that waits for its next command ends with its node.
func TestKilledNodeLeavesNoIdleShim(t *testing.T) {
	t.Parallel()
	n, process, id := startCrashNode(t, "quick")
	n.finish(t, id, "completed")
	shim := strings.TrimSpace(n.logs(t, id, 1, jobstore.StreamStdout))
	if _, err := os.Stat("/proc/" + shim); err != nil {
		t.Errorf("the shim %q does not wait for another command: %v", shim, err)
	}
	_ = process.Process.Kill()
	_ = process.Wait()
	wantGone(t, shim)
}
