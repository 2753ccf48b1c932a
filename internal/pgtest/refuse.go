package pgtest

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

const refuseSQL = `
CREATE FUNCTION refuse_large() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM changed) > %d THEN
        RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER refuse_large AFTER %s ON %s REFERENCING %s TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_large()`

// RefuseLargeUpdates has the server end each statement that updates more than so many rows
// of a table, as one that is too slow for them would be ended by its timeout.
func RefuseLargeUpdates(tb testing.TB, pool *pgxpool.Pool, table string, most int) {
	tb.Helper()
	refuseLarge(tb, pool, "UPDATE", table, "NEW", most)
}

// RefuseLargeDeletes does the same for statements that delete rows.
func RefuseLargeDeletes(tb testing.TB, pool *pgxpool.Pool, table string, most int) {
	tb.Helper()
	refuseLarge(tb, pool, "DELETE", table, "OLD", most)
}

func refuseLarge(tb testing.TB, pool *pgxpool.Pool, statement, table, rows string, most int) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), fmt.Sprintf(refuseSQL, most, statement, table, rows)); err != nil {
		tb.Fatal(err)
	}
}
