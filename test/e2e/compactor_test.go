package e2e

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

const (
	talkers = 60
	// talk adds finished jobs, each with 200 lines that are a quarter of an hour old:
	// four batches of the compactor.
	talk = `
WITH jobs AS (
    INSERT INTO river_job (id, kind, args, max_attempts, attempt, state, finalized_at)
    SELECT i, 'talk', '{}', 1, 1, 'completed', now() FROM generate_series(1, 60) i)
INSERT INTO forge_job_logs (job_id, attempt, seq, stream, chunk, at)
SELECT i, 1, seq, 'stdout', 'line ' || seq || ' of job ' || i || E'\n', now() - interval '15 minutes'
FROM generate_series(1, 60) i, generate_series(1, 200) seq`
)

// The compactor's leader dies while it merges: before it commits, and when it has
// committed and nobody knows yet. Another hangs, and goes on when its successor is
// done. Each time every line is there once.
func TestStruckCompactorLosesAndDoublesNoLine(t *testing.T) {
	t.Parallel()
	program := failpointBinary(t)
	c := newCluster(t, steady)
	c.must("migrate", "up")
	c.exec(talk)
	for i, strike := range []string{"before-commit=kill@1", "after-commit=kill@1", "before-commit=kill@2"} {
		id := fmt.Sprintf("k%d", i)
		c.doom(program, id, strike)
		c.awaitStrike(id, strike, 0)
		c.demandEveryLineOnce()
	}
	if n := c.number(`SELECT count(*) FROM forge_job_logs`); n == 0 || n == talkers*200 {
		t.Errorf("%d lines are not merged yet: no strike fell in the midst", n)
	}
	c.doom(program, "h", "before-commit=stop@1")
	eventually(t, "the leader hangs", func() bool { return stopped(c.nodes["h"].Process.Pid) })
	c.start("s")
	eventually(t, "another merges the rest", func() bool { return c.number(`SELECT count(*) FROM forge_job_logs`) == 0 })
	packs := c.number(`SELECT count(*) FROM forge_job_log_packs`)
	c.signal("h", syscall.SIGCONT)
	c.nodes["h"].AwaitReady(t, c.nodes["h"].output)
	c.stop("h") // its work is over now, whatever became of it
	c.demandEveryLineOnce()
	if n := c.number(`SELECT count(*) FROM forge_job_log_packs`); n != packs {
		t.Errorf("%d packs after a deposed leader went on; there were %d", n, packs)
	}
	c.demandReadable("s")
	c.demandStatus("s")
}

// demandStatus asks the command and the API what was merged. A pass is recorded at
// its end, which is after the merge.
func (c *cluster) demandStatus(id string) {
	c.t.Helper()
	eventually(c.t, "a pass is recorded", func() bool { return c.number(`SELECT count(*) FROM forge_compactions`) > 0 })
	out, stderr, code := c.forge("compact", "status", "-o", "json")
	if code != 0 {
		c.t.Fatalf("forge compact status: exit %d %s", code, stderr)
	}
	told := decode[compactor.Status](c.t, out)
	_, body, _ := get(c.nodes[id].listen(), "/api/v1/compaction")
	for from, status := range map[string]compactor.Status{"command": told, "API": decode[compactor.Status](c.t, string(body))} {
		merged := func(p compactor.Pass) bool { return p.NodeID == id && p.Chunks > 0 }
		if !slices.ContainsFunc(status.Passes, merged) || len(status.Tables) == 0 {
			c.t.Errorf("the %s says %+v", from, status)
		}
	}
	if out, _, code := c.forge("compact", "status"); code != 0 || !strings.Contains(out, "chunks") || !strings.Contains(out, "forge_job_log_packs") {
		c.t.Errorf("forge compact status: exit %d\n%s", code, out)
	}
}

// doom starts a node that is struck when it merges, maybe before it is ready.
func (c *cluster) doom(program, id, strike string) {
	c.t.Helper()
	c.nodes[id] = launchProgram(c.t, program, []string{"FORGE_FAILPOINTS=compactor/" + strike, "FORGE_DATABASE_URL=" + c.url},
		"serve", "--config", c.config, "--node-id", id, "--listen", nodes.AnyPort)
}

// stopped reads the state of a process: the field after the name, which may hold
// anything.
func stopped(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, found := strings.Cut(string(line), ") ")
	return err == nil && found && strings.HasPrefix(fields, "T")
}

// demandEveryLineOnce reads all output as everybody does.
func (c *cluster) demandEveryLineOnce() {
	c.t.Helper()
	for id := int64(1); id <= talkers; id++ {
		chunks, err := jobstore.New(c.pool).Logs(c.t.Context(), id, 1, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		var got, want strings.Builder
		for _, chunk := range chunks {
			fmt.Fprint(&got, chunk.Seq, " ", chunk.Chunk)
		}
		for seq := 1; seq <= 200; seq++ {
			fmt.Fprintf(&want, "%d line %d of job %d\n", seq, seq, id)
		}
		if got.String() != want.String() {
			c.t.Fatalf("job %d has\n%s", id, got.String())
		}
	}
}

// demandReadable asks the command, the API and the page for what is merged.
func (c *cluster) demandReadable(id string) {
	c.t.Helper()
	var all strings.Builder
	for seq := 1; seq <= 200; seq++ {
		fmt.Fprintf(&all, "line %d of job 7\n", seq)
	}
	for _, args := range [][]string{{"job", "logs", "7"}, {"job", "logs", "7", "--follow"}} {
		if out, stderr, code := c.forge(args...); code != 0 || out != all.String() {
			c.t.Errorf("forge %v: exit %d, %s%s", args, code, out, stderr)
		}
	}
	for _, follow := range []string{"false", "true"} {
		query := url.Values{"after": {"198"}, "follow": {follow}}
		_, body, _ := get(c.nodes[id].listen(), "/api/v1/jobs/7/logs?"+query.Encode())
		if strings.Contains(string(body), "line 198 ") || !strings.Contains(string(body), "line 199 of job 7") || !strings.Contains(string(body), "line 200 of") {
			c.t.Errorf("after chunk 198, follow %s: %s", follow, body)
		}
	}
	if _, page, _ := get(c.nodes[id].listen(), "/jobs/7"); !strings.Contains(string(page), "line 200 of job 7") {
		c.t.Errorf("the page is without the output: %s", page)
	}
}
