// Package keystore owns forge_idempotency_keys: it lets a request that carries a
// key take effect once, however often it is repeated and on whichever nodes.
//
// The key's row, what the request changes and the answer to it are one
// transaction. A node that dies before its end leaves neither an effect nor a
// row, and the repeat does it; after its end the repeat is answered from the row.
// Of two that arrive together the unique key makes the second wait for the first.
package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/dbpool"
)

// Keep is how long an answer is good for at least.
const Keep = 24 * time.Hour

var (
	// ErrOther says that the key was used for another request.
	ErrOther = errors.New("the key was used for another request")
	// ErrBusy says that a request with the key is being carried out, or that nobody
	// knows what came of it.
	ErrBusy = errors.New("a request with the key is being carried out")
)

// Request is what a key stands for.
type Request struct {
	// Caller is whose key it is: each has keys of their own. It must name no two callers,
	// not even one after the other.
	Caller, Key string
	// Digest is the SHA-256 of what is asked.
	Digest [32]byte
}

// Answer is what a request was answered.
type Answer struct {
	Status   int
	Location string
	Body     []byte
}

// good says whether the answer is of something that was done.
func (a Answer) good() bool { return a.Status >= 200 && a.Status < 300 }

// Beginner starts transactions: a pool or a connection.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// A repeat waits so long for the first; then it is told to come again.
const patienceSQL = `SELECT set_config('lock_timeout', '1s', true)`

const impatienceSQL = `SET LOCAL lock_timeout TO DEFAULT`

const takeSQL = `
INSERT INTO forge_idempotency_keys (caller, key, digest) VALUES ($1, $2, $3)
ON CONFLICT (caller, key) DO NOTHING`

const undoSQL = `DELETE FROM forge_idempotency_keys WHERE caller = $1 AND key = $2`

const answerSQL = `UPDATE forge_idempotency_keys SET status = $3, location = $4, body = $5 WHERE caller = $1 AND key = $2`

const knownSQL = `SELECT digest, status, location, body FROM forge_idempotency_keys WHERE caller = $1 AND key = $2`

const pruneSQL = `
DELETE FROM forge_idempotency_keys
WHERE (caller, key) IN (SELECT caller, key FROM forge_idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)`

// Once returns the answer that the request had before, or else that of work. Work
// gets the transaction in which it has to do everything; an answer that is not a
// success undoes it and is not kept, for the repeat to try anew. It returns
// ErrOther and ErrBusy where work is not done.
func Once(ctx context.Context, db Beginner, r Request, work func(tx pgx.Tx) Answer) (answer Answer, repeated bool, err error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return Answer{}, false, fmt.Errorf("begin with an idempotency key: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing after a commit
	taken, err := take(ctx, tx, r)
	switch {
	case err != nil:
		return Answer{}, false, err
	case !taken:
		answer, err = known(ctx, tx, r)
	default:
		if answer = work(tx); !answer.good() {
			return answer, false, nil
		}
		err = keep(ctx, tx, r, answer)
	}
	if err != nil {
		return Answer{}, !taken, err
	}
	if err := tx.Commit(ctx); err != nil {
		return Answer{}, false, fmt.Errorf("commit with an idempotency key: %w", err)
	}
	return answer, !taken, nil
}

// Apart is Once for work that others must see before it ends, and that therefore
// stands beside the key's transaction. The key is taken first: work is done at most
// once. Where it is refused, with a status below 500, the key is free again; where
// nobody knows what came of it, because it failed or its node died, the key stays
// taken and repeats get ErrBusy.
func Apart(ctx context.Context, db Beginner, r Request, work func() Answer) (answer Answer, repeated bool, err error) {
	taken := false
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		if taken, err = take(ctx, tx, r); err == nil && !taken {
			answer, err = known(ctx, tx, r)
		}
		return err
	})
	if err != nil || !taken {
		return answer, err == nil, err
	}
	answer = work()
	// The outcome is written for a caller who has gone, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apartTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		switch {
		case answer.good():
			return keep(ctx, tx, r, answer)
		case answer.Status < 500:
			_, err := tx.Exec(ctx, undoSQL, r.Caller, r.Key)
			return err
		default:
			return nil
		}
	})
	if err != nil {
		return Answer{}, false, fmt.Errorf("end with an idempotency key: %w", err)
	}
	return answer, false, nil
}

// apartTimeout is how long an outcome waits for the database.
const apartTimeout = 5 * time.Second

func keep(ctx context.Context, tx pgx.Tx, r Request, answer Answer) error {
	if _, err := tx.Exec(ctx, answerSQL, r.Caller, r.Key, answer.Status, answer.Location, answer.Body); err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return nil
}

// take is false when the key has a row.
func take(ctx context.Context, tx pgx.Tx, r Request) (bool, error) {
	if _, err := tx.Exec(ctx, patienceSQL); err != nil {
		return false, fmt.Errorf("take an idempotency key: %w", err)
	}
	tag, err := tx.Exec(ctx, takeSQL, r.Caller, r.Key, r.Digest[:])
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == "55P03" { // lock_not_available
		return false, ErrBusy
	}
	if err == nil {
		_, err = tx.Exec(ctx, impatienceSQL)
	}
	if err != nil {
		return false, fmt.Errorf("take an idempotency key: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// known is the answer that the request had. Nobody gets it before the synchronous
// replicas have it, for which tx must commit.
func known(ctx context.Context, tx pgx.Tx, r Request) (Answer, error) {
	var a Answer
	var digest []byte
	err := tx.QueryRow(ctx, knownSQL, r.Caller, r.Key).Scan(&digest, &a.Status, &a.Location, &a.Body)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // removed just now
		return Answer{}, ErrBusy
	case err != nil:
		return Answer{}, fmt.Errorf("look an idempotency key up: %w", err)
	case !bytes.Equal(digest, r.Digest[:]):
		return Answer{}, ErrOther
	case a.Status == 0: // taken by [Apart]
		return Answer{}, ErrBusy
	}
	return a, dbpool.Confirm(ctx, tx)
}

// Prune deletes at most limit keys from before an instant, the oldest first.
func Prune(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
	tag, err := tx.Exec(ctx, pruneSQL, before, limit)
	return tag.RowsAffected(), err
}
