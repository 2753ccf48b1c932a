package activity

import (
	"context"
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

var manyRows = flag.Int("rows", 200_000, "how many events TestPagesReadFewRows inserts")

// recorder records the statements of a pool.
type recorder struct{ statements []pgx.TraceQueryStartData }

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.statements = append(r.statements, data)
	return ctx
}

func (*recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// planNode is a node of a plan in the output of EXPLAIN (FORMAT JSON).
type planNode struct {
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []planNode
}

// readRows returns how many rows of the logs the plan has read.
func (n planNode) readRows() (rows float64) {
	if strings.HasPrefix(n.Relation, "forge_") {
		rows = (n.Rows + n.Filtered) * n.Loops
	}
	for _, child := range n.Plans {
		rows += child.readRows()
	}
	return rows
}

// Whatever a log has most of, a page reads few rows: those of the page if an index finds them,
// at most a window for each statement otherwise. The types that are wanted are the oldest.
func TestPagesReadFewRows(t *testing.T) {
	t.Parallel()
	recorded := &recorder{}
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
	insertMany(t, pool, *manyRows)
	for text, most := range map[string]float64{
		"":                                       200,
		"type:config_applied":                    200,
		"type:config_*":                          400,
		"type:leader_elected":                    200,
		"log:events node:rare":                   200,
		"log:events node:gone":                   200,
		"log:events node:gone since:20h":         200,
		"node:gone text:nothing":                 searchWindow,
		"log:events role:rare":                   200,
		"log:events cron:nightly":                300,
		"until:10h":                              200,
		"type:config_* until:10h":                400,
		"log:events by:ada":                      3000,
		"node:node-1 text:nothing":               searchWindow,
		"node:node-1 type:leader_elected":        searchWindow,
		"text:nothing":                           searchWindow,
		"type:a* type:b* type:c* type:l* text:x": searchWindow,
	} {
		where, err := filter.Parse(text, Keys)
		if err != nil {
			t.Fatal(err)
		}
		recorded.statements = nil
		for _, oldest := range []bool{false, true} {
			if _, err := New(pool).Find(t.Context(), Query{Where: where, Oldest: oldest, Limit: 50}); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range recorded.statements {
			if read := explain(t, pool, s); read > most {
				t.Errorf("%q: read %.0f rows, want at most %.0f:\n%s", text, read, most, s.SQL)
			}
		}
	}
}

// A search that ends before it has found anything goes on where it ended.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertMany(t, pool, 3*searchWindow)
	where, err := filter.Parse("text:oldest", Keys)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for q := (Query{Where: where, Limit: 50}); ; {
		page, err := New(pool).Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		found += len(page.Entries)
		if page.Next.IsZero() {
			break
		}
		if q.compare(q.Before, page.Next) >= 0 && !q.Before.IsZero() {
			t.Fatalf("the page after %s ends at %s", q.Before, page.Next)
		}
		q.Before = page.Next
	}
	if found != 1 {
		t.Errorf("found %d entries, want one", found)
	}
}

func insertMany(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO forge_events (at, type, node_id, role, data)
		 SELECT now() - interval '2 d' + i * interval '100 ms',
		        CASE WHEN i = 1 THEN 'oldest' WHEN i < 40 THEN 'config_applied' WHEN i < 80 THEN 'config_rejected' WHEN i % 4 = 0 THEN 'job_enqueued' ELSE 'leader_elected' END,
		        CASE WHEN i < 50 THEN 'rare' WHEN i < $1 / 3 THEN 'gone' ELSE 'node-' || i % 3 END, CASE WHEN i < 50 THEN 'rare' ELSE 'scheduler' END,
		        CASE WHEN i < 100 THEN '{"cron": "nightly", "by": "ada"}'::jsonb ELSE jsonb_build_object('gap_ms', i) END
		 FROM generate_series(1, $1) AS i`,
		`INSERT INTO forge_audit (at, actor, source, action, object, outcome)
		 SELECT now() - interval '2 d' + i * interval '1 s', 'ada', 'here', 'cron.pause', 'nightly', 'done' FROM generate_series(1, $1 / 100) AS i`,
	} {
		if _, err := pool.Exec(t.Context(), sql, n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE forge_events, forge_audit"); err != nil {
		t.Fatal(err)
	}
}

// explain runs a statement again and returns how many rows of the logs it has read.
func explain(t *testing.T, pool *pgxpool.Pool, s pgx.TraceQueryStartData) float64 {
	t.Helper()
	var plans []struct{ Plan planNode }
	if err := pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+s.SQL, s.Args...).Scan(&plans); err != nil {
		t.Fatal(err)
	}
	if len(plans) != 1 {
		_ = json.NewEncoder(t.Output()).Encode(plans)
		t.Fatal("no plan")
	}
	return plans[0].Plan.readRows()
}
