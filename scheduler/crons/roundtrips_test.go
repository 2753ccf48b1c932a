package crons

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// roundTripCounter counts round trips. A batch is one round trip for any number of
// statements.
type roundTripCounter struct{ atomic.Int64 }

func (n *roundTripCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	n.Add(1)
	return ctx
}

func (*roundTripCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (n *roundTripCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	n.Add(1)
	return ctx
}

func (*roundTripCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*roundTripCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func countRoundTrips(t *testing.T, url string) (*pgxpool.Pool, *roundTripCounter) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	n := &roundTripCounter{}
	config.ConnConfig.Tracer = n
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, n
}

const jobCountSQL = `SELECT count(*) FROM river_job`

// On a machine with little processor time, each round trip waits for a processor twice.
// So a pass makes few round trips for any number of crons and any policies.
func TestFiringMakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool, n := countRoundTrips(t, url)
	names, specs := cronsDueTogether(30, "skip")
	for i, overlap := range []string{"queue", "queue_all", "allow"} {
		spec := specs[names[i]]
		spec.Overlap = overlap
		specs[names[i]] = spec
	}
	apply(t, pool, "h1", specs)
	ledger := newTestLedger(t, pool, pool)
	fire := func(at time.Time) int64 {
		t.Helper()
		n.Store(0)
		if _, err := ledger.Fire(t.Context(), names, at); err != nil {
			t.Fatal(err)
		}
		return n.Load()
	}
	makeDue := func(busy bool) { // makes all ticks due again
		t.Helper()
		if _, err := pool.Exec(t.Context(), `DELETE FROM forge_cron_ticks`); err != nil {
			t.Fatal(err)
		}
		if !busy {
			if _, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now()`); err != nil {
				t.Fatal(err)
			}
		}
		rewind(t, pool, 2*time.Second)
	}
	makeDue(false)
	fire(time.Time{}) // loads the definitions
	for _, pass := range []struct {
		name string
		busy bool
		at   time.Time
		jobs int // minimum
		most int64
	}{
		{"most crons are busy", true, time.Time{}, 1, 5},
		{"no cron is busy", false, time.Time{}, len(names), 5},
		{"before the instant", false, secondsAhead(t, pool, 3), len(names), 8}, // one has the log written, one offers the jobs
	} {
		makeDue(pass.busy)
		before := count(t, pool, jobCountSQL)
		if made := fire(pass.at); made > pass.most {
			t.Errorf("%s: %d round trips, want at most %d", pass.name, made, pass.most)
		}
		if inserted := count(t, pool, jobCountSQL) - before; inserted < int64(pass.jobs) {
			t.Errorf("%s: %d jobs were inserted, want at least %d", pass.name, inserted, pass.jobs)
		}
	}
}
