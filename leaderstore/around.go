package leaderstore

import (
	"context"
	"fmt"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// aroundSQL reads a term, the term before it and the term after it; without a term, the newest
// two.
const aroundSQL = `
SELECT ` + tenureColumns + `
FROM (
    (SELECT * FROM forge_leader_history WHERE role = $1 AND term <= coalesce(nullif($2::bigint, 0), 9223372036854775807) ORDER BY term DESC LIMIT 2)
    UNION ALL
    (SELECT * FROM forge_leader_history WHERE role = $1 AND $2::bigint > 0 AND term > $2 ORDER BY term LIMIT 1)
) AS h
ORDER BY term`

// Around returns a term of a role with the tenure before it and the tenure after it, oldest
// first, as far as they exist. Term 0 means the newest one. The term itself is not among them
// if the history does not have it.
func (s *Store) Around(ctx context.Context, role string, term int64) ([]Tenure, error) {
	tenures, err := postgres.Collect(ctx, s.db, scanTenure, aroundSQL, role, term)
	if err != nil {
		return nil, fmt.Errorf("read the tenures around term %d of %s: %w", term, role, err)
	}
	return tenures, nil
}

// Leader returns the row of a role, and false if there is none.
func (s *Store) Leader(ctx context.Context, role string) (Leader, bool, error) {
	return postgres.First(ctx, s.db, "read the leader of "+role, scanLeader, leaderSQL, role)
}
