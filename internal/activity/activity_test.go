package activity_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func where(t *testing.T, text string) *filter.Filter {
	t.Helper()
	parsed, err := filter.Parse(text, activity.Keys)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func run(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// insertSome adds entries that differ in everything that filters name. Their ids and their order
// by time differ.
func insertSome(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	run(t, pool, `
		INSERT INTO forge_events (id, at, type, node_id, role, term, data) OVERRIDING SYSTEM VALUE
		SELECT id, now() - ago::interval, type, nullif(node, ''), nullif(role, ''), nullif(term, 0), data::jsonb
		FROM (VALUES
		    (7, '6 h',  'leader_elected',  'node-1', 'scheduler', 3, '{"gap_ms": 12}'),
		    (2, '5 h',  'config_applied',  'node-1', '',          0, '{"hash": "abc"}'),
		    (3, '3 h',  'config_rejected', 'node-2', '',          0, '{"reason": "Bad 100% file"}'),
		    (4, '2 h',  'cron_paused',     '',       '',          0, '{"cron": "nightly", "by": "ada through the API from 10.0.0.1"}'),
		    (5, '1 h',  'cron_resumed',    '',       '',          0, '{"cron": "nightly-2", "by": "Bob@host"}'),
		    (6, '10 m', 'leader_lost',     'node-2', 'backup',    9, '{"reason": "crashed"}')
		) AS e (id, ago, type, node, role, term, data)`)
	run(t, pool, `
		INSERT INTO forge_audit (id, at, actor, source, action, object, outcome, detail) OVERRIDING SYSTEM VALUE
		SELECT id, now() - ago::interval, actor, source, action, object, outcome, detail
		FROM (VALUES
		    (1, '4 h',  'cli:Ada',     'laptop',   'node.drain',     'node-2',          'done',    ''),
		    (2, '2 h',  'ada',         '10.0.0.1', 'cron.pause',     'nightly',         'done',    '200'),
		    (3, '90 m', 'anonymous',   '10.0.0.9', 'read',           '/api/v1/audit',   'refused', 'no token'),
		    (4, '50 m', 'node:node-1', 'h1',       'config.reload',  '/etc/forge.toml', 'refused', 'line 3'),
		    (5, '5 m',  'ada',         '10.0.0.1', 'leader.transfer', 'backup node-1',  'failed',  '500')
		) AS a (id, ago, actor, source, action, object, outcome, detail)`)
}

// names returns the logs and ids of entries.
func names(entries []activity.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%c%d", e.Log[0], e.ID))
	}
	return all
}

func find(t *testing.T, pool *pgxpool.Pool, q activity.Query) []string {
	t.Helper()
	page, err := activity.New(pool).Find(t.Context(), q)
	if err != nil {
		t.Fatalf("%q: %v", q.Where, err)
	}
	if !page.Next.IsZero() && len(page.Entries) < q.Limit {
		t.Errorf("%q: the page of %v has a next one", q.Where, names(page.Entries))
	}
	return names(page.Entries)
}

func TestFilters(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertSome(t, pool)
	for text, want := range map[string]string{
		"":                                   "a5 e6 a4 e5 a3 a2 e4 e3 a1 e2 e7",
		"log:audit":                          "a5 a4 a3 a2 a1",
		"log:events":                         "e6 e5 e4 e3 e2 e7",
		"log:audit log:events type:nothing*": "",
		"type:config_applied":                "e2",
		"type:config*":                       "a4 e3 e2",
		"type:leader_lost type:cron.pause":   "e6 a2",
		"type:*pause*":                       "a2 e4",
		"type:nothing":                       "",
		"node:node-2":                        "e6 e3 a1",
		"node:node-*":                        "e6 a4 e3 a1 e2 e7",
		"node:node-1 type:config_*":          "e2",
		"role:scheduler":                     "e7",
		"role:backup":                        "a5 e6",
		"role:b*":                            "a5 e6",
		"cron:nightly":                       "a2 e4",
		"cron:nightly*":                      "e5 a2 e4",
		"cron:nightly cron:nightly-2":        "e5 a2 e4",
		"by:ADA":                             "a5 a2 e4 a1",
		"by:bob":                             "e5",
		"by:10.0.0.1":                        "a5 a2 e4",
		"by:node-1":                          "a4",
		"text:100%":                          "e3",
		"text:crashed":                       "e6",
		`text:"NO token"`:                    "a3",
		"text:node-2":                        "e6 e3 a1",
		"text:refused":                       "a4 a3",
		"since:100m until:7m":                "e6 a4 e5 a3",
		"since:3h30m type:config*":           "a4 e3",
		"until:4h30m":                        "e2 e7",
		"until:2020-01-01T00:00:00Z":         "",
		`text:"\\"`:                          "",
		"text:_":                             "e6 e5 e4 e3 e2 e7",
		"cron:nightly since:1h":              "",
	} {
		if got := strings.Join(find(t, pool, activity.Query{Where: where(t, text), Limit: 50}), " "); got != want {
			t.Errorf("%q finds %s, want %s", text, got, want)
		}
	}
	if got := strings.Join(find(t, pool, activity.Query{NoAudit: true, Limit: 50}), " "); got != "e6 e5 e4 e3 e2 e7" {
		t.Errorf("without the audit log: %s", got)
	}
	if got := find(t, pool, activity.Query{NoAudit: true, Where: where(t, "log:audit"), Limit: 50}); got != nil {
		t.Errorf("the audit log is left out, but found: %s", got)
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertSome(t, pool)
	page, err := activity.New(pool).Find(t.Context(), activity.Query{Where: where(t, "since:4h30m cron:nightly"), Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Entries {
		page.Entries[i].At = time.Time{}
	}
	want := []activity.Entry{
		{Log: activity.Audit, ID: 2, Type: "cron.pause", By: "ada", Source: "10.0.0.1", Object: "nightly", Outcome: access.Done, Detail: "200"},
		{Log: activity.Events, ID: 4, Type: eventstore.CronPaused, By: "ada through the API from 10.0.0.1", Data: []byte(`{"by": "ada through the API from 10.0.0.1", "cron": "nightly"}`)},
	}
	if diff := cmp.Diff(want, page.Entries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Entries of one instant, in both logs, are on exactly one page each, in one order.
func TestPagesHoldEachEntryOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, `INSERT INTO forge_events (at, type, data) SELECT now() - i / 10 * interval '1 s', 'x' || i % 3, '{}' FROM generate_series(1, 70) i`)
	run(t, pool, `INSERT INTO forge_audit (at, actor, source, action, object, outcome) SELECT now() - i / 10 * interval '1 s', 'ada', 'here', 'x' || i % 3, '', 'done' FROM generate_series(1, 50) i`)
	for _, text := range []string{"", "type:x1", "type:x*", "text:x", "log:audit"} {
		all := find(t, pool, activity.Query{Where: where(t, text), Limit: 1000})
		for i, limit := range []int{1, 7, 50, 1, 7, 50} {
			oldest := i >= 3
			if i == 3 {
				slices.Reverse(all)
			}
			var paged []string
			for before := (activity.Place{}); ; {
				page, err := activity.New(pool).Find(t.Context(), activity.Query{Where: where(t, text), Oldest: oldest, Before: before, Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				paged = append(paged, names(page.Entries)...)
				if page.Next.IsZero() {
					break
				}
				if before, err = activity.ParsePlace(page.Next.String()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(all, paged); diff != "" {
				t.Errorf("%q in pages of %d (-all +paged):\n%s", text, limit, diff)
			}
		}
	}
}

func TestPlacesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", "1-events", "1-events-2-3", "1-else-2", "-1-events-2", "1-audit--2", "253402300800000000-events-1", "1-events-" + fmt.Sprint(uint64(math.MaxInt64)+1)} {
		if place, err := activity.ParsePlace(text); err == nil {
			t.Errorf("%q is read as %s", text, place)
		}
	}
}

// follow follows the activity until stop is called, which returns what was emitted.
func follow(t *testing.T, pool *pgxpool.Pool, q activity.Query) (seen func() []string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := make(chan string, 10_000), make(chan error, 1)
	go func() {
		ended <- activity.New(pool).Follow(ctx, q, func(entries []activity.Entry) error {
			for _, e := range entries {
				lines <- strings.TrimSpace(e.Type + " " + e.Outcome)
			}
			return nil
		})
	}()
	var all []string
	return func() []string {
			for len(lines) > 0 {
				all = append(all, <-lines)
			}
			return all
		}, func() {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
}

// await waits until what was emitted is as wanted.
func await(t *testing.T, seen func() []string, want ...string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !slices.Equal(seen(), want) {
		if time.Now().After(deadline) {
			t.Fatalf("emitted %q, want %q", seen(), want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A stream has the newest entries, then each new one of both logs once, even one that is
// committed late, and an action again when it has ended.
func TestFollow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, name := range []string{"older", "old", "newest"} {
		if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	seen, stop := follow(t, pool, activity.Query{Limit: 2})
	defer stop()
	await(t, seen, "old", "newest")

	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := eventstore.New(late).Append(t.Context(), eventstore.Event{Type: "late"}, nil); err != nil {
		t.Fatal(err)
	}
	audit := access.NewAudit(pool)
	id, err := audit.Begin(t.Context(), access.AuditEntry{Actor: "ada", Source: "here", Action: "drill"})
	if err != nil {
		t.Fatal(err)
	}
	await(t, seen, "old", "newest", "drill begun")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, seen, "old", "newest", "drill begun", "late")
	if err := audit.End(t.Context(), id, access.Done, ""); err != nil {
		t.Fatal(err)
	}
	await(t, seen, "old", "newest", "drill begun", "late", "drill done")
}

func TestFollowWithFilter(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	seen, stop := follow(t, pool, activity.Query{Where: where(t, "type:wanted* log:events"), NoAudit: true, Limit: 50})
	defer stop()
	var want []string
	for i := range 3 {
		for _, name := range []string{"wanted", "other"} {
			if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: fmt.Sprint(name, i)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, fmt.Sprint("wanted", i))
		await(t, seen, want...)
	}
}

// A follower that starts at an instant gets everything since, in order and without a limit, even
// actions that never ended.
func TestFollowSince(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, `INSERT INTO forge_events (at, type) SELECT now() - interval '2 h', 'old' FROM generate_series(1, 60)`)
	run(t, pool, `INSERT INTO forge_events (at, type) SELECT now() - interval '1 h' + i * interval '1 s', 'e' || i FROM generate_series(1, 2500) AS i`)
	run(t, pool, `INSERT INTO forge_audit (at, actor, source, action, object, outcome) VALUES (now() - interval '1 h', 'ada', 'here', 'cron.pause', 'x', 'begun')`)
	want := []string{"cron.pause begun"}
	for i := range 2500 {
		want = append(want, fmt.Sprint("e", i+1))
	}
	for _, since := range []string{"since:61m", "since:" + time.Now().Add(-61*time.Minute).Format(time.RFC3339)} {
		seen, stop := follow(t, pool, activity.Query{Where: where(t, since), Limit: 50})
		await(t, seen, want...)
		if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: "live"}, nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, "live")
		await(t, seen, want...)
		stop()
	}
}

// An entry that is committed late is sent even if it is older than the entries with which the
// stream began.
func TestFollowSendsLateCommits(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, `INSERT INTO forge_events (type) VALUES ('hidden'), ('also hidden')`)
	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := late.Exec(t.Context(), `INSERT INTO forge_events (type) SELECT 'late' FROM generate_series(1, 600)`); err != nil {
		t.Fatal(err)
	}
	run(t, pool, `INSERT INTO forge_events (type) VALUES ('newest')`)
	seen, stop := follow(t, pool, activity.Query{Limit: 1})
	defer stop()
	await(t, seen, "newest")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, seen, slices.Concat([]string{"newest"}, slices.Repeat([]string{"late"}, 600))...)
}

// An instant that is relative to the present does not move on while the stream runs.
func TestFollowSinceRelativeInstant(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	seen, stop := follow(t, pool, activity.Query{Where: where(t, "since:5s"), Limit: 1})
	defer stop()
	run(t, pool, `INSERT INTO forge_events (type) VALUES ('first')`)
	await(t, seen, "first")
	run(t, pool, `INSERT INTO forge_events (at, type) VALUES (now() - interval '10 s', 'before')`)
	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := late.Exec(t.Context(), `INSERT INTO forge_events (type) VALUES ('late')`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_sleep(6)`); err != nil {
		t.Fatal(err)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, seen, "first", "late")
}
