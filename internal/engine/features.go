package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// oldest is the first major version of PostgreSQL that forge supports.
const oldest = 14

const (
	serverSQL = `SELECT current_setting('server_version_num'), current_setting('transaction_read_only') = 'on', pg_is_in_recovery()`

	leaseColumns = `role text PRIMARY KEY, term bigint NOT NULL, holder text NOT NULL, lease_until timestamptz NOT NULL, UNIQUE (role, term)`
	grantSQL     = `INSERT INTO %s VALUES ('probe', 1, 'first', clock_timestamp() + interval '1 hour')`
	// As forge does: a lease ends by the server's clock.
	takeOverSQL = `
UPDATE %s SET term = term + 1, holder = 'second', lease_until = clock_timestamp() + interval '1 hour'
WHERE role = 'probe' AND lease_until <= clock_timestamp()`
	shortenSQL = `UPDATE %s SET lease_until = clock_timestamp() + interval '20 milliseconds' WHERE term = 1`
	fenceSQL   = `SELECT count(*) FROM (SELECT 1 FROM %s WHERE role = 'probe' AND term = 1 FOR KEY SHARE) AS held`
	nextSQL    = `UPDATE %s SET term = term + 1, holder = 'second' WHERE role = 'probe'`
	waitSQL    = `SET LOCAL lock_timeout = '200ms'`

	claimSQL = `SELECT id FROM %s ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED`
)

// writable tests the server of database.url, and of database.leader_url if it is another.
func writable(ctx context.Context, b *bench) (string, error) {
	for _, url := range []string{b.URL, b.LeaderURL} {
		conn, err := dial(ctx, url)
		if err != nil {
			return "", err
		}
		defer postgres.CloseNow(conn)
		var readOnly, replica bool
		if err := conn.QueryRow(ctx, serverSQL).Scan(nil, &readOnly, &replica); err != nil {
			return "", err
		}
		switch {
		case replica:
			return "", lacks("the server is a replica")
		case readOnly:
			return "", lacks("transactions are read-only by default")
		}
	}
	return "the server accepts writes", nil
}

func version(ctx context.Context, b *bench) (string, error) {
	conn, err := dial(ctx, b.URL)
	if err != nil {
		return "", err
	}
	defer postgres.CloseNow(conn)
	var number string
	if err := conn.QueryRow(ctx, serverSQL).Scan(&number, nil, nil); err != nil {
		return "", err
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return "", lacks("server_version_num is %q, not a number", number)
	}
	if n/10000 < oldest {
		return "", lacks("the server follows PostgreSQL %d; forge needs %d or newer", n/10000, oldest)
	}
	return fmt.Sprintf("the server follows PostgreSQL %d", n/10000), nil
}

func leases(ctx context.Context, b *bench) (string, error) {
	return b.withTable(ctx, leaseColumns, func(first, second *pgx.Conn, table string) (string, error) {
		if _, err := first.Exec(ctx, fmt.Sprintf(grantSQL, table)); err != nil {
			return "", err
		}
		early, err := second.Exec(ctx, fmt.Sprintf(takeOverSQL, table))
		if err != nil {
			return "", err
		}
		if early.RowsAffected() > 0 {
			return "", lacks("a lease of an hour was over at once")
		}
		if _, err := first.Exec(ctx, fmt.Sprintf(shortenSQL, table)); err != nil {
			return "", err
		}
		for {
			taken, err := second.Exec(ctx, fmt.Sprintf(takeOverSQL, table))
			if err != nil {
				return "", err
			}
			if taken.RowsAffected() > 0 {
				break
			}
			if !watchdog.Sleep(ctx, pause) {
				return "", lacks("a lease of 20 ms did not end within %s", b.Timeout)
			}
		}
		var held int
		if err := first.QueryRow(ctx, fmt.Sprintf(fenceSQL, table)).Scan(&held); err != nil {
			return "", err
		}
		if held > 0 {
			return "", lacks("the first holder still has the term that another has taken over")
		}
		return "a second holder takes over after the end of the lease, and the first one's term is over", nil
	})
}

func fences(ctx context.Context, b *bench) (string, error) {
	return b.withTable(ctx, leaseColumns, func(first, second *pgx.Conn, table string) (string, error) {
		if _, err := first.Exec(ctx, fmt.Sprintf(grantSQL, table)); err != nil {
			return "", err
		}
		writing, err := first.Begin(ctx)
		if err != nil {
			return "", err
		}
		var held int
		if err := writing.QueryRow(ctx, fmt.Sprintf(fenceSQL, table)).Scan(&held); err != nil {
			return "", err
		}
		switch blocked, err := blocks(ctx, second, fmt.Sprintf(nextSQL, table)); {
		case err != nil:
			return "", err
		case !blocked:
			return "", lacks("the next term began during a transaction that holds the fence")
		}
		if err := writing.Commit(ctx); err != nil {
			return "", err
		}
		if _, err := second.Exec(ctx, fmt.Sprintf(nextSQL, table)); err != nil {
			return "", err
		}
		if err := first.QueryRow(ctx, fmt.Sprintf(fenceSQL, table)).Scan(&held); err != nil {
			return "", err
		}
		if held > 0 {
			return "", lacks("the fence of an old term still holds")
		}
		return "the next term waits for the leader's transaction, and then fences its writes", nil
	})
}

// blocks reports whether another transaction keeps a statement waiting.
func blocks(ctx context.Context, conn *pgx.Conn, sql string) (bool, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, waitSQL); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, sql)
	if is(err, lockNotAvailable) {
		return true, nil
	}
	return false, err
}

func skipsLocked(ctx context.Context, b *bench) (string, error) {
	return b.withTable(ctx, `id int PRIMARY KEY`, func(first, second *pgx.Conn, table string) (string, error) {
		if _, err := first.Exec(ctx, "INSERT INTO "+table+" VALUES (1), (2)"); err != nil {
			return "", err
		}
		var claimed [2]int
		for i, conn := range []*pgx.Conn{first, second} {
			tx, err := conn.Begin(ctx)
			if err != nil {
				return "", err
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if _, err := tx.Exec(ctx, waitSQL); err != nil {
				return "", err
			}
			err = tx.QueryRow(ctx, fmt.Sprintf(claimSQL, table)).Scan(&claimed[i])
			if is(err, lockNotAvailable) {
				return "", lacks("a claim waits for another instead of skipping its row")
			}
			if err != nil {
				return "", err
			}
		}
		if claimed[0] == claimed[1] {
			return "", lacks("two transactions claimed the same row")
		}
		return "two transactions claim different rows", nil
	})
}

func rollsBackDDL(ctx context.Context, b *bench) (string, error) {
	return pair(ctx, b.URL, func(first, second *pgx.Conn) (string, error) {
		table, err := b.place(ctx, first, "TABLE")
		if err != nil {
			return "", err
		}
		tx, err := first.Begin(ctx)
		if err != nil {
			return "", err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		for _, sql := range []string{"CREATE TABLE " + table + " (id int)", "ALTER TABLE " + table + " ADD COLUMN name text"} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return "", err
			}
		}
		if err := tx.Rollback(ctx); err != nil {
			return "", err
		}
		var exists bool
		if err := second.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, table).Scan(&exists); err != nil {
			return "", err
		}
		if exists {
			return "", lacks("a table of a transaction that was rolled back is still there")
		}
		return "a table of a transaction that was rolled back is gone", nil
	})
}

func checksPartialIndexes(ctx context.Context, b *bench) (string, error) {
	return b.withTable(ctx, `id int, done boolean NOT NULL`, func(first, second *pgx.Conn, table string) (string, error) {
		for _, sql := range []string{
			"CREATE UNIQUE INDEX ON " + table + " (id) WHERE NOT done",
			"INSERT INTO " + table + " VALUES (1, false), (1, true), (1, true)",
		} {
			if _, err := first.Exec(ctx, sql); err != nil {
				return "", err
			}
		}
		_, err := second.Exec(ctx, "INSERT INTO "+table+" VALUES (1, false)")
		switch {
		case is(err, uniqueViolation):
			return "a second row is refused where the index applies, and only there", nil
		case err == nil:
			return "", lacks("a second row was accepted")
		default:
			return "", err
		}
	})
}

func firesTriggers(ctx context.Context, b *bench) (string, error) {
	return b.withTable(ctx, `id int, seen text`, func(first, second *pgx.Conn, table string) (string, error) {
		function, err := b.place(ctx, first, "FUNCTION")
		if err != nil {
			return "", err
		}
		for _, sql := range []string{
			strings.ReplaceAll(`CREATE FUNCTION NAME() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN NEW.seen := 'by the trigger'; RETURN NEW; END $$`, "NAME", function),
			"CREATE TRIGGER probe BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION " + function + "()",
			"INSERT INTO " + table + " VALUES (1, NULL)",
		} {
			if _, err := first.Exec(ctx, sql); err != nil {
				return "", err
			}
		}
		var seen *string
		if err := second.QueryRow(ctx, "SELECT seen FROM "+table).Scan(&seen); err != nil {
			return "", err
		}
		if seen == nil {
			return "", lacks("the trigger did not run")
		}
		return "a trigger changes the row that is inserted", nil
	})
}
