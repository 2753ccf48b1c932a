package cronstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// More crons than one statement changes are applied together or not at all.
func TestApplyInPages(t *testing.T) {
	t.Parallel()
	const many = 12_000
	pool := pgtest.Pool(t)
	crons := map[string]cronstore.Spec{}
	for i := range many {
		crons[fmt.Sprintf("cron-%05d", i)] = spec("@daily")
	}
	count := func(where string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_crons WHERE `+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	failed := errors.New("the limits cannot be written")
	_, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{
		Hash: "none", NodeID: "n1", Crons: crons, Also: func(context.Context, pgx.Tx) error { return failed },
	}, false)
	if !errors.Is(err, failed) || count("true") != 0 {
		t.Errorf("%v, %d crons", err, count("true"))
	}
	apply(t, pool, "one", crons, false)
	if n := count("removed_at IS NULL AND next_tick IS NOT NULL"); n != many {
		t.Errorf("%d crons", n)
	}
	for i := range many {
		name := fmt.Sprintf("cron-%05d", i)
		switch i % 3 {
		case 0:
			delete(crons, name)
		case 1:
			crons[name] = spec("@hourly")
		}
	}
	outcome := apply(t, pool, "two", crons, false)
	if len(outcome.Removed) != many/3 || len(outcome.Changed) != many/3 || len(outcome.Added) != 0 {
		t.Errorf("%d removed, %d changed, %d added", len(outcome.Removed), len(outcome.Changed), len(outcome.Added))
	}
	// All changes of one configuration have one time.
	if count("removed_at IS NOT NULL") != many/3 || count("spec->>'schedule' = '@hourly'") != many/3 ||
		count("updated_at = (SELECT max(updated_at) FROM forge_crons)") != 2*many/3 {
		t.Error("the rows are not what was applied")
	}
}
