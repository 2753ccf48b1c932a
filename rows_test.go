package forge

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

const limitedQueue = "[queues.default]\nglobal_limit = 3\n"

// A node restores deleted rows while its configuration is in force, and does not while
// another one is.
func TestDeletedRowsOfTheConfigurationAreRestored(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	cfg := parsed(t, localSections(pool.Config().ConnString())+limitedQueue+cronsOf("one", "two"))
	applied(t, pool, cfg)
	node := &Node{pool: pool, logger: slog.New(slog.DiscardHandler)}
	node.current.Store(cfg)
	deleteRows := func() {
		for _, sql := range []string{`DELETE FROM forge_limits`, `DELETE FROM forge_crons WHERE name = 'two'`} {
			if _, err := pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	restored := func() (string, []jobstore.Limit) {
		t.Helper()
		if err := node.restoreRows(t.Context()); err != nil {
			t.Fatal(err)
		}
		limits, err := jobstore.New(pool).Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return configured(t, pool), limits
	}
	deleteRows()
	crons, limits := restored()
	if diff := cmp.Diff([]jobstore.Limit{{Scope: jobstore.ScopeQueue, Name: "default", Most: 3}}, limits); crons != "one two" || diff != "" {
		t.Errorf("crons %q, limits %s", crons, diff)
	}
	applied(t, pool, parsed(t, localSections(pool.Config().ConnString())+cronsOf("one")))
	if crons, limits := restored(); crons != "one" || len(limits) != 0 {
		t.Errorf("while another configuration was in force: crons %q, limits %v", crons, limits)
	}
}

// A limit by the cron is in force under each name of its key, so no node sets it again.
func TestLimitByCronIsInForce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	cfg := parsed(t, localSections(pool.Config().ConnString())+"[queues.default]\nlimit_per_key = { key = \"metadata.forge:cron\", limit = 2 }\n"+cronsOf("one"))
	applied(t, pool, cfg)
	node := &Node{pool: pool, logger: slog.New(slog.DiscardHandler)}
	if complete, err := node.hasRows(t.Context(), cfg); err != nil || !complete {
		t.Errorf("complete: %v, %v", complete, err)
	}
}

// Of very many crons, too, deleted rows are restored.
func TestDeletedRowsOfManyCronsAreRestored(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	names := make([]string, manyRows+1)
	for i := range names {
		names[i] = fmt.Sprintf("cron-%04d", i)
	}
	cfg := parsed(t, localSections(pool.Config().ConnString())+cronsOf(names...))
	applied(t, pool, cfg)
	node := &Node{pool: pool, logger: slog.New(slog.DiscardHandler)}
	node.current.Store(cfg)
	for _, deleted := range []int{0, 1, 2} {
		if _, err := pool.Exec(t.Context(), `DELETE FROM forge_crons WHERE name IN (SELECT name FROM forge_crons LIMIT $1)`, deleted); err != nil {
			t.Fatal(err)
		}
		if err := node.restoreRows(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(configured(t, pool)); len(got) != len(names) {
			t.Errorf("%d crons after %d were deleted", len(got), deleted)
		}
	}
}

// A node that loses the row of one role leads that role again in a later term, and
// continues the terms of its other roles.
func TestDeletedRoleRowEndsOnlyThatTerm(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	p := startProgram(t, url, "a", "", 10*time.Second)
	pool := pgtest.Connect(t, url)
	terms := func() (terms string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(role || ' ' || term, ', ' ORDER BY role), '')
			FROM forge_leaders WHERE node_id = $1`, p.id).Scan(&terms); err != nil {
			t.Fatal(err)
		}
		return terms
	}
	await := func(want string) {
		t.Helper()
		nodes.Eventually(t, time.Minute, "the terms are "+want, func() bool { return terms() == want })
	}
	await("billing 1, log_compactor 1, metrics_aggregator 1, scheduler 1")
	if _, err := pool.Exec(t.Context(), `DELETE FROM forge_leaders WHERE role = 'log_compactor'`); err != nil {
		t.Fatal(err)
	}
	await("billing 1, log_compactor 2, metrics_aggregator 1, scheduler 1")
}

// TestReadyNodeHasQueueRows pauses queues as soon as a node is ready on a new schema,
// before their first job.
func TestReadyNodeHasQueueRows(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	node := runNode(t, url, "[queues.mail]\nmax_workers = 2")
	<-node.Ready()
	client := node.Client()
	if err := client.QueuePause(t.Context(), "mail", nil); err != nil {
		t.Errorf("pause mail: %v", err)
	}
	if err := client.QueuePause(t.Context(), "*", nil); err != nil {
		t.Errorf("pause all: %v", err)
	}
	for _, name := range []string{"default", "mail"} {
		if queue, err := client.QueueGet(t.Context(), name); err != nil || queue.PausedAt == nil {
			t.Errorf("queue %s is not paused: %+v, %v", name, queue, err)
		}
	}
}

func applied(t *testing.T, pool *pgxpool.Pool, cfg *Config) {
	t.Helper()
	if _, err := apply(t.Context(), pool, cfg, Origin{}, false, nil); err != nil {
		t.Fatal(err)
	}
}
