package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// builds is where what buildOnce makes outlives the test that comes first.
var builds string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	nodes.Parallel(4) // what is tested here takes time rather than work
	dir, err := os.MkdirTemp("", "forge-e2e-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = os.Chmod(dir, 0o755) //nolint:gosec // another user runs what is built here
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	builds = dir
	return m.Run()
}

var buildForge = sync.OnceValues(func() (string, error) { return buildOnce() })

// buildOnce builds the command in a directory of its own.
func buildOnce(tags ...string) (string, error) {
	dir, err := os.MkdirTemp(builds, "")
	if err != nil {
		return "", err
	}
	return nodes.Build(dir, "cmd/forge", tags...)
}

// forgeBinary builds the command once a run.
func forgeBinary(t *testing.T) string {
	t.Helper()
	binary, err := buildForge()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// cluster is a database and the node processes on it.
type cluster struct {
	// token is that of whoever asks; empty: nobody has to have one.
	token  string
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
	*running

	output *nodes.Output
	done   <-chan struct{}
}

type running = nodes.Process

// launch starts a command of the binary; it is killed when the test ends.
func launch(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return launchProgram(t, forgeBinary(t), env, args...)
}

// launchProgram starts a command of one of our builds, as launch does.
func launchProgram(t *testing.T, program string, env []string, args ...string) *process {
	t.Helper()
	started, output := nodes.Launch(t, program, env, args...)
	return &process{running: started, output: output, done: started.Done()}
}

// start runs a node and waits until it is ready.
func (c *cluster) start(id string) {
	c.t.Helper()
	c.startProgram(forgeBinary(c.t), id)
}

// startProgram does so with one of our builds and more in its environment.
func (c *cluster) startProgram(program, id string, env ...string) *process {
	c.t.Helper()
	p := c.launchNode(program, id, env...)
	p.AwaitReady(c.t, p.output)
	return p
}

// launchNode does so without waiting until the node is ready.
func (c *cluster) launchNode(program, id string, env ...string) *process {
	c.t.Helper()
	p := launchProgram(c.t, program, append(env, "FORGE_DATABASE_URL="+c.url),
		"serve", "--config", c.config, "--node-id", id, "--listen", nodes.AnyPort)
	c.nodes[id] = p
	return p
}

// listen is where a node listens: elsewhere, once it has joined anew.
func (p *process) listen() string { return p.output.Address() }

func (c *cluster) startAll(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.start(id)
	}
}

// stopAll ends every node in order and demands a clean exit.
func (c *cluster) stopAll() {
	c.t.Helper()
	for id := range c.nodes {
		c.stop(id)
	}
}

func (c *cluster) stop(id string) {
	c.t.Helper()
	c.signal(id, syscall.SIGTERM)
	c.awaitExit(id)
}

func (c *cluster) awaitExit(id string) {
	c.t.Helper()
	p := c.nodes[id]
	select {
	case <-p.done:
		if err := p.Err(); err != nil {
			c.t.Errorf("%s: %v", id, err)
		}
	case <-time.After(nodes.WaitTimeout):
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
	eventually(c.t, fmt.Sprintf("a scheduler above term %d", above), func() bool {
		err := c.pool.QueryRow(context.Background(), `
SELECT node_id, term FROM forge_leaders
WHERE role = 'scheduler' AND node_id IS NOT NULL AND term > $1`, above).Scan(&id, &term)
		return err == nil
	})
	return id, term
}

// awaitTicks waits until a leader has fired some ticks.
func (c *cluster) awaitTicks(term int64) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("ticks of term %d", term), func() bool {
		return c.number(`SELECT count(*) FROM forge_cron_ticks WHERE term = $1`, term) > 1
	})
}

// unhurried keeps a slow machine from costing a leader its term, where a test
// relies on terms that it does not end; steady does so where a test waits for the
// end of a lease, and patient where it also relies on terms that go on meanwhile, or
// on what the leader does in the last fifth of one.
const (
	unhurried = `
[cluster.leader_election]
lease_duration = "1m"
`
	steady = `
[cluster.leader_election]
lease_duration = "6s"
`
	patient = `
[cluster.leader_election]
lease_duration = "15s"
`

	steadyLease, patientLease = 6 * time.Second, 15 * time.Second
)

// awaitRoles waits until every role is led, by one node if it is named.
func (c *cluster) awaitRoles(id string) {
	c.t.Helper()
	eventually(c.t, "every role is led "+id, func() bool {
		return c.number(`SELECT count(*) FROM forge_leaders WHERE node_id IS NOT NULL AND node_id = coalesce(nullif($1, ''), node_id)`, id) == 3
	})
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
func (c *cluster) demandEveryTickOnce(cron string) []tickRow {
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
	// One statement: a tick may fire since the ledger was read.
	if extra := c.number(`
SELECT count(*) FROM river_job j
WHERE j.metadata ->> 'forge:cron' = $1
  AND NOT EXISTS (SELECT FROM forge_cron_ticks t
                  WHERE t.cron = $1 AND t.tick = (j.metadata ->> 'forge:tick')::timestamptz)`, cron); extra != 0 {
		c.t.Errorf("%d jobs of no tick", extra)
	}
	return ticks
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	nodes.Eventually(t, nodes.WaitTimeout, what, done)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return nodes.FreeAddress(t)
}

func get(address, path string) (code int, body []byte, header http.Header) {
	return nodes.Get(address, path)
}

func status(address, path string) int { return nodes.Status(address, path) }

// forge runs a command to its end and returns what it printed and its code.
func (c *cluster) forge(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	return forgeWith(c.t, []string{"FORGE_DATABASE_URL=" + c.url}, args...)
}

func forgeWith(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runToEnd(t, forgeBinary(t), env, args...)
}

func runToEnd(t *testing.T, program string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // our own binary
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

func cleanEnvironment() []string { return nodes.Environment() }

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return value
}
