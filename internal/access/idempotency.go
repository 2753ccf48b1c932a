package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// MinKeyRetention is the minimum time for which a response is stored.
const MinKeyRetention = 24 * time.Hour

var (
	// ErrKeyReused means that the key was used for another request.
	ErrKeyReused = errors.New("the key was used for another request")
	// ErrKeyBusy means that a request with the key is running, or that its outcome
	// is unknown.
	ErrKeyBusy = errors.New("a request with the key is being carried out")
)

// KeyedRequest is a request with an idempotency key.
type KeyedRequest struct {
	// Caller is the owner of the key: each caller has its own keys. A Caller must
	// never identify two callers, not even at different times.
	Caller, Key string
	// Digest is the SHA-256 of the request.
	Digest [32]byte
}

// KeyedResponse is the response to a request.
type KeyedResponse struct {
	Status   int
	Location string
	Body     []byte
}

// succeeded reports whether the request succeeded.
func (a KeyedResponse) succeeded() bool { return a.Status >= 200 && a.Status < 300 }

// A repeated request waits for the first one for this long; then it gets
// ErrKeyBusy.
const lockTimeoutSQL = `SELECT set_config('lock_timeout', '1s', true)`

const resetLockTimeoutSQL = `SET LOCAL lock_timeout TO DEFAULT`

const claimSQL = `
INSERT INTO forge_idempotency_keys (caller, key, digest) VALUES ($1, $2, $3)
ON CONFLICT (caller, key) DO NOTHING`

const releaseSQL = `DELETE FROM forge_idempotency_keys WHERE caller = $1 AND key = $2`

const saveSQL = `UPDATE forge_idempotency_keys SET status = $3, location = $4, body = $5 WHERE caller = $1 AND key = $2`

const savedResponseSQL = `SELECT digest, status, location, body FROM forge_idempotency_keys WHERE caller = $1 AND key = $2`

const pruneKeysSQL = `
DELETE FROM forge_idempotency_keys
WHERE (caller, key) IN (SELECT caller, key FROM forge_idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)`

// Keys are the idempotency keys of a database.
type Keys struct{ db postgres.DB }

// NewKeys returns the idempotency keys of a database.
func NewKeys(db postgres.DB) *Keys { return &Keys{db} }

// Once returns the stored response to the request, or runs work and returns its
// response. Work must do everything in the transaction of its context; see
// [postgres.RequestDB]. A response that is not a success rolls the transaction back and is not stored, so that a repeated
// request runs work again. Once returns ErrKeyReused or ErrKeyBusy without running
// work.
func (k *Keys) Once(ctx context.Context, r KeyedRequest, work func(ctx context.Context) KeyedResponse) (answer KeyedResponse, repeated bool, err error) {
	tx, err := k.db.Begin(ctx)
	if err != nil {
		return KeyedResponse{}, false, fmt.Errorf("begin a transaction for an idempotency key: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after a commit
	taken, err := claim(ctx, tx, r)
	switch {
	case err != nil:
		return KeyedResponse{}, false, err
	case !taken:
		answer, err = savedResponse(ctx, tx, r)
	default:
		if answer = work(postgres.WithTx(ctx, tx)); !answer.succeeded() {
			return answer, false, nil
		}
		err = save(ctx, tx, r, answer)
	}
	if err != nil {
		return KeyedResponse{}, !taken, err
	}
	if err := tx.Commit(ctx); err != nil {
		return KeyedResponse{}, false, fmt.Errorf("commit a transaction with an idempotency key: %w", err)
	}
	return answer, !taken, nil
}

// OnceNonTx is Once for work whose effects must be visible before it ends, and that
// therefore runs outside the key's transaction. The key is stored first, so work
// runs at most once. If work is rejected with a status below 500, the key is
// released. If its outcome is unknown, because it failed or its node died, the key
// stays taken and repeated requests get ErrKeyBusy.
func (k *Keys) OnceNonTx(ctx context.Context, r KeyedRequest, work func(ctx context.Context) KeyedResponse) (answer KeyedResponse, repeated bool, err error) {
	taken := false
	err = pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) (err error) {
		if taken, err = claim(ctx, tx, r); err == nil && !taken {
			answer, err = savedResponse(ctx, tx, r)
		}
		return err
	})
	if err != nil || !taken {
		return answer, err == nil, err
	}
	answer = work(ctx)
	// The outcome is stored even if the caller has disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, k.db, func(tx pgx.Tx) error {
		switch {
		case answer.succeeded():
			return save(ctx, tx, r, answer)
		case answer.Status < 500:
			_, err := tx.Exec(ctx, releaseSQL, r.Caller, r.Key)
			return err
		default:
			return nil
		}
	})
	if err != nil {
		return KeyedResponse{}, false, fmt.Errorf("complete an idempotency key: %w", err)
	}
	return answer, false, nil
}

// saveTimeout bounds storing an outcome.
const saveTimeout = 5 * time.Second

func save(ctx context.Context, tx pgx.Tx, r KeyedRequest, answer KeyedResponse) error {
	if _, err := tx.Exec(ctx, saveSQL, r.Caller, r.Key, answer.Status, answer.Location, answer.Body); err != nil {
		return fmt.Errorf("store a response: %w", err)
	}
	return nil
}

// claim returns false if the key has a row.
func claim(ctx context.Context, tx pgx.Tx, r KeyedRequest) (bool, error) {
	if _, err := tx.Exec(ctx, lockTimeoutSQL); err != nil {
		return false, fmt.Errorf("claim an idempotency key: %w", err)
	}
	tag, err := tx.Exec(ctx, claimSQL, r.Caller, r.Key, r.Digest[:])
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "55P03" { // lock_not_available
		return false, ErrKeyBusy
	}
	if err == nil {
		_, err = tx.Exec(ctx, resetLockTimeoutSQL)
	}
	if err != nil {
		return false, fmt.Errorf("claim an idempotency key: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// savedResponse returns the stored response to the request. It may be returned only
// after the synchronous replicas have it, for which tx must commit.
func savedResponse(ctx context.Context, tx pgx.Tx, r KeyedRequest) (KeyedResponse, error) {
	var a KeyedResponse
	var digest []byte
	err := tx.QueryRow(ctx, savedResponseSQL, r.Caller, r.Key).Scan(&digest, &a.Status, &a.Location, &a.Body)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // removed in the meantime
		return KeyedResponse{}, ErrKeyBusy
	case err != nil:
		return KeyedResponse{}, fmt.Errorf("look up an idempotency key: %w", err)
	case !bytes.Equal(digest, r.Digest[:]):
		return KeyedResponse{}, ErrKeyReused
	case a.Status == 0: // claimed by OnceNonTx
		return KeyedResponse{}, ErrKeyBusy
	}
	return a, postgres.Confirm(ctx, tx)
}

// Prune deletes at most limit keys that are older than before, the oldest first.
func (k *Keys) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, k.db, "prune idempotency keys", pruneKeysSQL, before, limit)
}
