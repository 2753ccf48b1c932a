package e2e

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// imageUser is whom the image and the manifest run forge as.
const imageUser = 65532

const alone = `
[jobs.query]
kind = "sql"
statement = "SELECT 1"

[jobs.hook]
kind = "http"
url = "https://example.com"
body = "${file:/secret}"

[[crons]]
name = "second"
job = "query"
schedule = "* * * * * *"
timezone = "Europe/Berlin"
`

// A root with nothing in it but the program and its file, which whoever runs it may
// not write, is what the image is at least: no shell, no libraries, no accounts, no
// time zones. A node lives there, works jobs, and leaves in order.
func TestProgramNeedsNothingBesideIt(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		pgtest.NotRun(t, "the right to change the root directory", "run as root")
	}
	root := nodes.OpenDir(t)
	program := copyProgram(t, root)
	c := newCluster(t, alone)
	copyConfig(t, c.config, root)
	secret := filepath.Join(root, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o440), os.Chown(secret, 0, imageUser)); err != nil {
		t.Fatal(err) // as Kubernetes mounts a secret for a pod's fsGroup
	}
	inside := func(args ...string) *process {
		started, output := nodes.LaunchWithin(t, &syscall.SysProcAttr{
			Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
		}, program, []string{"FORGE_DATABASE_URL=" + c.url}, args...)
		return &process{running: started, output: output, done: started.Done()}
	}
	check := inside("check", "--config", "/forge.toml")
	<-check.done
	if code := check.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("forge check: exit %d: %s", code, check.output)
	}
	node := inside("serve", "--config", "/forge.toml", "--node-id", "alone", "--listen", nodes.AnyPort)
	node.AwaitReady(t, node.output)
	eventually(t, "its cron fires and its job is done", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed'`) > 0
	})
	eventually(t, "200 of /readyz", func() bool { return nodes.Status(node.listen(), "/readyz") == http.StatusOK })
	_ = node.Process.Signal(syscall.SIGTERM) // it may be gone, which is seen below
	<-node.done
	if code := node.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d: %s", code, node.output)
	}
}

// copyProgram copies forge into a root directory and returns its path there.
func copyProgram(t *testing.T, root string) string {
	t.Helper()
	program, err := os.Open(forgeBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	if err := nodes.WriteProgram(filepath.Join(root, "forge"), program); err != nil {
		t.Fatal(err)
	}
	return "/forge"
}

// copyConfig copies a configuration into a root directory, with the mode that git gives it.
func copyConfig(t *testing.T, from, root string) {
	t.Helper()
	text, err := os.ReadFile(from) //nolint:gosec // a test's own file
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "forge.toml"), text, 0o644); err != nil { //nolint:gosec // said above
		t.Fatal(err)
	}
}
