package assign_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// deadlines records the statements with and without a deadline.
type deadlines struct {
	mu               sync.Mutex
	bounded, endless []string
}

func (d *deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	d.record(ctx, data.SQL)
	return ctx
}

func (*deadlines) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (d *deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, queued := range data.Batch.QueuedQueries {
		d.record(ctx, queued.SQL)
	}
	return ctx
}

func (*deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*deadlines) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (d *deadlines) record(ctx context.Context, sql string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= time.Minute {
		d.bounded = append(d.bounded, sql)
	} else {
		d.endless = append(d.endless, sql)
	}
}

// Every statement of the assigner has a deadline, so an unanswered one cannot block the
// loop.
func TestEveryStatementIsBounded(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	seen := &deadlines{}
	config.ConnConfig.Tracer = seen
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traced.Close)
	c := &cluster{pool: pgtest.Connect(t, url), metrics: metrics.New("test")}
	c.limit(t, jobstore.Limit{Scope: "job", Name: "rare", Most: 2})
	c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Kinds: []string{"k", "rare"}})
	c.insert(t, 5, "rare", "default", "")
	c.insert(t, 5, "k", "default", "")
	leader := &cluster{pool: traced, metrics: c.metrics}
	stop := leader.lead(t, c.makeLeader(t, 1), assign.Spread)
	c.waitFor(t, "the jobs", func() bool { return c.count(t, "state = 'running' AND kind = 'k'") == 5 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, sql := range seen.endless {
		if !strings.HasPrefix(sql, "LISTEN") && !strings.HasPrefix(sql, "UNLISTEN") && !strings.HasPrefix(sql, "-- ping") { // statements of the notifier
			t.Errorf("unbounded: %s", strings.Join(strings.Fields(sql), " "))
		}
	}
	if len(seen.bounded) < 5 {
		t.Errorf("only these statements had a deadline: %q", seen.bounded)
	}
}
