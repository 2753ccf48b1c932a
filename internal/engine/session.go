package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	tryLockSQL = `SELECT pg_try_advisory_lock($1)`
	notifySQL  = `SELECT pg_notify($1, $2)`
	aliveSQL   = `SELECT 1`
	clockSQL   = `SELECT clock_timestamp()`

	// silence is the idle_session_timeout of the probe.
	silence = 100 * time.Millisecond
	// maxClockError is how far the server's clock may be from this machine's for its timers to be
	// tested.
	maxClockError = time.Minute
	// pause is the time between two tries.
	pause = 10 * time.Millisecond
	// renotify is the time after which a notification is sent again.
	renotify = 500 * time.Millisecond
	// answerTimeout bounds the test whether a session is alive.
	answerTimeout = 2 * time.Second
)

// keepsSession finds poolers in transaction mode, and servers that forget a setting. It
// tests database.url, too, where nodes listen.
func keepsSession(ctx context.Context, b *bench) (string, error) {
	found, err := keeps(ctx, b.LeaderURL)
	if err == nil && b.URL != b.LeaderURL {
		return keeps(ctx, b.URL)
	}
	return found, err
}

func keeps(ctx context.Context, url string) (string, error) {
	const kept = applicationName + "-kept"
	conn, err := dial(ctx, url)
	if err != nil {
		return "", err
	}
	defer postgres.CloseNow(conn)
	pooled, err := postgres.Settle(ctx, conn, map[string]string{"application_name": kept})
	if errors.Is(err, postgres.ErrTransactionPooler) {
		return "", lacks("a pooler in transaction mode gives a session to other clients between two statements")
	}
	if err != nil {
		return "", err
	}
	var name string
	if err := conn.QueryRow(ctx, `SELECT current_setting('application_name')`).Scan(&name); err != nil {
		return "", err
	}
	switch {
	case name != kept:
		return "", lacks("a setting of the session was lost by the next statement")
	case pooled:
		return "the state of a session lasts, through a pooler in session mode", nil
	default:
		return "the state of a session lasts", nil
	}
}

func locksSessions(ctx context.Context, b *bench) (string, error) {
	return pair(ctx, b.LeaderURL, func(first, second *pgx.Conn) (string, error) {
		id, err := excludes(ctx, first, second)
		if err != nil {
			return "", err
		}
		ended := time.Now()
		if err := first.PgConn().Conn().Close(); err != nil { // as the death of the process does
			return "", err
		}
		for got := false; !got; {
			if err := second.QueryRow(ctx, tryLockSQL, id).Scan(&got); err != nil {
				if ctx.Err() != nil {
					return "", lacks("the lock of a session was not free %s after its end", b.Timeout)
				}
				return "", err
			}
			if !got && !watchdog.Sleep(ctx, pause) {
				return "", lacks("the lock of a session was not free %s after its end", b.Timeout)
			}
		}
		return fmt.Sprintf("a second session gets the lock %s after the end of the first, not before", time.Since(ended).Round(time.Microsecond)), nil
	})
}

// excludes takes a lock in the first session and tests that the second does not get it. It
// returns the lock's id.
func excludes(ctx context.Context, first, second *pgx.Conn) (id int64, err error) {
	id = rand.Int64()
	var got, both bool
	if err := first.QueryRow(ctx, tryLockSQL, id).Scan(&got); err != nil {
		return 0, err
	}
	if !got {
		return 0, lacks("the server refuses a lock that nobody holds")
	}
	if err := second.QueryRow(ctx, tryLockSQL, id).Scan(&both); err != nil {
		return 0, err
	}
	if !both {
		return id, nil
	}
	// The lock was free if the first session had ended.
	if _, err := first.Exec(ctx, aliveSQL); err != nil {
		return 0, err
	}
	return 0, lacks("two sessions got the same lock: pg_try_advisory_lock always says yes")
}

func endsIdleSessions(ctx context.Context, b *bench) (string, error) {
	conn, err := dial(ctx, b.LeaderURL)
	if err != nil {
		return "", err
	}
	defer postgres.CloseNow(conn)
	settings := map[string]string{"idle_session_timeout": fmt.Sprint(silence.Milliseconds())}
	if _, err := postgres.Settle(ctx, conn, settings); err != nil {
		return "", err
	}
	if err := sameClock(ctx, conn); err != nil {
		return "", err
	}
	switch _, err := conn.WaitForNotification(ctx); {
	case err == nil:
		return "", errors.New("a notification arrived for which nobody listens")
	case ctx.Err() != nil && !conn.IsClosed():
		answering, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		if err := sameClock(answering, conn); err != nil {
			return "", err
		}
		return "", lacks("a session was silent for longer than its idle_session_timeout, and did not end")
	}
	return fmt.Sprintf("a session with an idle_session_timeout of %s was ended", silence), nil
}

// sameClock returns an error if the session does not answer, or if the server's clock is not
// this machine's: the server's timers run by its clock, and end late when that is set back.
func sameClock(ctx context.Context, conn *pgx.Conn) error {
	var at time.Time
	if err := conn.QueryRow(ctx, clockSQL).Scan(&at); err != nil {
		return err
	}
	if difference := time.Until(at).Abs(); difference > maxClockError {
		return fmt.Errorf("the clocks of the server and of this machine differ by %s", difference.Round(time.Second))
	}
	return nil
}

func notifies(ctx context.Context, b *bench) (string, error) {
	return pair(ctx, b.URL, func(first, second *pgx.Conn) (string, error) {
		took, err := arrives(ctx, first, second)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("one arrived after %s", took.Round(10*time.Microsecond)), nil
	})
}

// arrives listens in the first session and notifies in the second, repeatedly, until a
// notification arrives or ctx ends. It returns how long the last one took.
func arrives(ctx context.Context, first, second *pgx.Conn) (time.Duration, error) {
	channel := newName()
	if _, err := first.Exec(ctx, "LISTEN "+channel); err != nil {
		return 0, err
	}
	for began := time.Now(); ; {
		sent := time.Now()
		if _, err := second.Exec(ctx, notifySQL, channel, "probe"); err != nil {
			return 0, err
		}
		waiting, cancel := context.WithTimeout(ctx, renotify)
		_, err := first.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			return time.Since(sent), nil
		case waiting.Err() == nil || first.IsClosed():
			return 0, err
		case ctx.Err() != nil:
			if err := answers(ctx, first); err != nil {
				return 0, err
			}
			return 0, lacks("a notification of another session did not arrive within %s", time.Since(began).Round(time.Millisecond))
		}
	}
}

// answers returns an error if the session does not answer. A connection that is cut off
// receives no notification either.
func answers(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, aliveSQL)
	return err
}
