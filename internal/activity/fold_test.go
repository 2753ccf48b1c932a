package activity_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// insertActions adds actions and their events, which have the same numbers. The actions from 20 on
// have no event of their own, or several.
const insertActions = `
	WITH actions (id, at, actor, action, object, outcome, detail) AS (VALUES
	    (1,  60, 'ada',       'cron.pause',       'a b',     'done',    '200'),
	    (2,  58, 'anonymous', 'cron.resume',      'a b',     'done',    '200'),
	    (3,  56, 'cli:root',  'cron.trigger',     'a b --at 1', 'done', ''),
	    (4,  54, 'ada',       'job.retry',        '42',      'done',    '200'),
	    (5,  52, 'ada',       'job.enqueue',      '',        'done',    '201 send, job 7'),
	    (6,  50, 'cli:root',  'job.enqueue',      'send',    'done',    ''),
	    (7,  48, 'ada',       'queue.pause',      'default', 'done',    '200'),
	    (8,  46, 'ada',       'leader.transfer',  'backup node-1', 'done', '202'),
	    (9,  44, 'ada',       'node.drain',       'node-2',  'done',    '202'),
	    (10, 42, 'ada',       'alerts.silence',   'slow',    'done',    '200'),
	    (20, 62, 'bob',       'cron.pause',       'a b',     'done',    '200'),
	    (21, 61, 'ada',       'cron.pause',       'a',       'done',    '200'),
	    (22, 40, 'ada',       'job.cancel',       '',        'done',    '200 cron=a'),
	    (23, 45, 'ada',       'node.drain',       'node-2',  'refused', '409'),
	    (24, 90, 'ada',       'cron.pause',       'a b',     'done',    '200'),
	    (25, 30, 'ada',       'cron.pause',       '',        'done',    '200 names=[c d e]'),
	    (28, 28, 'cli:root',  'job.retry',        '--kind=x', 'done',   ''),
	    (30, 26, 'ada',       'dead.discard',     '0a1b',    'done',    '200'),
	    (31, 24, 'ada',       'cron.undo',        'XYZ',     'done',    '200 operation XYZ, changed 1')
	), audited AS (
	    INSERT INTO forge_audit (id, at, actor, source, action, object, outcome, detail) OVERRIDING SYSTEM VALUE
	    SELECT id, now() - make_interval(secs => at), actor, '', action, object, outcome, detail FROM actions
	)
	INSERT INTO forge_events (id, at, type, node_id, role, data) OVERRIDING SYSTEM VALUE
	SELECT e.id, now() - make_interval(secs => a.at - 0.2 - (e.id - a.id) * 0.1), type, node, role, data::jsonb FROM (VALUES
	    (1,  'cron_paused',     NULL,     NULL,     '{"cron": "a b", "by": "ada through the API from 10.0.0.1"}'),
	    (2,  'cron_resumed',    NULL,     NULL,     '{"cron": "a b", "by": "the dashboard from 10.0.0.1"}'),
	    (3,  'cron_triggered',  NULL,     NULL,     '{"cron": "a b", "job_id": 6, "by": "root@host"}'),
	    (4,  'job_retried',     NULL,     NULL,     '{"ids": [42], "jobs": 1, "by": "ada through the dashboard from 10.0.0.1"}'),
	    (5,  'job_enqueued',    NULL,     NULL,     '{"id": 7, "kind": "send", "by": "ada through the API from 10.0.0.1"}'),
	    (6,  'job_enqueued',    NULL,     NULL,     '{"id": 8, "kind": "send", "by": "root@host"}'),
	    (7,  'queue_paused',    NULL,     NULL,     '{"queue": "default", "by": "ada through the API from 10.0.0.1"}'),
	    (8,  'hand_over_asked', 'node-2', 'backup', '{"to": "node-1", "by": "ada through the API from 10.0.0.1"}'),
	    (9,  'node_drained',    'node-2', NULL,     '{"by": "ada through the API from 10.0.0.1"}'),
	    (10, 'alert_silenced',  NULL,     NULL,     '{"alert": "slow", "by": "ada through the API from 10.0.0.1"}'),
	    (22, 'job_cancelled',   NULL,     NULL,     '{"ids": [1, 2], "jobs": 2, "by": "ada through the API from 10.0.0.1"}'),
	    (25, 'cron_paused',     NULL,     NULL,     '{"cron": "c", "matched": 3, "by": "ada through the API from 10.0.0.1"}'),
	    (26, 'cron_paused',     NULL,     NULL,     '{"cron": "d", "part": 2, "by": "ada through the API from 10.0.0.1"}'),
	    (27, 'cron_paused',     NULL,     NULL,     '{"cron": "e", "part": 3, "by": "ada through the API from 10.0.0.1"}'),
	    (28, 'job_retried',     NULL,     NULL,     '{"ids": [1], "jobs": 500, "matched": 600, "by": "root@host"}'),
	    (29, 'job_retried',     NULL,     NULL,     '{"ids": [2], "jobs": 100, "part": 2, "by": "root@host"}'),
	    (30, 'dead_letters_discarded', NULL, NULL,  '{"ids": [3], "jobs": 1, "by": "ada through the API from 10.0.0.1"}'),
	    (31, 'cron_resumed',    NULL,     NULL,     '{"cron": "c", "by": "ada through the API from 10.0.0.1"}')
	) AS e (id, type, node, role, data) JOIN actions AS a ON a.id = (SELECT max(id) FROM actions WHERE id <= e.id)`

// An action that has an event is one entry, even if it has many. Others stay, even if they are
// much alike.
func TestAnActionIsOneEntry(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, insertActions)
	want := strings.Fields("e31 e30 e28 e25 e22 e10 e9 a23 e8 e7 e6 e5 e4 e3 e2 e1 a21 a20 a24")
	for _, oldest := range []bool{false, true} {
		if oldest {
			slices.Reverse(want)
		}
		for _, limit := range []int{1, 2, 3, 100} {
			if diff := cmp.Diff(want, pages(t, activity.New(pool), activity.Query{Oldest: oldest, Limit: limit})); diff != "" {
				t.Errorf("pages of %d, oldest first: %v (-want +got):\n%s", limit, oldest, diff)
			}
		}
	}
	for text, want := range map[string]string{
		"cron:d":    "e26",
		"cron:e":    "e27",
		"text:root": "e29 e28 e6 e3",
	} {
		if got := strings.Join(find(t, pool, activity.Query{Where: where(t, text), Limit: 100}), " "); got != want {
			t.Errorf("%q finds %s, want %s", text, got, want)
		}
	}
	if got := find(t, pool, activity.Query{Where: where(t, "log:audit"), Limit: 100}); len(got) != 19 {
		t.Errorf("the audit log alone is %v", got)
	}
}

// A follower gets an action that writes events as the first of them, whenever the action ends. One
// that fails has no event.
func TestFollowFoldsActions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, insertActions)
	run(t, pool, `SELECT setval(pg_get_serial_sequence(of, 'id'), 100) FROM unnest('{forge_audit,forge_events}'::text[]) AS of`)
	seen, stop := follow(t, pool, activity.Query{Limit: 3})
	defer stop()
	want := []string{"job_retried", "dead_letters_discarded", "cron_resumed"}
	await(t, seen, want...)
	audit := access.NewAudit(pool)
	begin := func() int64 {
		t.Helper()
		id, err := audit.Begin(t.Context(), access.AuditEntry{Actor: "ada", Source: "here", Action: "cron.pause"})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	end := func(id int64, outcome string) {
		t.Helper()
		if err := audit.End(t.Context(), id, outcome, ""); err != nil {
			t.Fatal(err)
		}
	}
	many, failing := begin(), begin()
	for _, facts := range []map[string]any{{"cron": "x", "matched": 2}, {"cron": "y", "part": 2}} {
		facts["by"] = "ada through the API from here"
		if err := eventstore.New(pool).Append(t.Context(), eventstore.Event{Type: eventstore.CronPaused}, facts); err != nil {
			t.Fatal(err)
		}
	}
	want = append(want, eventstore.CronPaused)
	await(t, seen, want...)
	end(many, access.Done)
	end(failing, access.Failed)
	want = append(want, "cron.pause failed")
	await(t, seen, want...)
}

// A follower that starts at an instant gets an action that writes events once, even if its event is
// far behind it, and on another page.
func TestFollowSinceFoldsActions(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, `
		INSERT INTO forge_audit (at, actor, source, action, object, outcome)
		SELECT now() - interval '1 h' + i * interval '1 ms', 'ada', '', 'cron.pause', 'c' || i, 'done' FROM generate_series(1, 1500) AS i`)
	run(t, pool, `
		INSERT INTO forge_events (at, type, data)
		SELECT now() - interval '1 h' + interval '5 s' + i * interval '1 ms', 'cron_paused', jsonb_build_object('cron', 'c' || i, 'by', 'ada through the API') FROM generate_series(1, 1500) AS i`)
	run(t, pool, `INSERT INTO forge_events (at, type) SELECT now() - interval '10 m' + i * interval '1 ms', 'x' FROM generate_series(1, 1500) AS i`)
	seen, stop := follow(t, pool, activity.Query{Where: where(t, "since:2h"), Limit: 1})
	defer stop()
	await(t, seen, slices.Concat(slices.Repeat([]string{eventstore.CronPaused}, 1500), slices.Repeat([]string{"x"}, 1500))...)
}

func BenchmarkFold(b *testing.B) {
	pool := pgtest.Pool(b)
	if _, err := pool.Exec(b.Context(), `
		INSERT INTO forge_audit (at, actor, source, action, object, outcome)
		SELECT now() - interval '9 s' + i * interval '1 ms', 'ada', '', 'cron.pause', 'c' || i, 'done' FROM generate_series(1, 1000) AS i;
		INSERT INTO forge_events (at, type, data)
		SELECT now() - interval '8 s' + i * interval '1 ms', 'cron_paused', jsonb_build_object('cron', 'c' || i, 'by', 'ada through the API') FROM generate_series(1, 1000) AS i`); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		page, err := activity.New(pool).Find(b.Context(), activity.Query{Limit: 2000})
		if err != nil || len(page.Entries) != 1000 {
			b.Fatalf("%d entries, %v", len(page.Entries), err)
		}
	}
}

// pages reads the activity page by page.
func pages(t *testing.T, store *activity.Store, q activity.Query) (all []string) {
	t.Helper()
	for {
		page, err := store.Find(t.Context(), q)
		if err != nil || page.Partial || len(all) > 100 {
			t.Fatalf("after %v: %+v, %v", all, page, err)
		}
		all = append(all, names(page.Entries)...)
		if page.Next.IsZero() {
			return all
		}
		q.Before = page.Next
	}
}

// However many transactions an action on many jobs takes, it is one entry, which says how many
// matched.
func TestActionOnManyJobsIsOneEntry(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run(t, pool, `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, finalized_at)
		SELECT '{}', 'send', 'default', 'discarded', 1, now() - interval '1 h' FROM generate_series(1, 1200)`)
	jobs := jobstore.New(pool)
	of := jobstore.Filter{Kind: "send"}
	counted, err := jobs.CountMatching(t.Context(), jobstore.Retry, of, jobstore.Matching{})
	if err != nil || counted.Jobs != 1200 {
		t.Fatalf("%+v, %v", counted, err)
	}
	if changed, err := jobs.ActOnAll(t.Context(), jobstore.Order{Action: jobstore.Retry, By: "ada"}, of, counted); err != nil || changed != 1200 {
		t.Fatalf("changed %d, %v", changed, err)
	}
	if _, err := jobs.Act(t.Context(), jobstore.Order{Action: jobstore.Cancel, By: "ada"}, []int64{1, 2}); err != nil {
		t.Fatal(err)
	}
	page, err := activity.New(pool).Find(t.Context(), activity.Query{Limit: 1})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Type != eventstore.JobCancelled || page.Next.IsZero() {
		t.Fatalf("%+v, %v", page, err)
	}
	page, err = activity.New(pool).Find(t.Context(), activity.Query{Before: page.Next, Limit: 10})
	if err != nil || len(page.Entries) != 1 || !strings.Contains(string(page.Entries[0].Data), `"matched": 1200`) {
		t.Errorf("%+v, %v", page, err)
	}
}
