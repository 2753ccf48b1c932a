package aggregator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

var errBroken = errors.New("connection broken")

// silentDB does not answer its first statement. The others fail.
type silentDB struct {
	postgres.DB // nil: no other method is called

	statements, begun atomic.Int32
}

func (d *silentDB) wait(ctx context.Context) error {
	if d.statements.Add(1) > 1 {
		return errBroken
	}
	<-ctx.Done()
	return ctx.Err()
}

func (d *silentDB) Exec(ctx context.Context, _ string, _ ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, d.wait(ctx)
}

func (d *silentDB) Query(ctx context.Context, _ string, _ ...any) (pgx.Rows, error) {
	return failedRows{err: d.wait(ctx)}, nil
}

func (d *silentDB) QueryRow(ctx context.Context, _ string, _ ...any) pgx.Row {
	return failedRows{err: d.wait(ctx)}
}

func (d *silentDB) Begin(ctx context.Context) (pgx.Tx, error) {
	d.begun.Add(1)
	return nil, d.wait(ctx)
}

// failedRows is the result of a failed query.
type failedRows struct {
	pgx.Rows

	err error
}

func (r failedRows) Scan(...any) error { return r.err }
func (failedRows) Next() bool          { return false }
func (failedRows) Close()              {}
func (r failedRows) Err() error        { return r.err }

// A server that does not answer one statement does not keep the reporter from the next report.
func TestReporterGoesOnAfterSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var db silentDB
		var logged strings.Builder
		r := NewReporter(&db, ReporterOptions{
			NodeID: "a", Incarnation: "00000000000000aa", Interval: 15 * time.Second,
			Metrics: metrics.New("v0"), Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if db.begun.Load() < 4 { // the late one, those of the next two intervals and the last one
			t.Errorf("%d reports were begun; want 4", db.begun.Load())
		}
		if !strings.Contains(logged.String(), "metrics not reported") {
			t.Errorf("log: %s", &logged)
		}
	})
}
