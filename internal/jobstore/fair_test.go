package jobstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

var byTenant = FairQueue{Queue: "it's \\ mail", Key: limitkey.Key{Source: limitkey.Args, Path: []string{`ten'ant`}}}

// insertTenants inserts the available jobs of a text such as "a a b:4 -": a letter is the tenant, and
// the number the priority. Jobs are inserted in this order; - is a job without a tenant.
func insertTenants(t *testing.T, pool *pgxpool.Pool, jobs string) {
	t.Helper()
	for i, job := range strings.Fields(jobs) {
		tenant, priority, given := strings.Cut(job, ":")
		if !given {
			priority = "1"
		}
		args := fmt.Sprintf(`{"ten'ant": %q}`, tenant)
		if tenant == "-" {
			args = `{"ten'ant": null}`
		}
		mustExec(t, pool, `INSERT INTO river_job (args, kind, queue, priority, scheduled_at, metadata)
			VALUES ($1, 'send', $2, $3::text::smallint, now() - interval '1 hour' + $4 * interval '1 s', '{}')`, args, byTenant.Queue, priority, i)
	}
}

// scanned returns the tenants, and priorities other than 1, of the jobs in their order. A + follows
// a tenant that may have more jobs, if there are fewer than the limit.
func scanned(t *testing.T, pool *pgxpool.Pool, scan FairScan) string {
	t.Helper()
	jobs, err := New(pool).ScanFair(t.Context(), scan, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	found := make([]string, len(jobs))
	for i, job := range jobs {
		found[i] = job.Key
		if job.Key == "" {
			found[i] = "-"
		}
		if job.Priority > 1 {
			found[i] += fmt.Sprintf(":%d", job.Priority)
		}
		if job.More && len(jobs) < scan.Limit {
			found[i] += "+"
		}
	}
	return strings.Join(found, " ")
}

func TestScanFairReadsInTurns(t *testing.T) {
	t.Parallel()
	const jobs = "a a a a b c:4 c:2 - - b"
	for name, test := range map[string]struct {
		scan FairScan
		want string
	}{
		"from the first key":       {FairScan{Limit: 10}, "a b c:2 - a b c:4 - a+"},
		"no more than the limit":   {FairScan{Limit: 5}, "a b c:2 - a"},
		"fewer than the keys":      {FairScan{Limit: 2}, "a b"},
		"after a key":              {FairScan{Limit: 5, From: FairPosition{Key: "b"}}, "c:2 - a b c:4"},
		"after a key that is gone": {FairScan{Limit: 3, From: FairPosition{Key: "bb"}}, "c:2 - a"},
		"after the last key":       {FairScan{Limit: 3, From: FairPosition{Key: "c"}}, "- a b"},
		"the oldest first":         {FairScan{Limit: 10, OldestFirst: true}, "a b c:4 - a b c:2 - a+"},
		"with weights":             {FairScan{Limit: 10, FairQueue: FairQueue{Weights: map[string]int{"a": 3}}}, "a a a b c:2 - a b c:4 -"},
		"within a turn": {
			FairScan{Limit: 4, FairQueue: FairQueue{Weights: map[string]int{"a": 3}}, From: FairPosition{Key: "a", Served: 2}}, "a b c:2 -",
		},
		"within the turn of a key that is gone": {
			FairScan{Limit: 4, FairQueue: FairQueue{Weights: map[string]int{"aa": 3}}, From: FairPosition{Key: "aa", Served: 2}}, "b c:2 - a",
		},
		"one key, within its turn": {
			FairScan{Limit: 1, FairQueue: FairQueue{Weights: map[string]int{"c": 2}}, From: FairPosition{Key: "c", Served: 1}}, "c:2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			insertTenants(t, pool, jobs)
			mustExec(t, pool, `INSERT INTO river_job (args, kind, queue) VALUES ('{"ten''ant": "other queue"}', 'send', 'other')`)
			mustExec(t, pool, `UPDATE river_job SET state = 'running' WHERE id = 1`)
			mustExec(t, pool, `UPDATE river_job SET state = 'available' WHERE id = 1`)
			if err := New(pool).CreateFairIndex(t.Context(), byTenant); err != nil {
				t.Fatal(err)
			}
			test.scan.Queue, test.scan.Key = byTenant.Queue, byTenant.Key
			if diff := cmp.Diff(test.want, scanned(t, pool, test.scan)); diff != "" {
				t.Errorf("scanned (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScanFairSkipsJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertTenants(t, pool, "a a b b c c")
	mustExec(t, pool, `UPDATE river_job SET state = 'running', attempted_by = '{n}' WHERE id = 5`)
	scan := FairScan{FairQueue: byTenant, Limit: 10, Skip: []int64{1, 3, 4}}
	if got := scanned(t, pool, scan); got != "a c" {
		t.Errorf("scanned %s", got)
	}
	scan.SkipKeys, scan.Limit = []string{"a"}, 2
	if got := scanned(t, pool, scan); got != "c+" {
		t.Errorf("scanned %s without the jobs of a", got)
	}
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at, paused_at) VALUES ($1, now(), now())`, byTenant.Queue)
	if got := scanned(t, pool, scan); got != "" {
		t.Errorf("scanned %s of a paused queue", got)
	}
}

// A scan leaves out the jobs of a key up to a position in each priority, in either order.
func TestScanFairBeginsBehindPassedJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertTenants(t, pool, "a:2 a:1 a:1 a:1 b:1 a:2 a:4 a:3 c:1")
	if err := New(pool).CreateFairIndex(t.Context(), byTenant); err != nil {
		t.Fatal(err)
	}
	at := func(id int64) Position {
		var p Position
		if err := pool.QueryRow(t.Context(), `SELECT scheduled_at, id FROM river_job WHERE id = $1`, id).Scan(&p.ScheduledAt, &p.ID); err != nil {
			t.Fatal(err)
		}
		return p
	}
	passed := map[string]*[Priorities]Position{"a": {at(3), at(1), {}, at(7)}, "c": {at(9)}}
	for oldest, want := range map[bool]string{false: "a b a:2 a:3", true: "a b a:2 a:3"} {
		if got := scanned(t, pool, FairScan{FairQueue: byTenant, Limit: 10, OldestFirst: oldest, Passed: passed}); got != want {
			t.Errorf("oldest first %t: scanned %s, want %s", oldest, got, want)
		}
	}
	passed["a"][0], passed["a"][1] = at(4), Position{}
	for oldest, want := range map[bool]string{false: "a:2 b a:2 a:3", true: "a:2 b a:2 a:3"} {
		if got := scanned(t, pool, FairScan{FairQueue: byTenant, Limit: 10, OldestFirst: oldest, Passed: passed}); got != want {
			t.Errorf("oldest first %t, with all of priority 1 passed: scanned %s, want %s", oldest, got, want)
		}
	}
}

// A fair scan reads few rows for any number of keys and jobs, also of a queue with ten times
// as many jobs of one key.
func TestScanFairReadsFewRows(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_job (args, kind, queue, metadata)
		SELECT jsonb_build_object('ten''ant', CASE WHEN i % 11 = 0 THEN 'small-' || i ELSE 'big' END), 'send', $1, '{}'
		FROM generate_series(1, 22000) AS i`, byTenant.Queue)
	if err := New(pool).CreateFairIndex(t.Context(), byTenant); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `ANALYZE river_job`)
	recorded := &recorder{}
	traced := recordedPool(t, recorded)
	deep := map[string]*[Priorities]Position{"big": {}}
	if err := pool.QueryRow(t.Context(), `SELECT scheduled_at, id FROM river_job WHERE id = 20000`).Scan(&deep["big"][0].ScheduledAt, &deep["big"][0].ID); err != nil {
		t.Fatal(err)
	}
	for _, scan := range []FairScan{{}, {OldestFirst: true}, {Passed: deep}, {OldestFirst: true, Passed: deep}} {
		scan.FairQueue, scan.Limit, scan.Skip = byTenant, 20, []int64{7}
		if _, err := New(traced).ScanFair(t.Context(), scan, time.Second); err != nil {
			t.Fatal(err)
		}
		for _, s := range recorded.take() {
			plan := explainAnalyze(t, pool, s)
			if rows := plan.readRows(map[string]bool{}); rows > 200 {
				t.Errorf("oldest first: %t, behind passed jobs: %t: read %.0f rows for 20 jobs", scan.OldestFirst, scan.Passed != nil, rows)
			}
		}
	}
}

func TestFairIndexes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	store := New(pool)
	if err := store.CreateFairIndex(t.Context(), byTenant); err != nil {
		t.Fatal(err)
	}
	indexes, err := store.FairIndexes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]FairIndex{{Name: byTenant.IndexName(), Ready: true}}, indexes); diff != "" {
		t.Errorf("indexes (-want +got):\n%s", diff)
	}
	if err := store.DropFairIndex(t.Context(), byTenant.IndexName()); err != nil {
		t.Fatal(err)
	}
	if indexes, err = store.FairIndexes(t.Context()); err != nil || len(indexes) != 0 {
		t.Errorf("after the drop: %v, %v", indexes, err)
	}
}
