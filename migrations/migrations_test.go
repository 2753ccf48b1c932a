package migrations_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestPool(t *testing.T) {
	pool := pgtest.Pool(t)
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from forge_leaders").Scan(&n); err != nil {
		t.Fatal(err)
	}
}
