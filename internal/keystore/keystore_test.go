package keystore_test

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

	"github.com/forge-scheduler/forge/internal/keystore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func request(caller, key, body string) keystore.Request {
	return keystore.Request{Caller: caller, Key: key, Digest: sha256.Sum256([]byte(body))}
}

// counter is what the requests of the tests change.
func counter(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Pool(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE done (what text)`); err != nil {
		t.Fatal(err)
	}
	return pool
}

func adds(t *testing.T, answer keystore.Answer) func(pgx.Tx) keystore.Answer {
	t.Helper()
	return func(tx pgx.Tx) keystore.Answer {
		if _, err := tx.Exec(t.Context(), `INSERT INTO done VALUES ('it')`); err != nil {
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

func TestOnce(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	first := keystore.Answer{Status: 201, Location: "/api/v1/jobs/1", Body: []byte(`{"id":1}`)}
	second := keystore.Answer{Status: 200, Body: []byte("{}")}
	for _, step := range []struct {
		name     string
		request  keystore.Request
		answer   keystore.Answer
		want     keystore.Answer
		repeated bool
		err      error
		done     int
	}{
		{"is refused", request("ci", "k", "a"), keystore.Answer{Status: 409}, keystore.Answer{Status: 409}, false, nil, 0},
		{"then fails", request("ci", "k", "a"), keystore.Answer{Status: 503}, keystore.Answer{Status: 503}, false, nil, 0},
		{"then succeeds", request("ci", "k", "a"), first, first, false, nil, 1},
		{"and is repeated", request("ci", "k", "a"), second, first, true, nil, 1},
		{"another request", request("ci", "k", "b"), second, keystore.Answer{}, true, keystore.ErrOther, 1},
		{"another's key", request("ann", "k", "b"), second, second, false, nil, 2},
		{"another key", request("ci", "l", "a"), second, second, false, nil, 3},
	} {
		got, repeated, err := keystore.Once(t.Context(), pool, step.request, adds(t, step.answer))
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
		n, err := keystore.Prune(t.Context(), tx, time.Now().Add(-keystore.Keep), 10)
		if n != 1 {
			t.Errorf("pruned %d", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Of repeats that come together one does it, and the others are answered alike.
func TestRepeatsThatComeTogether(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	answer := keystore.Answer{Status: 201, Body: []byte("{}")}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				got, _, err := keystore.Once(t.Context(), pool, request("ci", "k", "a"), adds(t, answer))
				if errors.Is(err, keystore.ErrBusy) {
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

// A repeat does not wait for ever, and a first that dies leaves nothing behind.
func TestRepeatWhileTheFirstHangsAndDies(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	answer := keystore.Answer{Status: 201, Body: []byte("{}")}
	dying, die := context.WithCancel(t.Context())
	got, _, err := keystore.Once(dying, pool, request("ci", "k", "a"), func(tx pgx.Tx) keystore.Answer {
		if _, _, err := keystore.Once(t.Context(), pool, request("ci", "k", "a"), adds(t, answer)); !errors.Is(err, keystore.ErrBusy) {
			t.Errorf("meanwhile: %v", err)
		}
		adds(t, answer)(tx)
		die()
		return answer
	})
	if err == nil || got.Status != 0 || count(t, pool) != 0 {
		t.Fatalf("%+v, %v, done %d times", got, err, count(t, pool))
	}
	if _, repeated, err := keystore.Once(t.Context(), pool, request("ci", "k", "a"), adds(t, answer)); err != nil || repeated || count(t, pool) != 1 {
		t.Errorf("afterwards: repeated %v, %v, done %d times", repeated, err, count(t, pool))
	}
}

// Work that stands apart is seen before it ends, and is done at most once.
func TestApart(t *testing.T) {
	t.Parallel()
	pool := counter(t)
	good := keystore.Answer{Status: 200, Body: []byte(`{"took_ms":7}`)}
	again := func() (keystore.Answer, bool, error) {
		return keystore.Apart(t.Context(), pool, request("ci", "k", "a"), func() keystore.Answer { t.Error("it is done again"); return good })
	}
	does := func(r keystore.Request, answer keystore.Answer) (keystore.Answer, bool, error) {
		return keystore.Apart(t.Context(), pool, r, func() keystore.Answer {
			if _, err := pool.Exec(t.Context(), `INSERT INTO done VALUES ('it')`); err != nil {
				t.Error(err)
			}
			if _, _, err := keystore.Apart(t.Context(), pool, r, func() keystore.Answer { t.Error("it is done twice"); return good }); !errors.Is(err, keystore.ErrBusy) {
				t.Errorf("meanwhile: %v", err)
			}
			return answer
		})
	}
	for _, step := range []struct {
		name   string
		answer keystore.Answer
	}{{"is refused", keystore.Answer{Status: 409}}, {"is done", good}} {
		got, repeated, err := does(request("ci", "k", "a"), step.answer)
		if diff := cmp.Diff(step.answer, got); diff != "" || repeated || err != nil {
			t.Errorf("%s: repeated %v, %v (-want +got):\n%s", step.name, repeated, err, diff)
		}
	}
	if got, repeated, err := again(); !cmp.Equal(good, got) || !repeated || err != nil {
		t.Errorf("the repeat: %+v, repeated %v, %v", got, repeated, err)
	}
	if _, _, err := keystore.Apart(t.Context(), pool, request("ci", "k", "b"), nil); !errors.Is(err, keystore.ErrOther) {
		t.Errorf("another request: %v", err)
	}
	if got, _, err := does(request("ci", "fails", "a"), keystore.Answer{Status: 503}); got.Status != 503 || err != nil {
		t.Errorf("that fails: %+v, %v", got, err)
	}
	if _, _, err := keystore.Once(t.Context(), pool, request("ci", "fails", "a"), nil); !errors.Is(err, keystore.ErrBusy) {
		t.Errorf("after a failure of which nobody knows what it did: %v", err)
	}
	if got := count(t, pool); got != 3 {
		t.Errorf("done %d times", got)
	}
}
