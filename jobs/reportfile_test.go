package jobs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// A node removes the reports of killed nodes when it starts, and neither those of running nodes nor
// anything else.
func TestReportsOfKilledNodesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	running := startNode(t, map[string]config.Job{"job": once(shell(`while [ ! -e ` + dir + `/go ]; do sleep 0.05; done; echo '{"result": 7}' >>"$FORGE_REPORT"`))})
	job := running.work(t, jobstore.NewJob{Kind: "job"})
	used := ""
	nodes.Eventually(t, nodes.WaitTimeout, "the command has its report", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "forge-report-*"))
		if len(found) == 1 {
			used = found[0]
		}
		return used != ""
	})
	path := func(name string) string { return filepath.Join(dir, "forge-report-"+name) }
	for _, name := range []string{"killed", "new", "target"} {
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path("target"), filepath.Join(dir, "target")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "target"), path("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	for _, old := range []string{used, path("killed"), path("fifo"), filepath.Join(dir, "target")} {
		if err := os.Chtimes(old, yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
	}
	startNode(t, nil)
	nodes.Eventually(t, nodes.WaitTimeout, "the report of the killed node is gone", func() bool { return missing(path("killed")) })
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := running.finish(t, job, "completed"); string(got.Result) != "7" {
		t.Errorf("the report of the running command: %s", state(got))
	}
	for _, kept := range []string{path("new"), path("link"), path("fifo"), filepath.Join(dir, "target")} {
		if missing(kept) {
			t.Errorf("%s was removed", kept)
		}
	}
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}
