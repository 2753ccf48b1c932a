package cronstore_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestFindTick(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, last_tick, tick_count)
		VALUES ('a', $1::timestamptz, 'skipped_window', 1, 'n1', $1 + interval '10 hours', 10),
		       ('a', $1 + interval '3 hours', 'triggered', 1, 'n1', NULL, 1),
		       ('a', $1 + interval '12 hours', 'fired', 1, 'n1', NULL, 1),
		       ('b', $1 + interval '11 hours', 'fired', 1, 'n1', NULL, 1)`, start)
	for hour, want := range map[int]cronstore.Verdict{
		-1: "", 0: cronstore.SkippedWindow, 3: cronstore.Triggered, 4: cronstore.SkippedWindow, 10: cronstore.SkippedWindow,
		11: "", 12: cronstore.Fired, 13: "",
	} {
		found, err := cronstore.New(pool).FindTick(t.Context(), "a", start.Add(time.Duration(hour)*time.Hour))
		if found.Verdict != want || (want == "") != errors.Is(err, cronstore.ErrNotFound) {
			t.Errorf("hour %d: %s, %v; want %q", hour, found.Verdict, err, want)
		}
	}
}

// The list in Go and the verdicts for the outline use the newest row of each cron in force.
func TestLastVerdicts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	specs := map[string]cronstore.Spec{}
	for _, name := range []string{"broken", "gone", "late", "new", "skips", "works"} {
		specs[name] = spec("@yearly")
	}
	apply(t, pool, "h1", specs, false)
	delete(specs, "gone")
	apply(t, pool, "h2", specs, false)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT cron, '2026-01-01Z'::timestamptz + n * interval '1 hour', verdict, 1, 'n1'
		FROM (VALUES ('works', 1, 'failed'), ('works', 2, 'fired'), ('broken', 1, 'fired'), ('broken', 2, 'failed'),
		      ('skips', 1, 'skipped_overlap'), ('late', 1, 'caught_up'), ('gone', 1, 'failed')) AS t (cron, n, verdict)`)
	verdicts, err := cronstore.New(pool).Verdicts(t.Context())
	want := map[string]cronstore.Verdict{"broken": cronstore.Failed, "late": cronstore.CaughtUp, "skips": cronstore.SkippedOverlap, "works": cronstore.Fired}
	if err != nil || !maps.Equal(verdicts, want) {
		t.Errorf("the verdicts are %v, %v; want %v", verdicts, err, want)
	}
	all, err := cronstore.New(pool).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sorted := namesOf(cronstore.Select(nil, cronstore.ByVerdict, time.Now(), all))
	if want := []string{"broken", "skips", "late", "works", "new"}; !slices.Equal(sorted, want) {
		t.Errorf("by verdict: %v, want %v", sorted, want)
	}
}

func TestTicksOfASpan(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, last_tick, tick_count)
		SELECT 'a', $1::timestamptz + n * interval '1 hour', 'fired', 1, 'n1', NULL, 1 FROM generate_series(0, 9) AS n
		UNION ALL SELECT 'a', $1::timestamptz + interval '10 hours', 'skipped_paused', 1, 'n1', $1::timestamptz + interval '15 hours', 6
		UNION ALL SELECT 'a', $1::timestamptz + interval '16 hours', 'fired', 1, 'n1', NULL, 1
		UNION ALL SELECT 'b', $1::timestamptz + interval '3 hours', 'fired', 1, 'n1', NULL, 1`, start)
	store := cronstore.New(pool)
	hour := func(n int) time.Time { return start.Add(time.Duration(n) * time.Hour) }
	hours := func(ticks []cronstore.Tick, err error) (found []int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, tick := range ticks {
			found = append(found, int(tick.Tick.Sub(start)/time.Hour))
		}
		return found
	}
	for _, test := range []struct {
		got, want []int
	}{
		{hours(store.TicksBetween(t.Context(), "a", hour(3), hour(6), 10)), []int{5, 4, 3}},
		{hours(store.TicksBetween(t.Context(), "a", hour(3), hour(6), 2)), []int{5, 4}},
		{hours(store.TicksBetween(t.Context(), "a", hour(12), time.Time{}, 10)), []int{16, 10}}, // a range that began before
		{hours(store.TicksBetween(t.Context(), "a", hour(16), time.Time{}, 10)), []int{16}},
		{hours(store.TicksBetween(t.Context(), "a", time.Time{}, hour(2), 10)), []int{1, 0}},
		{hours(store.TicksBetween(t.Context(), "a", time.Time{}, time.Time{}, 3)), []int{16, 10, 9}},
		{hours(store.TicksFrom(t.Context(), "a", hour(8), 3)), []int{8, 9, 10}},
		{hours(store.TicksFrom(t.Context(), "a", hour(17), 3)), nil},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("got %v, want %v", test.got, test.want)
		}
	}
}

// A part of the ledger is read without the rest of it, whichever part it is, and even if the same
// statement has often been used for many rows.
func TestPartsOfTheLedgerReadFewRows(t *testing.T) {
	t.Parallel()
	const many = 40_000
	pool := pgtest.Pool(t)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT CASE WHEN i % 100 = 0 THEN 'rare' ELSE 'often' END, $1::timestamptz + i * interval '1 second', 'fired', 1, 'n1'
		FROM generate_series(1, $2::int) AS i`, start, many)
	exec(t, pool, `VACUUM ANALYZE forge_cron_ticks`)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second) }
	for range 8 { // more often than PostgreSQL creates custom plans for a prepared statement
		_, _ = cronstore.New(conn).Ticks(t.Context(), "often", time.Time{}, 50)
		_, _ = cronstore.New(conn).TicksFrom(t.Context(), "often", start, 50)
		_, _ = cronstore.New(conn).TicksBetween(t.Context(), "often", start, time.Time{}, 50)
	}
	for name, look := range map[string]func(s *cronstore.Store) ([]cronstore.Tick, error){
		"from the middle": func(s *cronstore.Store) ([]cronstore.Tick, error) {
			return s.TicksFrom(t.Context(), "often", at(many/2), 50)
		},
		"of a rare cron": func(s *cronstore.Store) ([]cronstore.Tick, error) { return s.TicksFrom(t.Context(), "rare", at(0), 50) },
		"between instants": func(s *cronstore.Store) ([]cronstore.Tick, error) {
			return s.TicksBetween(t.Context(), "often", at(100), at(200), 500)
		},
		"the newest ones": func(s *cronstore.Store) ([]cronstore.Tick, error) {
			return s.TicksBetween(t.Context(), "often", at(many-60), time.Time{}, 500)
		},
		"the newest of a rare cron": func(s *cronstore.Store) ([]cronstore.Tick, error) {
			return s.Ticks(t.Context(), "rare", time.Time{}, 50)
		},
		"a part of a rare cron": func(s *cronstore.Store) ([]cronstore.Tick, error) {
			return s.TicksBetween(t.Context(), "rare", at(0), time.Time{}, 50)
		},
		"before the newest": func(s *cronstore.Store) ([]cronstore.Tick, error) {
			return s.Ticks(t.Context(), "often", at(many/3), 50)
		},
	} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			before := rowsRead(t, tx)
			ticks, err := look(cronstore.New(tx))
			if read := rowsRead(t, tx) - before; len(ticks) == 0 || read > 1000 {
				t.Errorf("%s: %d ticks, %d rows read", name, len(ticks), read)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// rowsRead returns how many rows of the ledger the transaction has read.
func rowsRead(t *testing.T, tx pgx.Tx) (rows int64) {
	t.Helper()
	err := tx.QueryRow(t.Context(), `
		SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables WHERE relname LIKE 'forge_cron_ticks%'`).Scan(&rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
