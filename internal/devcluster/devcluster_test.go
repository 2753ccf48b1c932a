package devcluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/nodes"
)

// The test binary stands in for forge: envPart names the program to run.
const (
	envPart    = "DEVCLUSTER_TEST_PART"
	envDataDir = "DEVCLUSTER_TEST_DATA"
	envNode    = "DEVCLUSTER_TEST_NODE" // the part of a cluster's nodes
	partNode   = "node"
	partSlow   = "slow"    // a node that never finishes draining
	partDeaf   = "deaf"    // a node that does not watch its lifeline
	partIdle   = "idle"    // a process that only watches its lifeline
	partTLS    = "tls"     // a node that speaks TLS
	partFailed = "failed"  // a node that rejects its configuration
	partRunner = "cluster" // a whole cluster, to be killed
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envHold); dir != "" {
		os.Exit(hold(dir))
	}
	switch os.Getenv(envPart) {
	case partNode, partSlow, partTLS:
		devcluster.DieWithParent()
		os.Exit(node())
	case partDeaf:
		os.Exit(node())
	case partIdle:
		devcluster.DieWithParent()
		time.Sleep(2 * waitTimeout)
	case partFailed:
		os.Exit(3)
	case partRunner:
		os.Exit(runCluster())
	}
	nodes.Parallel(4) // the tests mostly wait for servers
	os.Exit(m.Run())
}

// node runs a node of the tests: its arguments are an address and an id, it is ready when
// it can reach the database, and it prints its id.
func node() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("node", os.Args[2])
	conn, err := pgx.Connect(ctx, os.Getenv("FORGE_DATABASE_URL"))
	if err != nil {
		log.Error("connect", "error", err)
		return 5
	}
	_ = conn.Close(ctx)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Error("listen", "error", err)
		return 1
	}
	log.Info("node serves", "pid", os.Getpid(), "stray", os.Getenv("DEVCLUSTER_LIFELINE"))
	fmt.Fprintln(os.Stderr, "not a record")
	ready := http.NewServeMux()
	ready.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	if os.Getenv(envPart) == partTLS {
		server := httptest.NewUnstartedServer(ready)
		server.Listener = listener
		server.StartTLS()
	} else {
		go func() { _ = http.Serve(listener, ready) }() //nolint:gosec // a test's own
	}
	<-ctx.Done()
	if os.Getenv(envPart) == partSlow {
		log.Info("node drains")
		select {}
	}
	log.Info("node drained")
	return 0
}

func nodeArgs(n devcluster.Node) []string { return []string{n.Listen, n.ID} }

func clusterOptions(dir, part string) devcluster.Options {
	return devcluster.Options{
		Nodes: 3, DataDir: dir, Listen: "127.0.0.1:0",
		Executable: os.Args[0], Args: nodeArgs, Env: []string{envPart + "=" + part},
		PostgresBinDir:   os.Getenv("FORGE_TEST_POSTGRES_BIN"),
		PostgresSettings: map[string]string{"fsync": "off"},
		Leaders: func(context.Context, string) ([]devcluster.Leader, error) {
			return []devcluster.Leader{{Role: "scheduler", NodeID: "node-2", Term: 7}}, nil
		},
	}
}

func runCluster() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := devcluster.Run(ctx, clusterOptions(os.Getenv(envDataDir), os.Getenv(envNode))); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// waitTimeout bounds the wait for expected events: a busy machine needs time to
// initialise a PostgreSQL.
const waitTimeout = nodes.WaitTimeout

// await waits until the output matches and returns the groups.
func await(t *testing.T, out *nodes.Output, pattern string) (match []string) {
	t.Helper()
	compiled := regexp.MustCompile(pattern)
	defer func() {
		if match == nil {
			t.Logf("the output is:\n%s", out)
		}
	}()
	nodes.Eventually(t, waitTimeout, "a match of "+pattern, func() bool {
		match = compiled.FindStringSubmatch(out.String())
		return match != nil
	})
	return match
}

// serving matches the output once count nodes serve, and so react to signals.
func serving(count int) string { return fmt.Sprintf(`(?s)(node serves.*){%d}`, count) }

func dataDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(nodes.OpenDir(t), "data")
}

// run runs a cluster until stop is called, which returns Run's error.
func run(t *testing.T, options devcluster.Options) (out *nodes.Output, stop func() error) {
	t.Helper()
	out = &nodes.Output{}
	options.Stdout, options.Stderr = out, out
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- devcluster.Run(ctx, options) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { _ = stop() })
	return out, stop
}

func wantEnd(t *testing.T, pid string, within time.Duration) {
	t.Helper()
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	nodes.Eventually(t, within, "the end of process "+pid, func() bool { return syscall.Kill(number, 0) != nil })
}

func TestRunRestartsDeadNodesAndStopsAll(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	out, stop := run(t, clusterOptions(dir, partNode))
	banner := await(t, out, `(?s)forge is running.*node-2 +http://127\.0\.0\.1:\d+ +pid (\d+) +leads scheduler \(term 7\).*kill -9 (\d+) .*forge status .*forge cron list .*/jobs .*Ctrl-C`)
	if banner[1] != banner[2] {
		t.Errorf("the banner names %s as the one to kill, not the leader %s", banner[2], banner[1])
	}
	leader, err := strconv.Atoi(banner[1])
	if err != nil {
		t.Fatal(err)
	}
	await(t, out, serving(3)) // the banner does not wait for all
	if err := syscall.Kill(leader, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, out, `node ended, starting it again name=node-2 pid=`+banner[1]+` reason="signal: killed"`)
	again := await(t, out, `(?s)starting it again.*INF node-2 +node serves pid=(\d+) stray=""`)
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	wantEnd(t, again[1], 0)
	if drained := strings.Count(out.String(), "node drained"); drained != 3 {
		t.Errorf("%d nodes drained, want 3:\n%s", drained, out)
	}
	if _, err := os.Stat(filepath.Join(dir, devcluster.URLFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database's address is left: %v", err)
	}
}

func TestNodesMaySpeakTLS(t *testing.T) {
	t.Parallel()
	options := clusterOptions(dataDir(t), partTLS)
	prepared := false
	options.Nodes, options.ReadyTimeout = 1, waitTimeout
	options.Prepare = func(context.Context, string) error { prepared = true; return nil }
	options.TLS = func() bool { return prepared }
	out, stop := run(t, options)
	await(t, out, `(?s)dashboard +https://127.*/jobs`)
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRunLogsJSON(t *testing.T) {
	t.Parallel()
	options := clusterOptions(dataDir(t), partNode)
	options.LogFormat, options.Nodes = devcluster.LogJSON, 1
	out, stop := run(t, options)
	await(t, out, "cluster is ready")
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	nodes := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var record struct{ Node, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Msg == "" {
			t.Errorf("line %q: %v", line, err)
		}
		nodes[record.Node] = true
	}
	if len(nodes) != 2 || !nodes["node-1"] || !nodes["cluster"] {
		t.Errorf("lines come from %v", nodes)
	}
}

func TestRunEndsOnABadConfiguration(t *testing.T) {
	t.Parallel()
	options := clusterOptions(dataDir(t), partFailed)
	options.Stderr = &nodes.Output{}
	err := devcluster.Run(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "cannot run: exit status 3") {
		t.Errorf("Run: %v", err)
	}
}

func TestRunEndsWithItsDatabase(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	options := clusterOptions(dir, partNode)
	ended := make(chan error, 1)
	out := &nodes.Output{}
	options.Stdout, options.Stderr = out, out
	go func() { ended <- devcluster.Run(t.Context(), options) }()
	await(t, out, "forge is running")
	status, err := os.ReadFile(filepath.Join(dir, "postgres", "pgdata", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(status), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "PostgreSQL ended by itself") {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(waitTimeout):
		t.Fatal("Run went on without its database")
	}
}

func TestPrepareRunsBeforeTheNodes(t *testing.T) {
	t.Parallel()
	options := clusterOptions(dataDir(t), partNode)
	wrong := errors.New("no migration")
	options.Prepare = func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		return errors.Join(wrong, conn.Close(ctx))
	}
	out := &nodes.Output{}
	options.Stdout, options.Stderr = out, out
	if err := devcluster.Run(t.Context(), options); !errors.Is(err, wrong) {
		t.Errorf("Run: %v", err)
	}
	if strings.Contains(out.String(), "node serves") {
		t.Error("a node started on a database that was not prepared")
	}
}

func TestRunRefusesBadOptions(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]devcluster.Options{
		"at least one node":      {},
		`log format "xml"`:       {Nodes: 1, LogFormat: "xml"},
		`listen address "8080"`:  {Nodes: 1, Listen: "8080"},
		"a port from 0 to 65535": {Nodes: 1, Listen: "127.0.0.1:http"},
	} {
		err := devcluster.Run(t.Context(), options)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run(%+v): %v, want %q", options, err, want)
		}
	}
}

func TestNodesSkipTakenPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	options := clusterOptions(dataDir(t), partNode)
	options.Nodes, options.Listen = 1, taken.Addr().String()
	out, _ := run(t, options)
	banner := await(t, out, `dashboard +http://127\.0\.0\.1:(\d+)`)
	if got, err := strconv.Atoi(banner[1]); err != nil || got <= port || got > port+20 {
		t.Errorf("the node listens on %s, want a little above %d", banner[1], port)
	}
}

// startCluster runs a whole cluster in a process of its own.
func startCluster(t *testing.T, part string) (cluster *exec.Cmd, out *nodes.Output, pids []string) {
	t.Helper()
	dir := dataDir(t)
	out = &nodes.Output{}
	cluster = exec.Command(os.Args[0])
	cluster.Env = append(os.Environ(), envPart+"="+partRunner, envNode+"="+part, envDataDir+"="+dir)
	cluster.Stdout, cluster.Stderr = out, out
	cluster.WaitDelay = waitTimeout
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Process.Kill() })
	await(t, out, serving(3)) // the banner does not wait for all
	match := await(t, out, `(?s)node-1 +http\S+ +pid (\d+).*node-2 .* pid (\d+).*node-3 +http\S+ +pid (\d+)`)
	status, err := os.ReadFile(filepath.Join(dir, "postgres", "pgdata", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	postmaster, _, _ := strings.Cut(string(status), "\n")
	return cluster, out, append(match[1:], postmaster)
}

func TestKilledClusterLeavesNothing(t *testing.T) {
	t.Parallel()
	part := partNode
	if runtime.GOOS == "linux" {
		part = partDeaf // only the kernel ends them
	}
	cluster, _, pids := startCluster(t, part)
	if err := cluster.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cluster.Wait()
	for _, pid := range pids {
		wantEnd(t, pid, waitTimeout)
	}
}

func TestSecondInterruptKillsNodes(t *testing.T) {
	t.Parallel()
	cluster, out, pids := startCluster(t, partSlow)
	if err := cluster.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await(t, out, `(?s)node drains.*node drains.*node drains`)
	if err := cluster.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Wait(); err != nil {
		t.Errorf("the cluster ended with %v:\n%s", err, out)
	}
	for _, pid := range pids {
		wantEnd(t, pid, 0)
	}
}

// TestLifelineEndsANode checks the lifeline, for systems whose kernel does not end a node
// with its cluster.
func TestLifelineEndsANode(t *testing.T) {
	t.Parallel()
	node := exec.Command(os.Args[0])
	node.Env = append(os.Environ(), envPart+"="+partIdle, "DEVCLUSTER_LIFELINE=1")
	lifeline, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	if err := lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || err.Error() != "exit status 137" {
			t.Errorf("the node ended with %v", err)
		}
	case <-time.After(waitTimeout):
		_ = node.Process.Kill()
		t.Fatal("the node outlived its lifeline")
	}
}
