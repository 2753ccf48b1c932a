package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// ErrTwoDatabases means that database.leader_url leads to another database than database.url:
// the roles of the cluster there would be taken.
var ErrTwoDatabases = errors.New("database.leader_url and database.url lead to two databases; want two addresses of one")

const (
	// failoverTimeout is the default Timeout of CheckLeaderURL: in a failover, two addresses may lead
	// to the old and to the new primary until the old one is stopped.
	failoverTimeout = 10 * time.Second
	// recheckInterval is the time between two comparisons of the addresses.
	recheckInterval = 250 * time.Millisecond

	lockSQL = `SELECT pg_try_advisory_xact_lock($1)`
)

// CheckLeaderURL returns ErrTwoDatabases if the addresses lead to two databases for as long as
// Timeout, or an error that wraps postgres.ErrUnreachable if the server of LeaderURL refuses the
// login. A server that does not answer is asked again for as long; after that, CheckLeaderURL
// returns nil, and the next connection reports the reason. It also returns nil if the server has no
// working locks, which the strategy Lease allows.
func CheckLeaderURL(ctx context.Context, options Options) error {
	options.Timeout = cmp.Or(options.Timeout, failoverTimeout)
	options = options.withDefaults()
	if options.LeaderURL == options.URL {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()
	var last error
	for {
		err := compareDatabases(ctx, options)
		if !errors.Is(err, errNoAnswer) {
			last = err
			if !errors.Is(err, ErrTwoDatabases) {
				return err
			}
		}
		if !watchdog.Sleep(ctx, recheckInterval) {
			return last
		}
	}
}

// errNoAnswer means that a server did not answer, which leaves open whether the databases differ.
var errNoAnswer = errors.New("no answer")

// compareDatabases returns ErrTwoDatabases, errNoAnswer, or an error of a refused login.
func compareDatabases(ctx context.Context, options Options) error {
	leaders, err := dialPrimary(ctx, options.LeaderURL)
	if err != nil {
		return cmp.Or(refusedLogin(err), errNoAnswer)
	}
	defer postgres.CloseNow(leaders)
	others, err := dialPrimary(ctx, options.URL)
	if err != nil {
		return withoutAnswer(err)
	}
	defer postgres.CloseNow(others)
	// Two transactions cannot have one lock, unless they are in two databases.
	if both, err := getSameLock(ctx, leaders, others); err != nil || !both {
		return withoutAnswer(err)
	}
	control, err := dialPrimary(ctx, options.URL)
	if err != nil {
		return withoutAnswer(err)
	}
	defer postgres.CloseNow(control)
	if both, err := getSameLock(ctx, others, control); err != nil || both {
		return withoutAnswer(err) // or the locks of the server exclude nobody
	}
	return ErrTwoDatabases
}

// withoutAnswer returns errNoAnswer, or nil if err is nil or an answer of the server: that it refuses
// the login, which the pool of database.url reports, or that it has no locks.
func withoutAnswer(err error) error {
	answer, answered := errors.AsType[*pgconn.PgError](err)
	if err == nil || answered && (refusesLogin(answer.Code) || !saysNothing(answer.Code)) {
		return nil
	}
	return errNoAnswer
}

// getSameLock reports whether two transactions get the same lock.
func getSameLock(ctx context.Context, first, second *pgx.Conn) (both bool, err error) {
	id := rand.Int64()
	err = pgx.BeginFunc(ctx, first, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockSQL, id); err != nil {
			return err
		}
		return second.QueryRow(ctx, lockSQL, id).Scan(&both)
	})
	return both, err
}

// refusedLogin returns an error if the server refuses the user, the password or the database.
func refusedLogin(err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !refusesLogin(refused.Code) {
		return nil
	}
	return fmt.Errorf("%w: %s; check the user, the password and the database in database.leader_url or "+
		"FORGE_DATABASE_LEADER_URL; see forge doctor", postgres.ErrUnreachable, refused.Message)
}
