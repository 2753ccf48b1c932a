package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Two sidecars keep files that name the one that leads, with its metadata, and remove them when
// they end; the other one takes over.
func TestSidecars(t *testing.T) {
	t.Parallel()
	c := newCluster(t, unhurried)
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
	url := c.url
	start := func(node string) *process {
		return launch(t, []string{"FORGE_DATABASE_URL=" + url}, "sidecar", "--config", c.config, "--role", "nightly",
			"--node-id", node, "--file", filepath.Join(dir, node), "--metadata", `{"url": "http://`+node+`"}`)
	}
	a := start("a")
	says("a", "a")
	b := start("b")
	says("b", "a")
	body, err := os.ReadFile(filepath.Join(dir, "b.json"))
	if err != nil || !strings.Contains(string(body), `"node_id":"a"`) || !strings.Contains(string(body), `"term":1`) ||
		!strings.Contains(string(body), `"metadata":{"url":"http://a"}`) {
		t.Errorf("b.json: %s, %v", body, err)
	}
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-a.done
	if err := a.Err(); err != nil {
		t.Errorf("a: %v", err)
	}
	says("b", "b")
	if left, err := filepath.Glob(filepath.Join(dir, "a*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := b.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.done
	says("b", "b") // as it was killed
	url = "postgres://forge@127.0.0.1:1/none"
	start("b")
	says("b", "")
	if _, errs, code := c.forge("run", "--role", "nightly"); code != 2 || !strings.Contains(errs, "forge sidecar needs none") {
		t.Errorf("run without a command: exit %d, %s", code, errs)
	}
	for metadata, want := range map[string]string{
		`[1]`: "--metadata: not an object", `{"a": "\u0000"}`: "--metadata.a: a NUL character", `{"a":`: "--metadata",
	} {
		if _, errs, code := c.forge("sidecar", "--role", "nightly", "--metadata", metadata); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("metadata %s: exit %d, %s", metadata, code, errs)
		}
	}
}
