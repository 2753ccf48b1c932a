package access_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func request(caller, key, body string) access.KeyedRequest {
	return access.KeyedRequest{Caller: caller, Key: key, Digest: sha256.Sum256([]byte(body))}
}

// counter creates the table that the requests of the tests change.
func counter(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE done (what text)`); err != nil {
		t.Fatal(err)
	}
	return pool
}

func adds(t *testing.T, pool *pgxpool.Pool, answer access.KeyedResponse) func(context.Context) access.KeyedResponse {
	t.Helper()
	return func(ctx context.Context) access.KeyedResponse {
		if _, err := (postgres.RequestDB{Pool: pool}).Exec(ctx, `INSERT INTO done VALUES ('it')`); err != nil {
			t.Error(err)
		}
		return answer
	}
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM done`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOnceRunsWorkOnce(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	first := access.KeyedResponse{Status: 201, Location: "/api/v1/jobs/1", Body: []byte(`{"id":1}`)}
	second := access.KeyedResponse{Status: 200, Body: []byte("{}")}
	for _, step := range []struct {
		name     string
		request  access.KeyedRequest
		answer   access.KeyedResponse
		want     access.KeyedResponse
		repeated bool
		err      error
		done     int
	}{
		{"is refused", request("ci", "k", "a"), access.KeyedResponse{Status: 409}, access.KeyedResponse{Status: 409}, false, nil, 0},
		{"then fails", request("ci", "k", "a"), access.KeyedResponse{Status: 503}, access.KeyedResponse{Status: 503}, false, nil, 0},
		{"then succeeds", request("ci", "k", "a"), first, first, false, nil, 1},
		{"and is repeated", request("ci", "k", "a"), second, first, true, nil, 1},
		{"another request", request("ci", "k", "b"), second, access.KeyedResponse{}, true, access.ErrKeyReused, 1},
		{"another's key", request("ann", "k", "b"), second, second, false, nil, 2},
		{"another key", request("ci", "l", "a"), second, second, false, nil, 3},
	} {
		got, repeated, err := access.NewKeys(pool).Once(t.Context(), step.request, adds(t, pool, step.answer))
		if diff := cmp.Diff(step.want, got); diff != "" || repeated != step.repeated || !errors.Is(err, step.err) {
			t.Errorf("%s: repeated %v, %v (-want +got):\n%s", step.name, repeated, err, diff)
		}
		if got := count(t, pool); got != step.done {
			t.Errorf("%s: done %d times, want %d", step.name, got, step.done)
		}
	}
	if _, err := pool.Exec(t.Context(), `UPDATE forge_idempotency_keys SET created_at = now() - interval '2 days' WHERE key = 'l'`); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		n, err := access.NewKeys(tx).Prune(t.Context(), time.Now().Add(-access.MinKeyRetention), 10)
		if n != 1 {
			t.Errorf("pruned %d", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Of concurrent requests with the same key one runs the work, and all get its
// response.
func TestConcurrentRepeatsRunWorkOnce(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	answer := access.KeyedResponse{Status: 201, Body: []byte("{}")}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				got, _, err := access.NewKeys(pool).Once(t.Context(), request("ci", "k", "a"), adds(t, pool, answer))
				if errors.Is(err, access.ErrKeyBusy) {
					continue // as its caller would
				}
				if err != nil || got.Status != 201 {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
		})
	}
	all.Wait()
	if got := count(t, pool); got != 1 {
		t.Errorf("done %d times", got)
	}
}

// A repeated request does not wait forever, and a first request that dies leaves
// nothing behind.
func TestRepeatWaitsForFirstAndRunsAfterItDies(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	answer := access.KeyedResponse{Status: 201, Body: []byte("{}")}
	dying, die := context.WithCancel(t.Context())
	got, _, err := access.NewKeys(pool).Once(dying, request("ci", "k", "a"), func(ctx context.Context) access.KeyedResponse {
		if _, _, err := access.NewKeys(pool).Once(ctx, request("ci", "k", "a"), adds(t, pool, answer)); !errors.Is(err, access.ErrKeyBusy) {
			t.Errorf("meanwhile: %v", err)
		}
		adds(t, pool, answer)(ctx)
		die()
		return answer
	})
	if err == nil || got.Status != 0 || count(t, pool) != 0 {
		t.Fatalf("%+v, %v, done %d times", got, err, count(t, pool))
	}
	if _, repeated, err := access.NewKeys(pool).Once(t.Context(), request("ci", "k", "a"), adds(t, pool, answer)); err != nil || repeated || count(t, pool) != 1 {
		t.Errorf("afterwards: repeated %v, %v, done %d times", repeated, err, count(t, pool))
	}
}

// The effects of OnceNonTx's work are visible before it ends, and the work runs at
// most once.
func TestOnceNonTxRunsWorkAtMostOnce(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	good := access.KeyedResponse{Status: 200, Body: []byte(`{"took_ms":7}`)}
	again := func() (access.KeyedResponse, bool, error) {
		return access.NewKeys(pool).OnceNonTx(t.Context(), request("ci", "k", "a"), func(context.Context) access.KeyedResponse { t.Error("it is done again"); return good })
	}
	does := func(r access.KeyedRequest, answer access.KeyedResponse) (access.KeyedResponse, bool, error) {
		return access.NewKeys(pool).OnceNonTx(t.Context(), r, func(ctx context.Context) access.KeyedResponse {
			if _, err := pool.Exec(ctx, `INSERT INTO done VALUES ('it')`); err != nil {
				t.Error(err)
			}
			if _, _, err := access.NewKeys(pool).OnceNonTx(ctx, r, func(context.Context) access.KeyedResponse { t.Error("it is done twice"); return good }); !errors.Is(err, access.ErrKeyBusy) {
				t.Errorf("meanwhile: %v", err)
			}
			return answer
		})
	}
	for _, step := range []struct {
		name   string
		answer access.KeyedResponse
	}{{"is refused", access.KeyedResponse{Status: 409}}, {"is done", good}} {
		got, repeated, err := does(request("ci", "k", "a"), step.answer)
		if diff := cmp.Diff(step.answer, got); diff != "" || repeated || err != nil {
			t.Errorf("%s: repeated %v, %v (-want +got):\n%s", step.name, repeated, err, diff)
		}
	}
	if got, repeated, err := again(); !cmp.Equal(good, got) || !repeated || err != nil {
		t.Errorf("the repeat: %+v, repeated %v, %v", got, repeated, err)
	}
	if _, _, err := access.NewKeys(pool).OnceNonTx(t.Context(), request("ci", "k", "b"), nil); !errors.Is(err, access.ErrKeyReused) {
		t.Errorf("another request: %v", err)
	}
	if got, _, err := does(request("ci", "fails", "a"), access.KeyedResponse{Status: 503}); got.Status != 503 || err != nil {
		t.Errorf("that fails: %+v, %v", got, err)
	}
	if _, _, err := access.NewKeys(pool).Once(t.Context(), request("ci", "fails", "a"), nil); !errors.Is(err, access.ErrKeyBusy) {
		t.Errorf("after a failure of which nobody knows what it did: %v", err)
	}
	if got := count(t, pool); got != 3 {
		t.Errorf("done %d times", got)
	}
}
