package pgtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

func TestURLIsMigratedAndItsOwn(t *testing.T) {
	t.Parallel()
	one, other := pgtest.Pool(t), pgtest.Pool(t)
	if _, err := one.Exec(t.Context(), `CREATE TABLE mine (n int)`); err != nil {
		t.Fatal(err)
	}
	var mine, leaders, jobs bool
	if err := other.QueryRow(t.Context(), `SELECT to_regclass('mine') IS NOT NULL,
		to_regclass('forge_leaders') IS NOT NULL, to_regclass('river_job') IS NOT NULL`).Scan(&mine, &leaders, &jobs); err != nil {
		t.Fatal(err)
	}
	if mine || !leaders || !jobs {
		t.Errorf("another test's table: %t, forge's tables: %t, River's: %t", mine, leaders, jobs)
	}
}

// A child process makes a database and is killed; a second one finds it.
func TestDatabasesOfADeadRunAreDropped(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	living := connect(t, server.URL())
	// 1952805748 is the class of the runs' locks, 0x2a the run.
	for _, sql := range []string{`SELECT pg_advisory_lock(1952805748, 42)`, `CREATE DATABASE forge_t_0000002a_1`} {
		if _, err := living.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const env = "PGTEST_DIE"
	for _, part := range []string{"die", "live"} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$") //nolint:gosec // ourselves
		child.Env = append(os.Environ(), env+"="+part, pgtest.EnvURL+"="+server.URL())
		if output, err := child.CombinedOutput(); (err == nil) != (part == "live") {
			t.Fatalf("the child that is to %s: %v\n%s", part, err, output)
		}
		nodes.Eventually(t, nodes.WaitTimeout, "the server knows that the child has ended", func() bool {
			var held bool
			err := living.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1952805748 AND objid <> 42)`).Scan(&held)
			return err == nil && !held
		})
	}
	conn := connect(t, server.URL())
	var left string
	if err := conn.QueryRow(t.Context(), `SELECT string_agg(datname, ' ') FROM pg_database WHERE datname LIKE 'forge\_t\_%'`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != "forge_t_0000002a_1" {
		t.Errorf("%s is left, want the living run's database alone", left)
	}
}

// TestChild does nothing unless it runs as the child of another test.
func TestChild(t *testing.T) {
	t.Parallel()
	switch os.Getenv("PGTEST_DIE") {
	case "die":
		pgtest.URL(t)
		os.Exit(1)
	case "live":
		pgtest.URL(t)
	}
}

func TestWithoutAServerItStartsOne(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestURLIsMigratedAndItsOwn$") //nolint:gosec // ourselves
	child.Env = append(os.Environ(), pgtest.EnvURL+"=")
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestOwnServerRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	url := server.URL()
	for _, mode := range []devcluster.StopMode{devcluster.StopFast, devcluster.StopImmediate, devcluster.StopKill} {
		before := connect(t, url)
		server.Restart(mode)
		if _, err := before.Exec(t.Context(), `SELECT 1`); err == nil {
			t.Errorf("a session outlived the restart (%s)", mode)
		}
		if server.URL() != url {
			t.Errorf("the address changed from %s to %s", url, server.URL())
		}
		after := connect(t, url)
		if _, err := after.Exec(t.Context(), `SELECT FROM forge_leaders`); err != nil {
			t.Errorf("after %s: %v", mode, err)
		}
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	link := pgtest.Proxy(t, pgtest.URL(t))
	conn := connect(t, link.URL())

	link.Stall()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), `CREATE TABLE through (n int)`)
		answer <- err
	}()
	wantSilence(t, answer, "a stalled link")
	link.Resume()
	if err := <-answer; err != nil {
		t.Errorf("after the stall: %v", err)
	}

	link.Cut()
	if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("a connection outlived the cut")
	}
	if again, err := pgx.Connect(t.Context(), link.URL()); err == nil {
		_ = again.Close(t.Context())
		t.Error("a cut link let a connection through")
	}
	link.Resume()
	connect(t, link.URL())
}

func TestProxyThatLosesReplies(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	link := pgtest.Proxy(t, url)
	conn := connect(t, link.URL())
	link.StallReplies()
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), `CREATE TABLE arrived (n int)`)
		answer <- err
	}()
	direct := connect(t, url)
	for arrived := false; !arrived; {
		if err := direct.QueryRow(t.Context(), `SELECT to_regclass('arrived') IS NOT NULL`).Scan(&arrived); err != nil {
			t.Fatal(err)
		}
	}
	wantSilence(t, answer, "a link without replies")
	link.Resume()
	if err := <-answer; err != nil {
		t.Errorf("after the stall: %v", err)
	}
}

func wantSilence(t *testing.T, answer <-chan error, who string) {
	t.Helper()
	select {
	case err := <-answer:
		t.Fatalf("%s answered: %v", who, err)
	case <-time.After(100 * time.Millisecond):
	}
}

// stub is a test that records how it ends.
type stub struct {
	testing.TB

	skipped, failed string
}

func (s *stub) Helper()                           {}
func (s *stub) Name() string                      { return "TestPage" }
func (s *stub) Skipf(format string, args ...any)  { s.skipped = fmt.Sprintf(format, args...) }
func (s *stub) Logf(string, ...any)               {}
func (s *stub) Fatalf(format string, args ...any) { s.failed = fmt.Sprintf(format, args...) }

func TestNotRun(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	t.Setenv(pgtest.EnvNotRun, list)
	t.Setenv("CI", "")
	test := &stub{TB: t}
	pgtest.NotRun(test, "Chromium", "apt-get install chromium")
	body, err := os.ReadFile(list)
	if want := "TestPage: Chromium is missing: apt-get install chromium\n"; err != nil || string(body) != want {
		t.Errorf("the list holds %q (%v), want %q", body, err, want)
	}
	if !strings.Contains(test.skipped, "Chromium") || test.failed != "" {
		t.Errorf("it ended with skip %q, failure %q", test.skipped, test.failed)
	}
	t.Setenv("CI", "true")
	test = &stub{TB: t}
	pgtest.NotRun(test, "Chromium", "apt-get install chromium")
	if test.failed == "" {
		t.Error("with CI=true it did not fail")
	}
}

func TestLeftOutGoesOn(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	t.Setenv(pgtest.EnvNotRun, list)
	t.Setenv("CI", "")
	test := &stub{TB: t}
	pgtest.LeftOut(test, "pictures", "Chromium", "apt-get install chromium")
	body, err := os.ReadFile(list)
	if want := "TestPage without pictures: Chromium is missing: apt-get install chromium\n"; err != nil || string(body) != want {
		t.Errorf("the list holds %q (%v), want %q", body, err, want)
	}
	if test.skipped+test.failed != "" {
		t.Errorf("it ended with skip %q, failure %q", test.skipped, test.failed)
	}
	t.Setenv("CI", "true")
	pgtest.LeftOut(test, "pictures", "Chromium", "apt-get install chromium")
	if test.failed == "" {
		t.Error("with CI=true it did not fail")
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
