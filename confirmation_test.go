package forge

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// cronsOf returns a file with crons of these names.
func cronsOf(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "[[crons]]\nname = %q\nschedule = \"@hourly\"\ncommand = [\"true\"]\n", name)
	}
	return text.String()
}

func localSections(url string) string {
	return fmt.Sprintf("[database]\nurl = %q\n[http]\nlisten = %q\n[node]\nid = \"a\"\n", url, nodes.AnyPort)
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := ParseConfig("test", text)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// configured returns the names of the configured crons.
func configured(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var names string
	if err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM forge_crons
		WHERE removed_at IS NULL`).Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

// logBuffer is a log that a test can read while a node writes it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// hasLine reports whether a line of the log contains all parts.
func (l *logBuffer) hasLine(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(line, part)
		}
		if found {
			return true
		}
	}
	return false
}

// start runs a node until the test ends or stop is called.
func start(t *testing.T, cfg *Config, opts ...Option) (l *logBuffer, stop func()) {
	t.Helper()
	l = &logBuffer{}
	_, stop = startNode(t, cfg, l, opts...)
	return l, stop
}

func startNode(t *testing.T, cfg *Config, l *logBuffer, opts ...Option) (node *Node, stop func()) {
	t.Helper()
	node, err := New(cfg, append(opts, WithLogger(slog.New(slog.NewTextHandler(l, nil))))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-node.Ready():
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("the node is not ready")
	}
	return node, stop
}

func self(t *testing.T, pool *pgxpool.Pool) nodestore.Node {
	t.Helper()
	node, err := nodestore.New(pool).Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// A starting node without crons, or with a file that would remove most of the cluster's
// crons, leaves them unchanged.
func TestStartingNodeDoesNotRemoveMostCrons(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	if _, err := Apply(t.Context(), pool, parsed(t, localSections(url)+cronsOf("c1", "c2", "c3", "c4", "c5")), false); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*Config{
		"no configuration but the address": parsed(t, localSections(url)),
		"a configuration built in code":    {Database: parsed(t, localSections(url)).Database, Node: parsed(t, localSections(url)).Node, HTTP: parsed(t, localSections(url)).HTTP, Cluster: parsed(t, "").Cluster, Metrics: parsed(t, "").Metrics, Retention: parsed(t, "").Retention, Scheduler: parsed(t, "").Scheduler},
	} {
		_, stop := start(t, cfg)
		if row := self(t, pool); row.ConfigHash != "" || row.ConfigWaiting != "" {
			t.Errorf("%s: hash %q, waiting %q", name, row.ConfigHash, row.ConfigWaiting)
		}
		stop()
		if names := configured(t, pool); names != "c1 c2 c3 c4 c5" {
			t.Errorf("%s: the crons are %s", name, names)
		}
	}
	foreign := parsed(t, localSections(url)+cronsOf("c1", "c2", "other"))
	for _, opts := range [][]Option{nil, {WithApply()}} {
		logged, stop := start(t, foreign, opts...)
		if row := self(t, pool); row.ConfigWaiting != "it would remove 3 of 5 crons (c3, c4, c5)" {
			t.Errorf("waiting: %q", row.ConfigWaiting)
		}
		if !logged.hasLine("WARN", "waits for forge apply --yes", "c3, c4, c5") {
			t.Error("the log does not report the unconfirmed configuration")
		}
		if len(opts) == 0 {
			stop()
			continue
		}
		if _, err := ApplyConfirmed(t.Context(), pool, foreign, func(Review) error { return nil }); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node no longer waits", func() bool { return self(t, pool).ConfigWaiting == "" })
	}
	if names := configured(t, pool); names != "c1 c2 other" {
		t.Errorf("the crons are %s", names)
	}
}

// Half of the crons may be removed without confirmation. A warning names them.
func TestRemovedCronsAreLoggedAsWarning(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	if _, err := Apply(t.Context(), pool, parsed(t, localSections(url)+cronsOf("c1", "c2", "c3", "c4")), false); err != nil {
		t.Fatal(err)
	}
	logged, _ := start(t, parsed(t, localSections(url)+cronsOf("c1", "c2")))
	if names := configured(t, pool); names != "c1 c2" || !logged.hasLine("WARN", "crons were removed", `crons="c3, c4"`) {
		t.Errorf("the crons are %s; or the removed ones are not named", names)
	}
}

// An edit that would remove most crons, or all cluster sections, changes nothing until it
// is confirmed. Then the node applies it.
func TestEditThatRemovesMostCronsWaitsForConfirmation(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	path := filepath.Join(t.TempDir(), "forge.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	whole := localSections(url) + cronsOf("c1", "c2", "c3")
	write(whole)
	load := func() (*Config, error) { return LoadConfig(path) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	logged, _ := start(t, cfg, WithFile(path, load))
	unchanged := func(waiting string) {
		t.Helper()
		eventually(t, "the node says "+waiting, func() bool { return self(t, pool).ConfigWaiting == waiting })
		if row := self(t, pool); len(row.Definitions) != 3 || configured(t, pool) != "c1 c2 c3" {
			t.Errorf("crons %s, the node defines %v", configured(t, pool), row.Definitions)
		}
	}
	write(localSections(url))
	unchanged("it has no crons, jobs, queues or alerts any more")
	write(localSections(url) + cronsOf("c1"))
	unchanged("it would remove 2 of 3 crons (c2, c3)")
	if !logged.hasLine("WARN", "waits for forge apply --yes", "c2, c3") {
		t.Error("the log does not report the unconfirmed configuration")
	}
	eventually(t, "the audit log says what waits", func() bool {
		entries, err := access.NewAudit(pool).List(t.Context(), access.AuditFilter{Action: "config.reload", Outcome: access.Refused, Limit: 1})
		return err == nil && len(entries) == 1 && entries[0].Actor == "node:a" && entries[0].Object == path &&
			entries[0].Detail == "it would remove 2 of 3 crons (c2, c3); it waits for forge apply --yes"
	})
	write(whole)
	unchanged("")
	write(localSections(url) + cronsOf("c1"))
	unchanged("it would remove 2 of 3 crons (c2, c3)")
	edited, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ApplyConfirmed(t.Context(), pool, edited, func(Review) error { return nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node has taken the file over", func() bool {
		row := self(t, pool)
		return row.ConfigWaiting == "" && len(row.Definitions) == 1
	})
}

// A cron that was removed by mistake and is applied again has no gap in its ledger: its
// policies decide on the ticks that were due in between.
func TestReappliedCronResumesFromItsWatermark(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	text := localSections(url) + `
[[crons]]
name = "second"
schedule = "* * * * * *"
overlap = "allow"
sql = "SELECT 1"
[[crons]]
name = "minute"
schedule = "* * * * *"
overlap = "allow"
sql = "SELECT 1"
`
	both := parsed(t, text)
	start(t, both)
	ticks := func(least int) func() bool {
		return func() bool {
			var n int
			return pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'second' AND job_id > 0`).Scan(&n) == nil && n >= least
		}
	}
	eventually(t, "the cron has fired", ticks(2))
	if _, err := ApplyConfirmed(t.Context(), pool, parsed(t, localSections(url)+cronsOf("other")), func(Review) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var before int
	eventually(t, "two seconds have passed without it", func() bool {
		var passed bool
		return pool.QueryRow(t.Context(), `SELECT clock_timestamp() > removed_at + interval '2 seconds' FROM forge_crons
			WHERE name = 'second'`).Scan(&passed) == nil && passed
	})
	// The other cron was removed ten minutes ago.
	if _, err := pool.Exec(t.Context(), `UPDATE forge_crons SET removed_at = removed_at - interval '10 minutes',
		watermark = watermark - interval '10 minutes' WHERE name = 'minute'`); err != nil {
		t.Fatal(err)
	}
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_cron_ticks WHERE cron = 'second'`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	if _, err := ApplyConfirmed(t.Context(), pool, both, func(Review) error { return nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the schedule continues", ticks(before+4))
	var holes int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM generate_series(
			(SELECT min(tick) FROM forge_cron_ticks WHERE cron = 'second'), (SELECT max(tick) FROM forge_cron_ticks WHERE cron = 'second'),
			interval '1 second') AS due WHERE NOT EXISTS (SELECT FROM forge_cron_ticks WHERE cron = 'second' AND tick = due)`).Scan(&holes); err != nil {
		t.Fatal(err)
	}
	if holes != 0 {
		t.Errorf("%d ticks have no row", holes)
	}
	var caughtUp, limited int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE verdict = 'caught_up' AND reason LIKE 'The cron was not in the configuration then%'),
		count(*) FILTER (WHERE verdict = 'skipped_limit') FROM forge_cron_ticks WHERE cron = 'minute'`).Scan(&caughtUp, &limited); err != nil {
		t.Fatal(err)
	}
	if caughtUp != 1 || limited < 7 {
		t.Errorf("of the minutes %d were caught up and %d skipped for the limit; want 1, and 7 or more", caughtUp, limited)
	}
}
