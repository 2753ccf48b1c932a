package eventstore_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestAppendAndList(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	want := []eventstore.Event{
		{Type: eventstore.NodeJoined, NodeID: "a", Data: json.RawMessage(`{"pid": 7}`)},
		{Type: eventstore.LeaderElected, NodeID: "a", Role: "scheduler", Term: 3, Data: json.RawMessage(`{}`)},
		{Type: eventstore.ConfigApplied, Data: json.RawMessage(`{}`)},
	}
	appendEvent(t, pool, want[0], map[string]int{"pid": 7})
	appendEvent(t, pool, want[1], nil)
	appendEvent(t, pool, want[2], nil)

	got := list(t, pool, 0, 10)
	if len(got) != len(want) {
		t.Fatalf("List returned %d events, want %d", len(got), len(want))
	}
	for i, event := range got { // newest first
		if age := time.Since(event.At); age < -time.Minute || age > time.Minute {
			t.Errorf("%s is of %s", event.Type, event.At)
		}
		expected := want[len(want)-1-i]
		expected.ID, expected.At = event.ID, event.At
		if diff := cmp.Diff(expected, event); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for range 5 {
		appendEvent(t, pool, eventstore.Event{Type: "x"}, nil)
	}
	var before, seen int64
	for {
		page := list(t, pool, before, 2)
		if len(page) == 0 {
			break
		}
		for _, event := range page {
			if before != 0 && event.ID >= before {
				t.Fatalf("event %d stands after event %d", event.ID, before)
			}
			before = event.ID
			seen++
		}
	}
	if seen != 5 {
		t.Errorf("the pages hold %d events, want 5", seen)
	}
}

// An event is committed or rolled back with its transaction.
func TestAppendInTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := eventstore.New(tx).Append(t.Context(), eventstore.Event{Type: "x"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if events := list(t, pool, 0, 10); len(events) != 0 {
		t.Errorf("a transaction that was rolled back left %v", events)
	}
}

func TestAppendErrors(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: "x"}, math.NaN())
	if err == nil || !strings.Contains(err.Error(), "encode x event") {
		t.Errorf("data that is no JSON: %v", err)
	}
	pool.Close()
	if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: "x"}, nil); err == nil ||
		!strings.Contains(err.Error(), "append x event") {
		t.Errorf("no database: %v", err)
	}
	if _, err := eventstore.New(pool).Find(t.Context(), eventstore.Filter{Limit: 1}); err == nil || !strings.Contains(err.Error(), "find events") {
		t.Errorf("no database: %v", err)
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	edge := time.Now().Truncate(time.Millisecond)
	for name, at := range map[string]time.Time{
		"oldest": edge.Add(-2 * time.Hour), "older": edge.Add(-time.Hour), "old": edge.Add(-time.Millisecond), "edge": edge,
	} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO forge_events (type, at) VALUES ($1, $2)`, name, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct {
		deleted int64
		left    []string
	}{
		{2, []string{"edge", "old"}}, {1, []string{"edge"}}, {0, []string{"edge"}},
	} {
		deleted, err := eventstore.New(pool).Prune(t.Context(), edge, 2)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := pool.Query(t.Context(), `SELECT type FROM forge_events ORDER BY type`)
		if err != nil {
			t.Fatal(err)
		}
		left, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.left, left); diff != "" || deleted != want.deleted {
			t.Errorf("Prune deleted %d, want %d; left (-want +got):\n%s", deleted, want.deleted, diff)
		}
	}
}

func appendEvent(t *testing.T, pool *pgxpool.Pool, event eventstore.Event, data any) {
	t.Helper()
	if err := eventstore.New(pool).Append(t.Context(), event, data); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, pool *pgxpool.Pool, before int64, limit int) []eventstore.Event {
	t.Helper()
	events, err := eventstore.New(pool).Find(t.Context(), eventstore.Filter{Before: before, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// Find can select the events of a role.
func TestFindByRole(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, role := range []string{"scheduler", "", "log_compactor", "scheduler"} {
		appendEvent(t, pool, eventstore.Event{Type: eventstore.LeaderElected, Role: role}, nil)
	}
	for role, want := range map[string]int{"": 4, "scheduler": 2, "nobody": 0} {
		events, err := eventstore.New(pool).Find(t.Context(), eventstore.Filter{Role: role, Limit: 10})
		if err != nil || len(events) != want {
			t.Errorf("of %q: %d events, %v", role, len(events), err)
		}
	}
}

// Every event type must be in the list of Types.
func TestTypesAreComplete(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "eventstore.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, declaration := range file.Decls {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.CONST || !types.Lparen.IsValid() {
			continue
		}
		for _, spec := range types.Specs {
			if literal, ok := spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit); ok {
				declared = append(declared, strings.Trim(literal.Value, `"`))
			}
		}
	}
	if diff := cmp.Diff(declared, eventstore.Types(), cmpopts.SortSlices(strings.Compare)); diff != "" || len(declared) == 0 {
		t.Errorf("declared and listed differ:\n%s", diff)
	}
}

// An unknown type is refused without reading the whole log.
func TestCheckTypesReadsFewEvents(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO forge_events (type) SELECT 'own_' || i % 3 FROM generate_series(1, 20000) AS i`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `ANALYZE forge_events`); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var unknown *eventstore.UnknownTypeError
		events := eventstore.New(tx)
		if err := events.CheckTypes(t.Context(), []string{"own_0", "own_2"}); err != nil {
			t.Errorf("recorded types: %v", err)
		}
		if err := events.CheckTypes(t.Context(), []string{"own_3"}); !errors.As(err, &unknown) || unknown.Type != "own_3" || !slices.Contains(unknown.Known, "own_1") {
			t.Errorf("a type that does not exist: %v", err)
		}
		var read int64
		err := tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'forge_events'`).Scan(&read)
		if read > 100 {
			t.Errorf("%d events were read", read)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
