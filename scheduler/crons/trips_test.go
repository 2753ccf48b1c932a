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

// trips counts round trips: a batch is one, however many statements it has.
type trips struct{ atomic.Int64 }

func (n *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	n.Add(1)
	return ctx
}

func (*trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (n *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	n.Add(1)
	return ctx
}

func (*trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func countTrips(t *testing.T, url string) (*pgxpool.Pool, *trips) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	n := &trips{}
	config.ConnConfig.Tracer = n
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, n
}

const jobCountSQL = `SELECT count(*) FROM river_job`

// On a machine that is short of processor time each round trip is a wait for a
// processor, twice. However many crons there are, and whatever their policies, a pass
// makes few.
func TestPassMakesFewRoundTrips(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool, n := countTrips(t, url)
	names, specs := crowd(30, "skip")
	for i, overlap := range []string{"queue", "queue_all", "allow"} {
		spec := specs[names[i]]
		spec.Overlap = overlap
		specs[names[i]] = spec
	}
	apply(t, pool, "h1", specs)
	desk := deskOn(t, pool, pool)
	fire := func(at time.Time) int64 {
		t.Helper()
		n.Store(0)
		if _, err := desk.Fire(t.Context(), names, at); err != nil {
			t.Fatal(err)
		}
		return n.Load()
	}
	again := func(busy bool) { // all ticks are due once more
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
	again(false)
	fire(time.Time{}) // reads the definitions
	for _, pass := range []struct {
		name string
		busy bool
		at   time.Time
		jobs int // at least
		most int64
	}{
		{"most crons are busy", true, time.Time{}, 1, 5},
		{"no cron is busy", false, time.Time{}, len(names), 5},
		{"before the instant", false, secondsAhead(t, pool, 3), len(names), 6},
	} {
		again(pass.busy)
		before := count(t, pool, jobCountSQL)
		if made := fire(pass.at); made > pass.most {
			t.Errorf("%s: %d round trips, want at most %d", pass.name, made, pass.most)
		}
		if inserted := count(t, pool, jobCountSQL) - before; inserted < int64(pass.jobs) {
			t.Errorf("%s: %d jobs were inserted, want at least %d", pass.name, inserted, pass.jobs)
		}
	}
}
