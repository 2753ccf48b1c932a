package forge

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// New with an error, and Close without Run, leave no goroutine behind. The test is not
// parallel because it counts goroutines.
func TestNewAndCloseLeakNoGoroutine(t *testing.T) { //nolint:paralleltest // see above
	broken := parsed(t, "[database]\nurl = \"postgres://127.0.0.1:1/none\"\n")
	broken.Scheduler.Assignment = "nobody"
	sound := parsed(t, "[database]\nurl = \"postgres://127.0.0.1:1/none\"\n")
	before := runtime.NumGoroutine()
	for range 20 {
		if _, err := New(broken); err == nil {
			t.Fatal("New accepted an invalid configuration")
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
		if _, err := node.appliedHash(t.Context()); err != nil {
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
