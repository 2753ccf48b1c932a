package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// What around a node is odd is said before anything else, and which variable a flag
// goes before.
func TestServeWarnsOfItsSurroundings(t *testing.T) {
	t.Parallel()
	env := []string{
		"FORGE_DATABASE_URL=postgres://127.0.0.1:1/forge", "FORGE_NODE_SLOT=3", "FORGE_NODE_ID=b", "TZ=Mars/Base", "GODEBUG=http2client=0", "GOMAXPROCS=1",
	}
	script := fmt.Sprintf("ulimit -n 256; exec %s serve --node-id a --log-format json", forgeBinary(t))
	_, stderr, code := runToEnd(t, "sh", env, "-c", script)
	if code != 5 {
		t.Errorf("exit %d", code)
	}
	for _, want := range []string{
		"environment: warning: FORGE_NODE_SLOT: not a variable of forge, and so ignored; want FORGE_NODE_SLOTS\n",
		`"level":"INFO","msg":"a flag overrides an environment variable","flag":"--node-id","value":"a","variable":"FORGE_NODE_ID","ignored":"b"}`,
		`"level":"WARN","msg":"TZ is not a time zone: the times in this log are in UTC, and jobs get the same TZ; crons have their own zones","tz":"Mars/Base"}`,
		`"level":"WARN","msg":"GODEBUG changes how this process behaves; it is meant for debugging only","godebug":"http2client=0"}`,
		`"level":"WARN","msg":"the limit of open files is low: connections and jobs may fail; raise it with ulimit -n or LimitNOFILE=","limit":256,"want":1024}`,
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %s in\n%s", want, stderr)
		}
	}
}

// deaf is a pipe that nobody reads.
func deaf(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	return writer
}

// A command whose reader has gone ends as any other program does; a node goes on.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), forgeBinary(t), "completion", "bash") //nolint:gosec // our own binary
	var errs strings.Builder
	list.Env, list.Stdout, list.Stderr = cleanEnvironment(), deaf(t), &errs
	_ = list.Run()
	if status, ok := list.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGPIPE || errs.Len() > 0 {
		t.Errorf("%v: %s", list.ProcessState, errs.String())
	}

	c := newCluster(t, everySecond)
	node := exec.CommandContext(t.Context(), forgeBinary(t), "serve", "--config", c.config, "--node-id", "a", "--listen", "127.0.0.1:0") //nolint:gosec // our own binary
	node.Env, node.Stderr = append(cleanEnvironment(), "FORGE_DATABASE_URL="+c.url), deaf(t)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a job has run", func() bool { return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed'`) > 0 })
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := node.Wait(); err != nil {
		t.Errorf("the node ended with %v", err)
	}
}
