package cronstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// largestAnswer is the largest number of rows that a statement returned.
type largestAnswer struct{ rows int64 }

func (*largestAnswer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (l *largestAnswer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	l.rows = max(l.rows, data.CommandTag.RowsAffected())
}

// A backfill of a long span reads its ticks in pages, and finds those of every page.
func TestBackfillReadsTicksInPages(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	answers := &largestAnswer{}
	config.ConnConfig.Tracer = answers
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	apply(t, pool, "one", map[string]cronstore.Spec{"c": spec("@every 1s")}, false)
	const ticks, without = 25_000, 20_500
	end := get(t, pool, "c").Watermark.Truncate(time.Second)
	from := end.Add(-ticks * time.Second)
	exec(t, pool, `
		INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, recorded_at, lateness_ms, tick_count, job_id)
		SELECT 'c', $1::timestamptz + n * interval '1 s', 'fired', '', 1, 'n1', now(), 0, 1, n + 1
		FROM generate_series(0, $2::int - 1) AS n WHERE n <> $3::int`, from, ticks, without)
	answers.rows = 0
	found, err := cronstore.New(pool).BackfillTicks(t.Context(), cronstore.Span{Cron: "c", From: from, To: end, Limit: 10})
	if err != nil || len(found.Ticks) != 1 || !found.Ticks[0].Equal(from.Add(without*time.Second)) || found.Left != ticks-1 || found.More {
		t.Errorf("%d ticks to run %v, %d left, more %t, %v", len(found.Ticks), found.Ticks, found.Left, found.More, err)
	}
	if answers.rows > 10_000 {
		t.Errorf("a statement returned %d rows", answers.rows)
	}
}
