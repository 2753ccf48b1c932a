package rescue_test

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// Many claims are forgotten in several transactions. Claims whose jobs run are kept.
func TestManyClaimsAreForgottenInBatches(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const claims = 40_000
	running := c.running(t, "other", 1, "{}")
	c.exec(t, `INSERT INTO forge_claims (client_id, ids) SELECT 'other', ARRAY[i, i + 1] FROM generate_series(1000, 1000 + $1::int) AS i`, claims)
	c.exec(t, `INSERT INTO forge_claims (client_id, ids) VALUES ('other', ARRAY[$1, 999])`, running)
	pgtest.RefuseLargeDeletes(t, c.pool, "forge_claims", claims/3)
	c.lead(t, c.makeLeader(t, 1))
	c.waitFor(t, "the claims to be forgotten", func() bool {
		var all, kept int
		err := c.pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE $1 = ANY (ids)) FROM forge_claims`, running).Scan(&all, &kept)
		if err != nil {
			t.Fatal(err)
		}
		if kept == 0 {
			t.Fatal("the claim of a running job was forgotten")
		}
		return all == kept
	})
	c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE id = $1`, running)
	c.waitFor(t, "the last claim to be forgotten", func() bool {
		var left int
		if err := c.pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_claims`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	})
}
