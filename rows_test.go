package forge

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/queuestore"
)

const limitedQueue = "[queues.default]\nglobal_limit = 3\n"

// A node restores rows that somebody has deleted while its configuration is in force, and
// leaves them alone while another one is.
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
	restored := func() (string, []queuestore.Limit) {
		t.Helper()
		if err := node.restoreRows(t.Context()); err != nil {
			t.Fatal(err)
		}
		limits, err := queuestore.Limits(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		return configured(t, pool), limits
	}
	deleteRows()
	crons, limits := restored()
	if diff := cmp.Diff([]queuestore.Limit{{Scope: queuestore.ScopeQueue, Name: "default", Most: 3}}, limits); crons != "one two" || diff != "" {
		t.Errorf("crons %q, limits %s", crons, diff)
	}
	applied(t, pool, parsed(t, localSections(pool.Config().ConnString())+cronsOf("one")))
	if crons, limits := restored(); crons != "one" || len(limits) != 0 {
		t.Errorf("beside another configuration: crons %q, limits %v", crons, limits)
	}
}

func applied(t *testing.T, pool *pgxpool.Pool, cfg *Config) {
	t.Helper()
	if _, err := apply(t.Context(), pool, cfg, false, nil); err != nil {
		t.Fatal(err)
	}
}
