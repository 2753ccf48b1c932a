package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// until waits until a query returns true.
func until(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var is bool
		if err := db.QueryRow(t.Context(), sql).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so in time: %s", sql)
		}
	}
}

// PostgreSQL reports success for a commit whose wait for a replica was ended by an
// administrator.
func TestUnconfirmedCommitFails(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	direct := pgtest.Connect(t, server.URL())
	if _, err := direct.Exec(t.Context(), `CREATE TABLE done (what text)`); err != nil {
		t.Fatal(err)
	}
	server.MissReplica()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: server.URL(), Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	const insert = `INSERT INTO done VALUES ('it')`
	for name, commit := range map[string]func(ctx context.Context) error{
		"one statement": func(ctx context.Context) error {
			_, err := pool.Exec(ctx, insert)
			return err
		},
		"a statement that returns rows": func(ctx context.Context) error {
			rows, _ := pool.Query(ctx, insert+` RETURNING what`)
			_, err := pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		},
		"a transaction": func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insert)
				return err
			})
		},
		"a batch": func(ctx context.Context) error {
			batch := &pgx.Batch{}
			batch.Queue("BEGIN")
			batch.Queue(insert)
			batch.Queue("COMMIT")
			return pool.SendBatch(ctx, batch).Close()
		},
		"a confirmation": func(ctx context.Context) error { return postgres.Confirm(ctx, pool) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- commit(t.Context()) }()
		until(t, direct, pgtest.ReplicaWaits)
		if _, err := direct.Exec(t.Context(), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, postgres.ErrUnconfirmed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	until(t, direct, `SELECT count(*) = 4 FROM done`) // the commits succeeded on the primary
}
