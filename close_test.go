package forge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

const noDatabase = "[database]\nurl = \"postgres://127.0.0.1:1/none\"\n"

// failures are configurations and options with which New fails, by the construction that
// fails.
func failures(t *testing.T) map[string]func() (*Node, error) {
	t.Helper()
	edited := func(edit func(*Config), opts ...Option) func() (*Node, error) {
		cfg := parsed(t, noDatabase)
		edit(cfg)
		return func() (*Node, error) { return New(cfg, opts...) }
	}
	unedited := func(*Config) {}
	return map[string]func() (*Node, error){
		"no database":   edited(func(cfg *Config) { cfg.Database.URL = "" }),
		"alerts":        edited(func(cfg *Config) { cfg.Alerts = []config.Alert{{}} }),
		"database URL":  edited(func(cfg *Config) { cfg.Database.URL = "postgres://127.0.0.1:port/none" }),
		"jobs":          edited(func(cfg *Config) { cfg.Jobs = map[string]config.Job{"a": {Kind: "nobody"}} }),
		"role name":     edited(unedited, WithRole("Not A Name", nil)),
		"role metadata": edited(unedited, WithRole("own", nil, RoleMetadata(make(chan int)))),
		"lock ids":      edited(unedited, WithRole("one", nil, RoleLockID(7)), WithRole("two", nil, RoleLockID(7))),
		"assignment":    edited(func(cfg *Config) { cfg.Scheduler.Assignment = "nobody" }),
		"leases":        edited(func(cfg *Config) { cfg.Cluster.LeaderElection.Strategy = "kubernetes" }),
		"receivers":     edited(unedited, WithAlerts(brokenEngine{})),
	}
}

// brokenEngine is an AlertEngine whose receivers cannot be created.
type brokenEngine struct{}

func (brokenEngine) Judge(config.Alert, time.Duration) []config.Problem { return nil }
func (brokenEngine) Export([]alerts.Rule) ([]byte, error)               { return nil, nil }
func (brokenEngine) NewWatch(alerts.WatchOptions, leaderstore.Fence) aggregator.Watch {
	return nil
}

func (brokenEngine) NewReceivers(map[string]config.Notify, netguard.Guard, *slog.Logger) (alerts.Sender, error) {
	return nil, errors.New("no receivers")
}

// New with an error, whichever construction fails, and Close without Run leave no goroutine
// behind. The test is not parallel because it counts goroutines.
func TestNewAndCloseLeakNoGoroutine(t *testing.T) { //nolint:paralleltest // see above
	broken := failures(t)
	sound := parsed(t, noDatabase)
	before := runtime.NumGoroutine()
	for range 20 {
		for name, create := range broken {
			if node, err := create(); err == nil || node != nil {
				t.Fatalf("%s: New returned %v, %v", name, node, err)
			}
		}
		node, err := New(sound)
		if err != nil {
			t.Fatal(err)
		}
		node.Close()
		node.Close()
	}
	eventually(t, "every goroutine has ended", func() bool { return runtime.NumGoroutine() <= before })
}

// Run with an error leaves neither a goroutine nor a listener behind. The test is not
// parallel because it counts goroutines.
func TestFailedRunLeavesNothingBehind(t *testing.T) { //nolint:paralleltest // see above
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free := taken.Addr().String()
	before := runtime.NumGoroutine()
	run := func(edit func(*Config)) error {
		cfg := parsed(t, noDatabase)
		cfg.HTTP.Listen = "127.0.0.1:0"
		edit(cfg)
		node, err := New(cfg, WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		return node.Run(t.Context())
	}
	for name, edit := range map[string]func(*Config){
		"listener":    func(cfg *Config) { cfg.HTTP.Listen = free },
		"certificate": func(cfg *Config) { cfg.HTTP.TLSCertFile, cfg.HTTP.TLSKeyFile = "none.pem", "none.key" },
		"database":    func(*Config) {},
	} {
		if err := run(edit); err == nil {
			t.Errorf("%s: Run succeeded", name)
		}
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	_ = run(func(cfg *Config) { cfg.HTTP.Listen = free }) // the database fails
	again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", free)
	if err != nil {
		t.Errorf("the listener is still open: %v", err)
	} else {
		_ = again.Close()
	}
	eventually(t, "every goroutine has ended", func() bool { return runtime.NumGoroutine() <= before })
}

// A node whose server no longer answers is closed without waiting for it: a fenced node joins
// again only once it is closed.
func TestCloseDoesNotWaitForSilentServer(t *testing.T) {
	t.Parallel()
	link := pgtest.Proxy(t, pgtest.URL(t))
	node, err := New(parsed(t, localSections(link.URL())), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range []*pgxpool.Pool{node.pool, node.heartbeatPool} {
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	link.Stall()
	for _, pool := range []*pgxpool.Pool{node.pool, node.heartbeatPool} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := pool.Ping(ctx); err == nil {
			t.Fatal("the silent server answers")
		}
	}
	began := time.Now()
	node.Close()
	if took := time.Since(began); took > 10*time.Second { // pgx takes 15 s to close a connection
		t.Errorf("closing took %s", took)
	}
}

// The functions of a cleanup stack run once, the last one first, and all errors are
// returned.
func TestCleanupRunsInReverseOrder(t *testing.T) {
	t.Parallel()
	var c cleanup
	var order []string
	for _, name := range []string{"first", "second"} {
		c.add(name, func() error { order = append(order, name); return errors.New("broken") })
	}
	err := c.run()
	if want := "close second: broken\nclose first: broken"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := c.run(); err != nil || !slices.Equal(order, []string{"second", "first"}) {
		t.Errorf("ran %v; again: %v", order, err)
	}
}

// A request that is pending when the node stops is answered; a stream ends.
func TestStoppingNodeAnswersPendingRequests(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	_, stop := start(t, parsed(t, localSections(url)))
	address := self(t, pool).APIURL
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // if the test failed
	if _, err := tx.Exec(t.Context(), `LOCK TABLE forge_audit IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	streamed := make(chan error, 1)
	stream := request(t, address+"/events?page=overview") //nolint:bodyclose // request does
	go func() {
		lines := bufio.NewScanner(stream.Body)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
		}
		streamed <- lines.Err()
	}()
	answered := make(chan string, 1)
	go func() {
		answer, err := http.Get(address + "/api/v1/audit")
		if err != nil {
			answered <- err.Error()
			return
		}
		_ = answer.Body.Close()
		answered <- answer.Status
	}()
	eventually(t, "the request waits for the table", func() bool {
		var waits bool
		return pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'forge_audit'::regclass)`).Scan(&waits) == nil && waits
	})
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-streamed: //nolint:errcheck // a closed stream has ended
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("the stream continues")
	}
	select {
	case answer := <-answered:
		t.Fatalf("cut off: %s", answer)
	case <-time.After(500 * time.Millisecond): // it would have been cut off by then
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answer := <-answered; answer != "200 OK" {
		t.Errorf("answered %s", answer)
	}
	<-stopped
}

func request(t *testing.T, address string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", address, answer.Status)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// Pages read the hash of the configuration in force. They do not read the configuration
// itself, even after an edit.
func TestAppliedHashIsReadWithoutConfigurationBody(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "forge.toml")
	text := func(args string) string {
		return localSections(url) + fmt.Sprintf("[jobs.tidy]\nkind = \"sql\"\nstatement = \"SELECT '%s'\"\n", args)
	}
	if err := os.WriteFile(path, []byte(text("small")), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() (*Config, error) { return LoadConfig(path) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	node, _ := startNode(t, cfg, &logBuffer{}, WithFile(path, load))
	if err := os.WriteFile(path, []byte(text(strings.Repeat("x", 500_000))), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the edit is in force", func() bool {
		var long bool
		return pool.QueryRow(t.Context(), `SELECT length(body::text) > 500000 FROM forge_config ORDER BY applied_at DESC LIMIT 1`).Scan(&long) == nil && long
	})
	read := func() {
		if _, err := cronstore.New(node.pool).HashInForce(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if bytes := testing.Benchmark(func(b *testing.B) {
		b.Helper()
		b.ReportAllocs()
		for range b.N {
			read()
		}
	}).AllocedBytesPerOp(); bytes > 250_000 {
		t.Errorf("each page takes %d bytes for a hash", bytes)
	}
}
