package jobstore

import (
	"context"
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

var rowsPerState = flag.Int("rows-per-state", 40_000, "how many jobs in each state TestNoStatementReadsTheWholeTable inserts")

// recorder records the statements of a pool.
type recorder struct {
	mu         sync.Mutex
	statements []statement
}

type statement struct {
	sql  string
	args []any
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.record(data.SQL, data.Args)
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, queued := range data.Batch.QueuedQueries {
		r.record(queued.SQL, queued.Arguments)
	}
	return ctx
}

func (*recorder) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (r *recorder) record(sql string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(sql, "river_job") && !strings.HasPrefix(sql, "EXPLAIN") {
		r.statements = append(r.statements, statement{sql, args})
	}
}

func (r *recorder) take() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.statements
	r.statements = nil
	return taken
}

// planNode is a node of a plan in the output of EXPLAIN (FORMAT JSON).
type planNode struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Rows      float64 `json:"Actual Rows"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Loops     float64 `json:"Actual Loops"`
	Plans     []planNode
}

// readRows returns how many rows of river_job the plan has read, and the scans that it read
// them with.
func (n planNode) readRows(scans map[string]bool) (rows float64) {
	if n.Relation == "river_job" && strings.Contains(n.Type, "Scan") {
		scans[strings.TrimSpace(n.Type+" "+n.Index)] = true
		rows = (n.Rows + n.Filtered + n.Rechecked) * n.Loops
	}
	for _, child := range n.Plans {
		rows += child.readRows(scans)
	}
	return rows
}

// With many jobs in each state, no statement reads jobs that it does not need.
func TestNoStatementReadsTheWholeTable(t *testing.T) {
	t.Parallel()
	recorded := &recorder{}
	pool := recordedPool(t, recorded)
	n := *rowsPerState
	insertManyStates(t, pool, n)
	recorded.take()

	store, client := New(pool), NewClient(pool, Identity{ClientID: millionClient, NodeID: "n", Incarnation: millionIncarnation, Schema: "public"})
	now, all := time.Now(), float64(n)
	ids := []int64{5, 6, 7}
	nothing := DeadFilter{Kind: "unknown"}
	uses := map[string]struct {
		do   func(ctx context.Context) error
		most float64 // rows read
	}{
		"scan": {func(ctx context.Context) error {
			return second(store.ScanAvailable(ctx, []Scan{{Queue: "default", Limit: 500}, {Queue: "idle", Limit: 500}}, 10*time.Second, func(*AvailableJob) {}))
		}, 1500},
		"running by client": {func(ctx context.Context) error { return second(store.RunningByClient(ctx, map[int64]string{5: "c"})) }, 500},
		"running by owner":  {func(ctx context.Context) error { return second(store.RunningByOwner(ctx, []string{millionClient})) }, 500},
		"next due":          {func(ctx context.Context) error { return second(store.NextDue(ctx)) }, 10},
		"release due":       {func(ctx context.Context) error { return second(store.ReleaseDue(ctx, now.Add(time.Hour), 100)) }, 1000},
		"orphans":           {func(ctx context.Context) error { return second(store.LockOrphans(ctx, millionClient, 10)) }, 500},
		"owners":            {func(ctx context.Context) error { return second(store.RunningOwners(ctx)) }, 500},
		"places": {func(ctx context.Context) error {
			return second(store.PlacesTaken(ctx, []Places{{Scope: ScopeQueue, Name: "default", Class: ClassKey}}))
		}, 500},
		"running under":   {func(ctx context.Context) error { return second(store.RunningUnder(ctx, ids)) }, 500},
		"still available": {func(ctx context.Context) error { return second(store.StillAvailable(ctx, ids)) }, 50},
		"keys of jobs": {func(ctx context.Context) error {
			_, _, err := store.JobKeys(ctx, ids)
			return err
		}, 50},
		"holders": {func(ctx context.Context) error {
			return second(store.Holders(ctx, Places{Scope: ScopeQueue, Name: "default", Class: ClassKey}, 10))
		}, 500},
		"use of keys": {func(ctx context.Context) error {
			return second(store.KeyUses(ctx, "default", limitkey.Key{Source: limitkey.Args, Path: []string{"tenant"}}, KeySearch{}, 10))
		}, 2*CountLimit + 500},
		"pending dead letters": {func(ctx context.Context) error { return second(store.PendingDead(ctx)) }, 10},
		"new dead letters":     {func(ctx context.Context) error { return second(store.LockNewDead(ctx, 10)) }, 50},
		"due second rounds":    {func(ctx context.Context) error { return second(store.LockDueRounds(ctx, now, 10)) }, 50},
		"waiting queues":       {func(ctx context.Context) error { return second(store.WaitingQueues(ctx)) }, 3000},
		"queues":               {func(ctx context.Context) error { return second(store.Queues(ctx)) }, 3*CountLimit + 3000},
		"one queue":            {func(ctx context.Context) error { return second(store.Queue(ctx, "default")) }, 4*CountLimit + 4*recentJobs + 3000},
		"an unknown queue":     {func(ctx context.Context) error { return second(store.Queue(ctx, "unknown")) }, CountLimit + 2*recentJobs + 500},
		"counts":               {func(ctx context.Context) error { return second(store.CountsByQueueAndState(ctx)) }, 5*CountLimit + 3000},
		"usages":               {func(ctx context.Context) error { return second(store.Usages(ctx)) }, CountLimit + min(all, 4*CountLimit) + 3000},
		"depths": {func(ctx context.Context) error {
			var count OpenCount
			for {
				if _, all, err := count.Next(ctx, pool, 1000); all != nil || err != nil {
					return err
				}
			}
		}, 1500},
		"list":            {func(ctx context.Context) error { return second(store.List(ctx, Filter{})) }, 100},
		"list available":  {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "available", Limit: 5})) }, 2000},
		"list running":    {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "running"})) }, 2000},
		"list scheduled":  {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "scheduled"})) }, 2000},
		"list retryable":  {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "retryable"})) }, 2000},
		"list pending":    {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "pending"})) }, 2000},
		"list cancelled":  {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "cancelled"})) }, 2000},
		"list discarded":  {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "discarded"})) }, 2000},
		"list completed":  {func(ctx context.Context) error { return second(store.List(ctx, Filter{State: "completed"})) }, 2000},
		"slowest":         {func(ctx context.Context) error { return second(store.Search(ctx, Filter{Sort: Slowest})) }, 4*all + 500},
		"longest waiting": {func(ctx context.Context) error { return second(store.Search(ctx, Filter{Sort: Waiting})) }, 2000},
		"cron runs": {func(ctx context.Context) error {
			batch := &pgx.Batch{}
			BatchCronRuns(batch, []string{"nightly"}, []int64{0}, func(CronRuns) {})
			return pool.SendBatch(ctx, batch).Close()
		}, 150},
		"dead letters": {func(ctx context.Context) error { return second(store.DeadLetters(ctx, nothing, 0, 50)) }, all + 500},
		"dead groups":  {func(ctx context.Context) error { return second(store.DeadGroups(ctx, nothing)) }, all + 500},
		"count to cancel": {func(ctx context.Context) error {
			return second(store.CountMatching(ctx, Cancel, Filter{State: "running"}, Matching{}))
		}, 500},
		"count to retry": {func(ctx context.Context) error {
			return second(store.CountMatching(ctx, Retry, Filter{State: "cancelled"}, Matching{}))
		}, 500},
		"prune completed": {func(ctx context.Context) error { return second(store.PruneJobs(ctx, "completed", longAgo, 100)) }, 50},
		"prune cancelled": {func(ctx context.Context) error { return second(store.PruneJobs(ctx, "cancelled", longAgo, 100)) }, 50},
		"prune discarded": {func(ctx context.Context) error { return second(store.PruneJobs(ctx, "discarded", longAgo, 100)) }, 50},
		"prune queues":    {func(ctx context.Context) error { return second(store.PruneQueues(ctx, now.Add(time.Hour), 100)) }, 50},
		"claim": {func(ctx context.Context) error {
			return second(claimUnlimited(ctx, client, Offer{Queue: "default", IDs: ids, Term: 1, MaxAttemptedBy: 100}))
		}, 50},
		"claim of limited jobs": {func(ctx context.Context) error {
			return second(claimLimited(ctx, client, Offer{Queue: "default", IDs: ids, Term: 1, MaxAttemptedBy: 100}))
		}, 1000},
		"claim of counted jobs": {func(ctx context.Context) error {
			return second(claimCounted(ctx, client, Offer{Queue: "default", IDs: ids, Rows: ids, Locks: make([][]int64, len(ids)), Term: 1, MaxAttemptedBy: 100}))
		}, 50},
		"held":    {func(ctx context.Context) error { return second(client.Held(ctx, []int64{}, 5)) }, 500},
		"control": {func(ctx context.Context) error { return second(client.Control(ctx)) }, 500},
		"results": {func(ctx context.Context) error {
			return second(client.Complete(ctx, ids, []*time.Time{&now, &now, &now}, make([]*time.Time, 3)))
		}, 50},
		"forget claims": {func(ctx context.Context) error { return second(store.ForgetClaims(ctx, 0, 64)) }, 1000},
	}
	for name, use := range uses {
		if err := use.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		statements := recorded.take()
		if len(statements) == 0 {
			t.Errorf("%s: no statement reads river_job", name)
		}
		for _, s := range statements {
			scans := map[string]bool{}
			read := explainAnalyze(t, pool, s).readRows(scans)
			t.Logf("%s: %.0f rows by %v", name, read, slices.Sorted(maps.Keys(scans)))
			if read > use.most || scans["Seq Scan"] {
				t.Errorf("%s: read %.0f rows of river_job by %v, want at most %.0f:\n%s", name, read, slices.Sorted(maps.Keys(scans)), use.most, s.sql)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

const (
	millionIncarnation = "00000000000000aa"
	millionClient      = "n-" + millionIncarnation
)

var longAgo = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

func recordedPool(t *testing.T, recorded *recorder) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.Tracer = recorded
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// insertManyStates inserts n jobs of each frequent state, and 100 of the others.
func insertManyStates(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	run := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	run(`INSERT INTO forge_leaders (role, term) VALUES ('scheduler', 1)`)
	run(`INSERT INTO forge_nodes (node_id, incarnation) VALUES ('n', $1)`, millionIncarnation)
	run(`INSERT INTO forge_limits (scope, name, most, key_source, key_path, per) VALUES ('queue', 'default', 150, NULL, NULL, NULL), ('job', 'k1', 100, NULL, NULL, NULL),
		('queue_all', 'default', 200, NULL, NULL, NULL), ('queue_key', 'default', 150, 'args', '{tenant}', NULL),
		('queue_rate', 'default', 1000, NULL, NULL, '1 hour')`)
	run(`INSERT INTO river_queue (name, updated_at) VALUES ('default', now()), ('idle', now())`)
	run(`
		INSERT INTO river_job (args, kind, queue, state, priority, attempt, max_attempts, scheduled_at, finalized_at, attempted_at, attempted_by, metadata, errors)
		SELECT '{}', 'k' || i % 7, 'default', s::river_job_state, 1 + i % 2, 1, 1 + i % 2,
		       CASE WHEN s IN ('scheduled', 'retryable') THEN now() + interval '1 hour' ELSE now() - interval '1 hour' END + i * interval '1 ms',
		       CASE WHEN s IN ('completed', 'discarded') THEN now() - interval '1 hour' + i * interval '1 ms' END,
		       now(), ARRAY[$2], CASE WHEN i % 1000 = 0 THEN '{"forge:cron": "nightly"}' ELSE '{}' END::jsonb
		           || CASE s WHEN 'discarded' THEN '{"forge:dead": {"attempt": 1, "group": "d0123456789"}}' ELSE '{}' END::jsonb,
		       ARRAY['{"error": "boom"}'::jsonb]
		FROM generate_series(1, $1::int) AS i, unnest('{available,completed,scheduled,retryable,discarded}'::text[]) AS s
		ORDER BY i, s`, n, millionClient)
	run(`
		INSERT INTO river_job (args, kind, state, max_attempts, finalized_at)
		SELECT '{}', 'k', s::river_job_state, 3, CASE WHEN s = 'cancelled' THEN now() END
		FROM generate_series(1, 100), unnest('{cancelled,pending}'::text[]) AS s`)
	run(`
		UPDATE river_job SET state = 'running', attempted_by = ARRAY[$1::text]
		WHERE id IN (SELECT id FROM river_job WHERE state = 'available' ORDER BY id DESC LIMIT 100)`, millionClient)
	run(`VACUUM ANALYZE river_job`)
}

// explainAnalyze executes the statement and rolls it back.
func explainAnalyze(t *testing.T, pool *pgxpool.Pool, s statement) planNode {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var output []byte
	if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+s.sql, s.args...).Scan(&output); err != nil {
		t.Fatalf("%s: %v", s.sql, err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal(output, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}
