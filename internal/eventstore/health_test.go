package eventstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Each step changes the cluster and has the health that the event log must contain
// afterwards.
func TestHealthEventsAreAppendedOncePerChange(t *testing.T) {
	t.Parallel()
	for tries := 1; !healthEventsMatch(t); tries++ {
		if tries == 10 {
			t.Fatal("the machine takes longer for a step than a role may be vacant")
		}
	}
}

// healthEventsMatch returns false if a step took so long that a role was vacant for
// longer than intended.
func healthEventsMatch(t *testing.T) (inTime bool) {
	t.Helper()
	pool := pgtest.Pool(t)
	told := []string{}
	for _, step := range []struct {
		name, sql string
		tells     string
	}{
		{"an empty cluster", ``, ""},
		{"roles without nodes", `INSERT INTO forge_leaders (role) VALUES ('scheduler'), ('billing');
			INSERT INTO forge_leaders (role, node_id, lease_until) VALUES ('metrics_aggregator', 'x', now() + interval '1 h'), ('log_compactor', 'x', now() + interval '1 h')`, ""},
		{"a node comes", `INSERT INTO forge_nodes (node_id, incarnation, roles) VALUES ('a', '00000000000000aa', '{worker,scheduler}')`, ""},
		{"nobody has led for long", `UPDATE forge_nodes SET started_at = now() - interval '6 s'`, `cluster_degraded ["nobody leads scheduler"]`},
		{"still", ``, ""},
		{"it leads", `UPDATE forge_leaders SET node_id = 'a', lease_until = now() + interval '1 h' WHERE role = 'scheduler'`, "cluster_recovered "},
		{"it resigns", `UPDATE forge_leaders SET node_id = NULL, lease_until = now() WHERE role = 'scheduler'`, ""},
		{"for long", `UPDATE forge_leaders SET lease_until = now() - interval '6 s' WHERE role = 'scheduler'`, `cluster_degraded ["nobody leads scheduler"]`},
		{"it is stood for", `UPDATE forge_leaders SET lease_until = now() + interval '1 h'`, "cluster_recovered "},
		{"another node died", `INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('b', '00000000000000bb', 'dead')`, `cluster_degraded ["node b is dead"]`},
		{"and a role is vacant", `UPDATE forge_leaders SET lease_until = now() - interval '1 h' WHERE role = 'scheduler'`, ""},
		{"it came back", `UPDATE forge_nodes SET state = 'active'`, ""},
		{"all is well", `UPDATE forge_leaders SET lease_until = now() + interval '1 h'`, "cluster_recovered "},
		{"a custom role that nobody has", `UPDATE forge_leaders SET lease_until = now() - interval '1 h' WHERE role = 'billing'`, ""},
		{"but somebody should", `UPDATE forge_nodes SET roles = '{billing}' WHERE node_id = 'a'`, `cluster_degraded ["nobody leads billing"]`},
		{"it is gone for good", `UPDATE forge_nodes SET roles = '{}'`, "cluster_recovered "},
		{"nodes leave in order", `UPDATE forge_nodes SET state = 'left'; UPDATE forge_leaders SET lease_until = now() - interval '1 h'`, ""},
	} {
		began := time.Now()
		if _, err := pool.Exec(t.Context(), step.sql); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for range 2 { // a second evaluation appends nothing
			if evaluated, err := eventstore.New(pool).EvaluateHealth(t.Context()); err != nil || !evaluated {
				t.Fatalf("%s: evaluated %v, %v", step.name, evaluated, err)
			}
		}
		if step.tells != "" {
			told = append(told, step.tells)
		}
		switch got := health(t, pool); {
		case slices.Equal(got, told) && readersAgree(t, pool, told):
		case time.Since(began) > 4*time.Second:
			return false
		default:
			t.Fatalf("%s: the event log tells %q; want %q", step.name, got, told)
		}
	}
	return true
}

// readersAgree reports whether readers see the health of the newest event.
func readersAgree(t *testing.T, pool *pgxpool.Pool, told []string) bool {
	t.Helper()
	causes, recorded, err := eventstore.New(pool).Causes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	degraded := len(told) > 0 && strings.HasPrefix(told[len(told)-1], eventstore.ClusterDegraded)
	return recorded && (len(causes) > 0) == degraded
}

func health(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT type || ' ' || coalesce(data ->> 'causes', '') FROM forge_events ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	told, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return told
}

// A transaction that is evaluating, and may be frozen, blocks no other.
func TestEvaluateHealthNeverBlocks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	// The statement changes the row.
	if _, err := tx.Exec(t.Context(), `INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('b', '00000000000000bb', 'dead')`); err != nil {
		t.Fatal(err)
	}
	if _, err := eventstore.New(tx).EvaluateHealth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if evaluated, err := eventstore.New(pool).EvaluateHealth(t.Context()); err != nil || evaluated {
		t.Fatalf("evaluated %v, %v beside another transaction", evaluated, err)
	}
}

func TestEvaluateHealthRecreatesDeletedRow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `
		DELETE FROM forge_health;
		INSERT INTO forge_nodes (node_id, incarnation, state) VALUES ('b', '00000000000000bb', 'dead')`)
	if err != nil {
		t.Fatal(err)
	}
	if evaluated, err := eventstore.New(pool).EvaluateHealth(t.Context()); err != nil || !evaluated {
		t.Fatalf("evaluated %v, %v without the row", evaluated, err)
	}
	if got := health(t, pool); !slices.Equal(got, []string{`cluster_degraded ["node b is dead"]`}) {
		t.Errorf("got %q", got)
	}
}

func TestFindFiltersEvents(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, kind := range []string{eventstore.NodeJoined, eventstore.CronPaused, eventstore.NodeLeft, eventstore.NodeJoined} {
		if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: kind, NodeID: "a"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := pool.Exec(t.Context(), `UPDATE forge_events SET at = $1::timestamptz + id * interval '1 minute'`, start); err != nil {
		t.Fatal(err)
	}
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	for _, test := range []struct {
		filter eventstore.Filter
		want   []int64
	}{
		{eventstore.Filter{Limit: 10}, []int64{4, 3, 2, 1}},
		{eventstore.Filter{Limit: 10, From: minute(2)}, []int64{4, 3, 2}},
		{eventstore.Filter{Limit: 10, To: minute(2)}, []int64{1}},
		{eventstore.Filter{Limit: 1, From: minute(2), To: minute(4)}, []int64{3}},
		{eventstore.Filter{Limit: 10, From: minute(2), To: minute(4), Before: 3, Types: []string{eventstore.CronPaused}}, []int64{2}},
		{eventstore.Filter{Limit: 2}, []int64{4, 3}},
		{eventstore.Filter{Limit: 10, After: 2}, []int64{4, 3}},
		{eventstore.Filter{Limit: 1, Before: 4}, []int64{3}},
		{eventstore.Filter{Limit: 10, Before: 4, After: 1}, []int64{3, 2}},
		{eventstore.Filter{Limit: 10, Types: []string{eventstore.NodeJoined, eventstore.CronPaused}}, []int64{4, 2, 1}},
		{eventstore.Filter{Limit: 10, Types: []string{"nothing"}}, nil},
	} {
		events, err := eventstore.New(pool).Find(t.Context(), test.filter)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for _, event := range events {
			ids = append(ids, event.ID)
		}
		if !slices.Equal(ids, test.want) {
			t.Errorf("%+v: events %v; want %v", test.filter, ids, test.want)
		}
	}
	if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: "of_another_version"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := eventstore.New(pool).CheckTypes(t.Context(), []string{eventstore.QueuePaused, "of_another_version"}); err != nil {
		t.Error(err)
	}
	err := eventstore.New(pool).CheckTypes(t.Context(), []string{eventstore.QueuePaused, "nothing"})
	if unknown, ok := errors.AsType[*eventstore.UnknownTypeError](err); !ok || unknown.Type != "nothing" || !slices.Contains(unknown.Known, "of_another_version") {
		t.Errorf("of a type that there is not: %v", err)
	}
}
