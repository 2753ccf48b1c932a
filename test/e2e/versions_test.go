package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// previousVersion is the commit or tag that nodes of this version share a cluster with during an
// upgrade. It is set to a release's tag once the release is made; until the first one, it is the
// commit with the first schema that upgrades.
const previousVersion = "4acfbfefba9b26c984b1e22236ce8f11f97f77c6"

var buildPrevious = sync.OnceValues(func() (string, error) { return buildVersion(previousVersion) })

// previousBinary returns the program of the previous version, which is built once and kept by its
// commit.
func previousBinary(t *testing.T) string {
	t.Helper()
	binary, err := buildPrevious()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func buildVersion(version string) (string, error) {
	commit, err := exec.Command("git", "rev-parse", "--verify", "--quiet", version+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("the history lacks %s, from which this test builds the previous version: fetch all of it "+
			"(git fetch --unshallow --tags): %w", version, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "forge-test")
	binary := filepath.Join(dir, fmt.Sprintf("forge-%s-%s-%s", strings.TrimSpace(string(commit)), runtime.Version(), runtime.GOARCH))
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	source, err := os.MkdirTemp(builds, "source-")
	if err := errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	// A name of its own until it is whole: another run may build the same version.
	half := fmt.Sprintf("%s.%d", binary, os.Getpid())
	build := exec.Command("bash", "-euo", "pipefail", "-c",
		`git -C "$(git rev-parse --show-toplevel)" archive "$1" | tar -x -C "$2" && cd "$2" && CGO_ENABLED=0 go build -buildvcs=false -ldflags=-w -o "$3" ./cmd/forge`,
		"bash", version, source, half)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", version, err, out)
	}
	return binary, os.Rename(half, binary)
}

const twoVersions = unhurried + everySecond + `
[jobs.pause]
kind = "sql"
statement = "SELECT pg_sleep(0.2)"
`

// During an upgrade a cluster has nodes of two versions. Either leads, both work jobs, the new
// commands operate the old node, and no tick is lost or doubled.
func TestTwoVersionsShareACluster(t *testing.T) {
	t.Parallel()
	old := previousBinary(t)
	c := clusterOn(t, pgtest.EmptyURL(t), twoVersions)
	c.startProgram(old, "old")
	_, term := c.leader(0)
	c.awaitTicks(term)

	c.start("new") // which migrates while the old node leads
	if _, errs, code := c.forge("migrate", "status"); code != 0 {
		t.Fatalf("migrate status: %s", errs)
	}
	c.awaitTicksAfter(term)
	c.bothWork("old", "new")

	// The new commands read the old leader, and hand its roles over and back.
	if out, errs, code := c.forge("leader", "status", "--no-headers"); code != 0 || !strings.Contains(out, "old") {
		t.Fatalf("leader status: %s%s", out, errs)
	}
	for _, args := range [][]string{
		{"node", "list"}, {"cron", "list"}, {"cron", "history", "second"}, {"job", "list"}, {"queue", "list"}, {"leader", "history"}, {"events"},
	} {
		if _, errs, code := c.forge(args...); code != 0 {
			t.Errorf("%v: exit %d: %s", args, code, errs)
		}
	}
	term = c.transfer("new", term)
	c.awaitTicks(term)
	c.bothWork("old", "new")
	term = c.transfer("old", term)
	c.awaitTicks(term)
	c.bothWork("old", "new")

	c.stop("old")
	c.awaitRoles("new")
	_, term = c.leader(term)
	c.awaitTicks(term)
	if n := c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'old' AND state = 'left'`); n != 1 {
		t.Error("the old node has not left")
	}
	c.stopAll()
	c.demandEveryTickOnce("second")
}

// An old leader that is killed is followed by a new node, and a new one by an old node.
func TestTwoVersionsFollowEachOther(t *testing.T) {
	t.Parallel()
	old := previousBinary(t)
	c := clusterOn(t, pgtest.EmptyURL(t), steady+everySecond)
	c.startProgram(old, "old")
	_, term := c.leader(0)
	c.start("new")
	c.nodes["old"].Kill()
	id, term := c.leader(term)
	if id != "new" {
		t.Fatalf("%s leads after the old node", id)
	}
	c.awaitTicks(term)
	c.stop("new")
	c.demandEveryTickOnce("second")
}

// awaitTicksAfter waits until the leader of a term has fired ticks after those that there are.
func (c *cluster) awaitTicksAfter(term int64) {
	c.t.Helper()
	const count = `SELECT count(*) FROM forge_cron_ticks WHERE term = $1`
	before := c.number(count, term)
	eventually(c.t, fmt.Sprintf("more ticks of term %d", term), func() bool { return c.number(count, term) > before+1 })
}

// bothWork enqueues jobs until each node has done one of them: one with the command, and several
// at once, which one idle node after the other would not get.
func (c *cluster) bothWork(ids ...string) {
	c.t.Helper()
	after := c.number(`SELECT coalesce(max(id), 0) FROM river_job`)
	eventually(c.t, "jobs on each node", func() bool {
		if _, errs, code := c.forge("job", "enqueue", "pause"); code != 0 {
			c.t.Fatalf("enqueue: %s", errs)
		}
		c.exec(`SELECT count(*) FROM forge_enqueue_many((SELECT jsonb_agg('{"kind": "pause"}'::jsonb) FROM generate_series(1, 10)))`)
		done := 0
		for _, id := range ids {
			if c.number(`SELECT count(*) FROM river_job WHERE id > $1 AND kind = 'pause' AND state = 'completed'
				AND attempted_by[array_upper(attempted_by, 1)] LIKE $2 || '-%'`, after, id) > 0 {
				done++
			}
		}
		return done == len(ids)
	})
}

// transfer hands the scheduler over with this version's command and returns the new term.
func (c *cluster) transfer(to string, after int64) int64 {
	c.t.Helper()
	if out, errs, code := c.forge("leader", "transfer", "scheduler", "--to", to); code != 0 {
		c.t.Fatalf("transfer to %s: %s%s", to, out, errs)
	}
	id, term := c.leader(after)
	if id != to {
		c.t.Fatalf("%s leads after a transfer to %s", id, to)
	}
	return term
}
