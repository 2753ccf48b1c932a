// Package e2e boots real forge processes on real PostgreSQL, breaks them and
// looks at what the database says afterwards.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

var (
	buildOnce sync.Once
	binary    string
	errBuild  error
)

// forgeBinary builds the command once a run.
func forgeBinary(t *testing.T) string {
	t.Helper()
	buildOnce.Do(func() {
		dir, err := os.MkdirTemp("", "forge-e2e-") //nolint:usetesting // outlives the test that comes first
		if err != nil {
			errBuild = err
			return
		}
		binary = filepath.Join(dir, "forge")
		out, err := exec.Command("go", "build", "-o", binary, "../../cmd/forge").CombinedOutput()
		if err != nil {
			errBuild = fmt.Errorf("build forge: %w\n%s", err, out)
		}
		errBuild = errors.Join(errBuild, os.Chmod(dir, 0o755)) //nolint:gosec // another user runs it
	})
	if errBuild != nil {
		t.Fatal(errBuild)
	}
	return binary
}

// cluster is a database and the node processes on it.
type cluster struct {
	t      *testing.T
	url    string
	config string
	pool   *pgxpool.Pool
	nodes  map[string]*process
}

func newCluster(t *testing.T, config string) *cluster {
	t.Helper()
	return clusterOn(t, pgtest.URL(t), config)
}

func clusterOn(t *testing.T, url, config string) *cluster {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forge.toml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, url: url, config: path, pool: pgtest.Connect(t, url), nodes: map[string]*process{}}
}

// process is one running command with what it has printed.
type process struct {
	*exec.Cmd
	listen string
	output *syncBuffer
	done   chan struct{}
	err    error
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// launch starts a command of the binary; it is killed when the test ends.
func launch(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return launchProgram(t, forgeBinary(t), env, args...)
}

// launchProgram starts a command of one of our builds, as launch does.
func launchProgram(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{output: &syncBuffer{}, done: make(chan struct{})}
	p.Cmd = exec.Command(program, args...) //nolint:gosec // one of our builds
	p.Env = append(cleanEnvironment(), env...)
	p.Stdout, p.Stderr = p.output, p.output
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("output of %s:\n%s", strings.Join(args, " "), tail(p.output.String(), 60))
		}
	})
	return p
}

// start runs a node and waits until it is ready.
func (c *cluster) start(id string) {
	c.t.Helper()
	c.startProgram(forgeBinary(c.t), id)
}

// startProgram does so with one of our builds and more in its environment.
func (c *cluster) startProgram(program, id string, env ...string) *process {
	c.t.Helper()
	listen := freeAddress(c.t)
	p := launchProgram(c.t, program, append(env, "FORGE_DATABASE_URL="+c.url),
		"serve", "--config", c.config, "--node-id", id, "--listen", listen)
	p.listen = listen
	c.nodes[id] = p
	eventually(c.t, 20*time.Second, id+" is ready", func() bool {
		select {
		case <-p.done:
			c.t.Fatalf("%s ended: %v\n%s", id, p.err, p.output)
		default:
		}
		return status(listen, "/readyz") == http.StatusOK
	})
	return p
}

func (c *cluster) startAll(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.start(id)
	}
}

// stopAll ends every node in order and demands a clean exit.
func (c *cluster) stopAll() {
	c.t.Helper()
	for id, p := range c.nodes {
		c.signal(id, syscall.SIGTERM)
		c.awaitExit(id, p)
	}
}

func (c *cluster) awaitExit(id string, p *process) {
	c.t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			c.t.Errorf("%s: %v", id, p.err)
		}
	case <-time.After(30 * time.Second):
		c.t.Fatalf("%s does not stop", id)
	}
	delete(c.nodes, id)
}

func (c *cluster) signal(id string, sig os.Signal) {
	c.t.Helper()
	if err := c.nodes[id].Process.Signal(sig); err != nil {
		c.t.Fatalf("signal %s: %v", id, err)
	}
}

// leader waits for a leader of the scheduler above a term.
func (c *cluster) leader(above int64) (id string, term int64) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, fmt.Sprintf("a scheduler above term %d", above), func() bool {
		err := c.pool.QueryRow(context.Background(), `
SELECT node_id, term FROM forge_leaders
WHERE role = 'scheduler' AND node_id IS NOT NULL AND term > $1`, above).Scan(&id, &term)
		return err == nil
	})
	return id, term
}

// number reads one number from the database.
func (c *cluster) number(sql string, args ...any) int64 {
	c.t.Helper()
	var n int64
	if err := c.pool.QueryRow(c.t.Context(), sql, args...).Scan(&n); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (c *cluster) exec(sql string) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), sql); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// tickRow is a tick with how many jobs bear it.
type tickRow struct {
	Tick    time.Time
	Verdict string
	Jobs    int
	Late    float64
}

func (c *cluster) ticks(cron string) []tickRow {
	c.t.Helper()
	rows, err := c.pool.Query(c.t.Context(), `
SELECT t.tick, t.verdict,
       (SELECT count(*) FROM river_job j
        WHERE j.metadata ->> 'forge:cron' = t.cron AND (j.metadata ->> 'forge:tick')::timestamptz = t.tick),
       t.lateness_ms
FROM forge_cron_ticks t WHERE t.cron = $1 ORDER BY t.tick`, cron)
	if err != nil {
		c.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tickRow])
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// demandEveryTickOnce checks the ledger of a one-second cron: no hole, one row
// and one job for each second, and every job done.
func (c *cluster) demandEveryTickOnce(cron string) []tickRow { //nolint:unparam // whose ticks is said where it is called
	c.t.Helper()
	ticks := c.ticks(cron)
	if len(ticks) == 0 {
		c.t.Fatal("the ledger is empty")
	}
	for i, tick := range ticks {
		if tick.Verdict != "fired" || tick.Jobs != 1 {
			c.t.Errorf("tick %s: verdict %s with %d jobs", tick.Tick.Format(time.TimeOnly), tick.Verdict, tick.Jobs)
		}
		if i > 0 && tick.Tick.Sub(ticks[i-1].Tick) != time.Second {
			c.t.Errorf("hole between %s and %s", ticks[i-1].Tick.Format(time.TimeOnly), tick.Tick.Format(time.TimeOnly))
		}
	}
	if extra := c.number(`SELECT count(*) FROM river_job WHERE metadata ->> 'forge:cron' = $1`, cron); extra != int64(len(ticks)) {
		c.t.Errorf("%d jobs for %d ticks", extra, len(ticks))
	}
	return ticks
}

func eventually(t *testing.T, within time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func get(address, path string) (code int, body []byte, header http.Header) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, nil, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, _ = io.ReadAll(response.Body)
	return response.StatusCode, body, response.Header
}

func status(address, path string) int {
	code, _, _ := get(address, path)
	return code
}

// forge runs a command to its end and returns what it printed and its code.
func (c *cluster) forge(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	return forgeWith(c.t, []string{"FORGE_DATABASE_URL=" + c.url}, args...)
}

func forgeWith(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), forgeBinary(t), args...) //nolint:gosec // our own binary
	cmd.Dir = t.TempDir()
	cmd.Env = append(cleanEnvironment(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), 0
}

// cleanEnvironment is this process's, without what forge would read from it.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "FORGE_") || strings.HasPrefix(pair, "DATABASE_URL=")
	})
}

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return value
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
