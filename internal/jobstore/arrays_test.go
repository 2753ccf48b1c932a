package jobstore

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// An empty array parameter is not NULL, in binary and in text.
func TestEmptyArraysAreNotNull(t *testing.T) {
	t.Parallel()
	url, now := pgtest.URL(t), time.Now()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		pool := pgtest.ConnectBy(t, url, mode)
		for name, test := range map[string]struct {
			ids  ids
			at   instants
			want int
		}{
			"empty": {ids{}, instants{}, 0},
			"full":  {ids{7, 8}, instants{nil, &now}, 2},
		} {
			var n, times int
			err := pool.QueryRow(t.Context(), `SELECT cardinality($1::bigint[]), cardinality($2::timestamptz[])`, test.ids, test.at).Scan(&n, &times)
			if err != nil || n != test.want || times != test.want {
				t.Errorf("%s, mode %v: %d and %d elements, want %d: %v", name, mode, n, times, test.want, err)
			}
		}
	}
}
