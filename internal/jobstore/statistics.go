package jobstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// grownBlocks is by how many blocks, 2 MB, river_job has to grow until it is analyzed.
const grownBlocks = 256

// grownSQL is whether river_job has more than twice the blocks that it had when its statistics
// were last written, and changes of a row for each new block were committed since: the statistics
// would show no row of a transaction that still inserts. Without the right to analyze the table,
// the server would log a warning each time.
var grownSQL = strings.ReplaceAll(`
SELECT blocks > 2 * relpages + @blocks AND pg_stat_get_mod_since_analyze(oid) >= blocks - relpages AND pg_has_role(relowner, 'USAGE')
FROM (SELECT oid, relpages, relowner, pg_relation_size(oid) / current_setting('block_size')::bigint AS blocks
      FROM pg_class
      WHERE oid = 'river_job'::regclass) AS jobs`, "@blocks", strconv.Itoa(grownBlocks))

// analyzeSQL does nothing if autovacuum is at it.
const analyzeSQL = `ANALYZE (SKIP_LOCKED) river_job`

// AnalyzeGrown analyzes river_job if it has grown to more than twice its size, so that no
// connection keeps plans for the small table: these read all of it. Autovacuum comes once a minute
// at the earliest. AnalyzeGrown does nothing if this role does not own the table. It reports
// whether it has analyzed.
func (s *Store) AnalyzeGrown(ctx context.Context) (grown bool, err error) {
	if err = s.db.QueryRow(ctx, grownSQL).Scan(&grown); err == nil && grown {
		_, err = s.db.Exec(ctx, analyzeSQL)
	}
	if err != nil {
		return false, fmt.Errorf("analyze the jobs: %w", err)
	}
	return grown, nil
}
