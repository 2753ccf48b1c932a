package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Two sidecars without a command keep files that name the one that leads, and remove
// them when they end; the other one takes over.
func TestRunKeepsALeaderFileWithoutACommand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	if _, errs, code := c.forge("migrate", "up"); code != 0 {
		t.Fatal(errs)
	}
	dir := t.TempDir()
	says := func(node, leader string) {
		t.Helper()
		eventually(t, "the file of "+node+" names "+leader, func() bool {
			line, err := os.ReadFile(filepath.Join(dir, node))
			return err == nil && string(line) == leader+"\n"
		})
	}
	start := func(node string) *process {
		return launch(t, []string{"FORGE_DATABASE_URL=" + c.url}, "run", "--config", c.config, "--role", "nightly",
			"--node-id", node, "--leader-file", filepath.Join(dir, node))
	}
	a := start("a")
	says("a", "a")
	start("b")
	says("b", "a")
	body, err := os.ReadFile(filepath.Join(dir, "b.json"))
	if err != nil || !strings.Contains(string(body), `"node_id":"a"`) || !strings.Contains(string(body), `"term":1`) {
		t.Errorf("b.json: %s, %v", body, err)
	}
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-a.done
	says("b", "b")
	if left, err := filepath.Glob(filepath.Join(dir, "a*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, errs, code := c.forge("run", "--role", "nightly"); code != 2 || !strings.Contains(errs, "--leader-file") {
		t.Errorf("without a command and a file: exit %d, %s", code, errs)
	}
}
