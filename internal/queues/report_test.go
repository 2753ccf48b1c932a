package queues_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/queues"
)

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// odd is the name of a queue with characters that have a meaning elsewhere.
const odd = `o'dd/ "q"?&<b>%`

func TestReport(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation, queues, slots, state) VALUES
		('b', '00000000000000bb', '{"mail": 4}', 10, 'active'), ('a', '00000000000000aa', '{"mail": 50}', 10, 'draining'),
		('gone', '00000000000000cc', '{"mail": 4}', 10, 'left'), ('other', '00000000000000dd', '{"default": 4}', 10, 'active')`)
	exec(t, pool, `INSERT INTO forge_config (hash, applied_by, body) VALUES ('h', 'test', '{"queues": {"mail": {"priority": 2}}, "jobs": {"send": {"queue": "mail"}}}')`)
	exec(t, pool, `INSERT INTO forge_crons (name, spec, spec_hash, watermark) SELECT 'c' || i, '{"job": "send", "queue": "mail"}', 'h', now() FROM generate_series(10, 35) AS i`)
	exec(t, pool, `INSERT INTO river_job (id, kind, queue, args, state, attempted_by, attempted_at) VALUES
		(1, 'by hand', 'mail', '{}', 'running', '{b-00000000000000bb}', now()), (2, 'k', 'default', '{}', 'running', '{b-00000000000000bb}', now())`)
	exec(t, pool, `INSERT INTO forge_claims (client_id, ids) VALUES ('b-00000000000000bb', '{1, 2}')`)
	if _, _, err := jobstore.New(pool).PauseQueue(t.Context(), "mail", jobstore.QueuePauseOrder{By: "ada"}); err != nil {
		t.Fatal(err)
	}
	r, err := queues.New(pool).Queue(t.Context(), "mail", jobstore.KeySearch{})
	if err != nil {
		t.Fatal(err)
	}
	if r.PausedBy != "ada" || r.PausedAt.IsZero() || len(r.Pauses) != 1 || !r.Worked() {
		t.Errorf("paused by %q, since %v: %+v", r.PausedBy, r.PausedAt, r.Pauses)
	}
	if diff := cmp.Diff([]queues.Server{{"a", "draining", 10}, {"b", "active", 4}}, r.ServedBy); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&cronstore.QueueConfig{Priority: 2}, r.Configured); diff != "" {
		t.Errorf("configured (-want +got):\n%s", diff)
	}
	if !cmp.Equal(r.Kinds, []string{"by hand", "send"}) || r.MoreKinds || len(r.Crons) != 20 || !r.MoreCrons || r.Crons[0].Name != "c10" {
		t.Errorf("kinds %q, crons %+v", r.Kinds, r.Crons)
	}
	if len(r.RunningJobs) != 1 || r.RunningJobs[0].ID != 1 || r.RunningJobs[0].NodeID != "b" || r.Running != 1 {
		t.Errorf("running jobs: %+v", r.RunningJobs)
	}
	if _, _, err := jobstore.New(pool).ResumeQueue(t.Context(), "mail", jobstore.QueuePauseOrder{By: "eve"}); err != nil {
		t.Fatal(err)
	}
	if r, err = queues.New(pool).Queue(t.Context(), "mail", jobstore.KeySearch{}); err != nil || r.PausedBy != "" || !r.PausedAt.IsZero() || len(r.Pauses) != 2 || r.Pauses[0].By != "eve" {
		t.Errorf("resumed: %+v, %v", r.Pauses, err)
	}
}

// A queue with a key lists its values, and says whether the jobs take turns yet.
func TestQueueWithKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO forge_config (hash, applied_by, body) VALUES ('h', 'test', '{"queues": {
		"mail": {"fair_by": "args.tenant", "limit_per_key": {"key": "cron", "limit": 2}}, "limited": {"limit_per_key": {"key": "cron", "limit": 2}}, "newer": {"fair_by": "unknown"}}}')`)
	exec(t, pool, `INSERT INTO river_job (kind, queue, args) SELECT 'k', 'mail', jsonb_build_object('tenant', i % 60) FROM generate_series(1, 90) AS i`)
	exec(t, pool, `INSERT INTO river_job (kind, queue, args, metadata) VALUES ('k', 'limited', '{}', '{"forge:cron": "nightly"}')`)
	read := func(queue string) queues.Report {
		t.Helper()
		report, err := queues.New(pool).Queue(t.Context(), queue, jobstore.KeySearch{})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	r := read("mail")
	if r.Key != "args.tenant" || len(r.Keys) != 50 || !r.MoreKeys || r.Keys[0].Key != "1" || r.Keys[0].Waiting != 2 || r.FairReady {
		t.Errorf("by %s, ready %v, more %v, %+v", r.Key, r.FairReady, r.MoreKeys, r.Keys)
	}
	fair := jobstore.FairQueue{Queue: "mail", Key: limitkey.Key{Source: limitkey.Args, Path: []string{"tenant"}}}
	if err := jobstore.New(pool).CreateFairIndex(t.Context(), fair); err != nil {
		t.Fatal(err)
	}
	if r = read("mail"); !r.FairReady {
		t.Error("not ready with its index")
	}
	if r = read("limited"); r.Key != "cron" || len(r.Keys) != 1 || r.Keys[0].Key != "nightly" {
		t.Errorf("by %s: %+v", r.Key, r.Keys)
	}
	if r = read("newer"); r.Key != "" || len(r.Keys) != 0 {
		t.Errorf("a key that this version does not know: by %s: %+v", r.Key, r.Keys)
	}
}

// A queue with a rate has what it leaves: for each value of its key, or for all jobs together.
func TestQueueWithRate(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO forge_config (hash, applied_by, body) VALUES ('h', 'test', '{"queues": {
		"keyed": {"rate_limit": {"limit": 9, "per": "1h", "burst": 3, "key": "args.tenant"}}, "all": {"rate_limit": {"limit": 9, "per": "1h"}}, "other": {"fair_by": "args.region"}}}')`)
	exec(t, pool, `INSERT INTO forge_limits (scope, name, most, key_source, key_path, per, burst) VALUES
		('queue_rate', 'keyed', 9, 'args', '{tenant}', '1 hour', 3), ('queue_rate', 'all', 9, NULL, NULL, '1 hour', NULL), ('queue_rate', 'other', 9, 'args', '{tenant}', '1 hour', NULL)`)
	exec(t, pool, `INSERT INTO river_job (kind, queue, args) SELECT 'k', queue, jsonb_build_object('tenant', tenant)
		FROM unnest('{keyed,all,other}'::text[]) AS queue, unnest('{a,b}'::text[]) AS tenant`)
	exec(t, pool, `INSERT INTO forge_rate_windows (scope, name, key, starts, units, burst_starts, burst_units, idle_at) VALUES
		('queue_rate', 'keyed', 'a', ARRAY[now()], '{2}', ARRAY[now()], '{2}', 'infinity'), ('queue_rate', 'all', '', ARRAY[now() - interval '2 hours', now()], '{5,2}', '{}', '{}', 'infinity')`)
	lefts := map[string]string{}
	for _, queue := range []string{"keyed", "all", "other"} {
		report, err := queues.New(pool).Queue(t.Context(), queue, jobstore.KeySearch{})
		if err != nil {
			t.Fatal(err)
		}
		if report.RateLeft != nil {
			lefts[queue] = fmt.Sprint(*report.RateLeft)
		}
		for _, k := range report.Keys {
			if k.RateLeft != nil {
				lefts[queue] += fmt.Sprintf("%s=%d ", k.Key, *k.RateLeft)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"keyed": "a=1 b=3 ", "all": "7"}, lefts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A queue that only a cron, the configuration or a job names has a report without nodes.
func TestQueueThatNoNodeWorks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO forge_config (hash, applied_by, body) VALUES ('h', 'test', '{"queues": {"configured": {}}, "jobs": {"send": {"queue": "kind"}}}')`)
	exec(t, pool, `INSERT INTO forge_crons (name, spec, spec_hash, watermark, removed_at) VALUES
		('c', '{"job": "send", "queue": "cron"}', 'h', now(), NULL), ('gone', '{"job": "send", "queue": "removed"}', 'h', now(), now())`)
	if _, err := pool.Exec(t.Context(), `INSERT INTO river_job (kind, queue, args, scheduled_at) VALUES ('k', $1, '{}', now() - interval '1 minute')`, odd); err != nil {
		t.Fatal(err)
	}
	reader := queues.New(pool)
	for _, name := range []string{"configured", "kind", "cron", odd} {
		if r, err := reader.Queue(t.Context(), name, jobstore.KeySearch{}); err != nil || r.Name != name || r.Worked() || len(r.ServedBy) != 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if r, err := reader.Queue(t.Context(), odd, jobstore.KeySearch{}); err != nil || r.Available != 1 || r.Wait() < time.Minute {
		t.Errorf("%+v, %v", r, err)
	}
	for _, name := range []string{"removed", "unknown", ""} {
		if _, err := reader.Queue(t.Context(), name, jobstore.KeySearch{}); !errors.Is(err, jobstore.ErrNoQueue) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The rates and percentiles are those of the queue alone, in the newest quarter of an hour.
func TestRecent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now())`)
	reader := queues.New(pool)
	if r, err := reader.Queue(t.Context(), "mail", jobstore.KeySearch{}); err != nil || r.Recent != nil {
		t.Errorf("before the first minute: %+v, %v", r.Recent, err)
	}
	exec(t, pool, `INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last) 
		SELECT 60, 'forge_nodes', '{}', date_trunc('minute', now()) - make_interval(mins => m), 60, 1, 1 FROM generate_series(1, 15) AS m`)
	exec(t, pool, `
		INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait)
		SELECT 60, d, date_trunc('minute', now()) - make_interval(mins => m), key, 15, 3, array_fill(2, ARRAY[`+strconv.Itoa(metrics.BucketCount)+`])
		FROM (VALUES ('queue', 1, 'mail'), ('queue', 14, 'mail'), ('queue', 17, 'mail'), ('queue', 1, 'other'), ('kind', 1, 'mail')) AS s (d, m, key)`)
	r, err := reader.Queue(t.Context(), "mail", jobstore.KeySearch{})
	if err != nil || r.Recent == nil {
		t.Fatalf("%+v, %v", r.Recent, err)
	}
	started := 2 * 2 * float64(metrics.BucketCount) / 15
	if got := r.Recent; got.Finished != 2 || got.Failed != 6./15 || got.Started != started || got.Wait.P50 == nil || got.Took.P50 != nil || got.To.Sub(got.From) != 15*time.Minute {
		t.Errorf("%+v, want %v started", got, started)
	}
	exec(t, pool, `UPDATE forge_metrics_rollups SET at = at - interval '1 hour'`)
	if r, err := reader.Queue(t.Context(), "mail", jobstore.KeySearch{}); err != nil || r.Recent != nil {
		t.Errorf("without an aggregator for an hour: %+v, %v", r.Recent, err)
	}
}
