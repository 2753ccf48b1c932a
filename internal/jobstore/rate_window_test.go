package jobstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func setLimits(t *testing.T, pool *pgxpool.Pool, limits ...Limit) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return New(tx).SetLimits(t.Context(), limits) })
	if err != nil {
		t.Fatal(err)
	}
}

// start is the start of an attempt.
type start struct {
	tenant string
	at     time.Time
	units  int
}

// most returns the maximum units of starts in a window, with its ends.
func most(starts []start, span time.Duration) int {
	slices.SortFunc(starts, func(a, b start) int { return a.at.Compare(b.at) })
	highest, units, from := 0, 0, 0
	for _, s := range starts {
		units += s.units
		for s.at.Sub(starts[from].at) > span {
			units -= starts[from].units
			from++
		}
		highest = max(highest, units)
	}
	return highest
}

// Concurrent claims of several nodes never start more than the rates allow in any window, by the
// times of the attempts, while the rates change and while jobs are tried again.
func TestConcurrentStartsRespectRates(t *testing.T) {
	t.Parallel()
	const lasts = 3 * time.Second
	pool := pgtest.Pool(t)
	byTenant := Limit{Scope: ScopeQueue, Name: "default", Most: 24, Key: "args.tenant", Per: 500 * time.Millisecond, Burst: 6}
	ofKind := Limit{Scope: ScopeJob, Name: "k", Most: 90, Per: time.Second}
	setLimits(t, pool, byTenant, ofKind, Limit{Scope: ScopeWeight, Name: "k", Most: 2})
	mustExec(t, pool, `INSERT INTO river_job (args, kind, metadata)
		SELECT jsonb_build_object('tenant', 't' || i % 3), 'k', CASE i % 4 WHEN 0 THEN '{"forge:weight": 1}' WHEN 1 THEN '{"forge:weight": 5}' ELSE '{}' END::jsonb
		FROM generate_series(1, 300) AS i`)
	clients := []*Client{newTestClient(t, pool)}
	for n := 1; n < 4; n++ {
		id, incarnation := fmt.Sprintf("n%d", n), fmt.Sprintf("%016x", n)
		mustExec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ($1, $2)`, id, incarnation)
		clients = append(clients, NewClient(pool, Identity{ClientID: id + "-" + incarnation, NodeID: id, Incarnation: incarnation, Schema: "public"}))
	}
	var mu sync.Mutex
	var starts []start
	var wg sync.WaitGroup
	ends := time.Now().Add(lasts)
	for _, client := range clients {
		wg.Go(func() {
			for time.Now().Before(ends) {
				some, err := startSome(t.Context(), pool, client)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				starts = append(starts, some...)
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for lower := ofKind; time.Now().Before(ends); time.Sleep(50 * time.Millisecond) {
			lower.Most = 170 - lower.Most
			setLimits(t, pool, byTenant, lower, Limit{Scope: ScopeWeight, Name: "k", Most: 2})
		}
	})
	wg.Wait()
	if n := most(starts, ofKind.Per); n > ofKind.Most {
		t.Errorf("%d units started within %s, the limit is %d", n, ofKind.Per, ofKind.Most)
	}
	for _, tenant := range []string{"t0", "t1", "t2"} {
		own := slices.DeleteFunc(slices.Clone(starts), func(s start) bool { return s.tenant != tenant })
		if n := most(own, byTenant.Per); n > byTenant.Most {
			t.Errorf("%d units of %s started within %s, the limit is %d", n, tenant, byTenant.Per, byTenant.Most)
		}
		if n := most(own, byTenant.BurstSpan()); n > byTenant.Burst {
			t.Errorf("%d units of %s started within %s, the limit is %d", n, tenant, byTenant.BurstSpan(), byTenant.Burst)
		}
	}
	units := 0
	for _, s := range starts {
		units += s.units
	}
	if units < ofKind.Most {
		t.Errorf("only %d units started in %s", units, lasts)
	}
}

// startSome claims some of the jobs, and makes those available again that it claimed.
func startSome(ctx context.Context, pool *pgxpool.Pool, client *Client) (starts []start, err error) {
	ids := make([]int64, 8)
	for i := range ids {
		ids[i] = 1 + rand.Int64N(300)
	}
	slices.Sort(ids)
	rows, err := claimLimited(ctx, client, Offer{Queue: "default", IDs: slices.Compact(ids), Term: 1, MaxAttemptedBy: 100})
	if err != nil {
		return nil, err
	}
	ids = ids[:0]
	for _, row := range rows {
		s := start{tenant: fmt.Sprintf("t%d", row.ID%3), at: *row.AttemptedAt, units: 2}
		switch row.ID % 4 {
		case 0:
			s.units = 1
		case 1:
			s.units = 5
		}
		starts, ids = append(starts, s), append(ids, row.ID)
	}
	_, err = pool.Exec(ctx, `UPDATE river_job SET state = 'available' WHERE id = ANY ($1)`, ids)
	return starts, err
}

// claimedOf returns how many of the jobs are claimed, and makes them available again.
func claimedOf(t *testing.T, pool *pgxpool.Pool, client *Client, ids []int64) int {
	t.Helper()
	rows, err := claimLimited(t.Context(), client, Offer{Queue: "default", IDs: ids, Term: 1, MaxAttemptedBy: 100})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `UPDATE river_job SET state = 'available' WHERE state = 'running'`)
	return len(rows)
}

func window(t *testing.T, pool *pgxpool.Pool) RateWindow {
	t.Helper()
	windows, err := New(pool).RateWindows(t.Context(), []Places{{Scope: ScopeQueue, Name: "default"}})
	if err != nil || len(windows) != 1 {
		t.Fatal(windows, err)
	}
	return windows[0]
}

// The wait of a window is the time until the database allows the next start.
func TestWaitOfRates(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{}', 'k' FROM generate_series(1, 9)`)
	limit := Limit{Scope: ScopeQueue, Name: "default", Most: 3, Per: time.Hour}
	setLimits(t, pool, limit)
	if w := window(t, pool); len(w.Starts) != 0 {
		t.Errorf("a new window has the starts %v", w.Starts)
	}
	if n := claimedOf(t, pool, client, numbers(1, 9)); n != 3 {
		t.Errorf("%d jobs started, want 3", n)
	}
	if n := claimedOf(t, pool, client, numbers(1, 9)); n != 0 {
		t.Errorf("%d more jobs started", n)
	}
	w := window(t, pool)
	if wait, ever := w.Wait(limit, 0, 1, w.Now); !ever || wait < time.Hour-time.Minute || wait > time.Hour {
		t.Errorf("the next start is in %s, %v", wait, ever)
	}
	if _, ever := w.Wait(limit, 0, 4, w.Now); ever {
		t.Error("four units may start of a rate of three")
	}
	mustExec(t, pool, `UPDATE forge_rate_windows SET starts = ARRAY (SELECT s - interval '1 hour' + interval '300 ms' FROM unnest(starts) AS s)`)
	w = window(t, pool)
	wait, ever := w.Wait(limit, 0, 1, w.Now)
	if !ever || wait > 300*time.Millisecond {
		t.Errorf("the next start is in %s, %v", wait, ever)
	}
	time.Sleep(wait)
	if n := claimedOf(t, pool, client, numbers(1, 9)); n != 3 {
		t.Errorf("when the window had passed, %d jobs started, want 3", n)
	}
	if w := window(t, pool); len(w.Starts) != 1 || w.Units[0] != 3 {
		t.Errorf("starts that count no more are kept: %+v", w)
	}
}

// If the clock is set back, starts that seem to be in the future count.
func TestRateWithClockSetBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (args, kind) SELECT '{}', 'k' FROM generate_series(1, 9)`)
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "default", Most: 3, Per: time.Hour})
	mustExec(t, pool, `INSERT INTO forge_rate_windows VALUES ('queue_rate', 'default', '', ARRAY[now() + interval '50 minutes', now() + interval '2 hours'], '{2,3}', '{}', '{}', now())`)
	if n := claimedOf(t, pool, client, numbers(1, 9)); n != 1 {
		t.Errorf("%d jobs started, want 1", n)
	}
	if w := window(t, pool); len(w.Starts) != 3 {
		t.Errorf("the starts are %v", w.Starts)
	}
}

// A window has a bounded number of starts, however many there were.
func TestRateWindowsAreBounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var longest int
	var units int64
	err := pool.QueryRow(t.Context(), `
		WITH RECURSIVE w (n, at, starts, units) AS (
			SELECT 0, timestamptz '2027-01-01', NULL::timestamptz[], NULL::bigint[]
			UNION ALL
			SELECT n + 1, at + interval '17 milliseconds', a.starts, a.units
			FROM w, LATERAL forge_rate_add(w.starts, w.units, 2, interval '10 seconds', w.at) AS a
			WHERE n < 3000
		)
		SELECT max(cardinality(starts)), max((SELECT sum(u) FROM unnest(units) AS u)) FROM w`).Scan(&longest, &units)
	if err != nil || longest > 102 || units < 2*588 || units > 2*600 {
		t.Errorf("%d starts with %d units at once: %v", longest, units, err)
	}
}

// Windows of which nothing counts any more are forgotten, a few blocks at a time.
func TestForgetWindows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO forge_rate_windows
		SELECT 'queue_rate', 'q', i::text, ARRAY[now()], '{1}', '{}', '{}', now() + CASE WHEN i % 10 = 0 THEN interval '0' ELSE interval '-2 minutes' END
		FROM generate_series(1, 1000) AS i`)
	left := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_rate_windows`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	blocks, err := New(pool).ForgetWindows(t.Context(), 0, 1)
	if n := left(); err != nil || blocks < 2 || n == 1000 || n == 100 {
		t.Errorf("after one of %d blocks, %d windows are left: %v", blocks, n, err)
	}
	if _, err := New(pool).ForgetWindows(t.Context(), 0, 1000); err != nil || left() != 100 {
		t.Errorf("%d windows are left: %v", left(), err)
	}
}

// A claim without the limit check takes no job of a queue or kind that has a limit by now.
func TestUnlimitedClaimsLeaveLimitedJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	mustExec(t, pool, `INSERT INTO river_job (args, kind, queue) VALUES ('{}', 'k', 'default'), ('{}', 'rare', 'default'), ('{}', 'k', 'narrow')`)
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "narrow", Most: 5, Key: "cron"}, Limit{Scope: ScopeJob, Name: "rare", Most: 5, Per: time.Minute})
	for queue, want := range map[string]int{"default": 1, "narrow": 0} {
		rows, err := claimUnlimited(t.Context(), client, Offer{Queue: queue, IDs: numbers(1, 3), Term: 1, MaxAttemptedBy: 100})
		if err != nil || len(rows) != want || want == 1 && rows[0].ID != 1 {
			t.Errorf("of queue %s, %d jobs were claimed, want %d: %v", queue, len(rows), want, err)
		}
	}
}

func TestCheckWeight(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	setLimits(t, pool, Limit{Scope: ScopeQueue, Name: "q", Most: 5, Per: time.Minute, Burst: 3}, Limit{Scope: ScopeJob, Name: "k", Most: 4, Per: time.Minute}, Limit{Scope: ScopeJob, Name: "l", Most: 1},
		Limit{Scope: ScopeWeight, Name: "heavy", Most: 4})
	for _, test := range []struct {
		queue, kind string
		weight      int
		want        error
	}{
		{"q", "other", 3, nil},
		{"other", "k", 4, nil},
		{"other", "l", 9, nil},
		{"q", "k", 0, nil},
		{"q", "heavy", 3, nil},
		{"other", "heavy", 0, nil},
		{"q", "heavy", 0, WeightError{"queue q", 4, 3}},
		{"q", "other", 4, WeightError{"queue q", 4, 3}},
		{"other", "k", 5, WeightError{"job k", 5, 4}},
	} {
		if err := New(pool).CheckWeight(t.Context(), test.queue, test.kind, test.weight); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
