package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// A row may represent a range of ticks, and a backfilled tick is older than its
// row.
const pruneTicksSQL = `
WITH due AS MATERIALIZED (
    SELECT cron, tick
    FROM forge_cron_ticks t
    WHERE tick < $1 AND coalesce(last_tick, tick) < $1 AND recorded_at < $1 AND verdict <> 'queued'
      AND tick >= $3 AND tick < $4
      AND tick < (SELECT max(tick) FROM forge_cron_ticks WHERE cron = t.cron)
    ORDER BY tick
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
DELETE FROM forge_cron_ticks t
USING due
WHERE t.cron = due.cron AND t.tick = due.tick AND t.tick >= $3 AND t.tick < $4`

// The ticks of a partition (%[1]s) that have to be kept when it is dropped: the
// rows that pruneTicksSQL would keep. All are found through indexes. $2 are the crons
// without newer ticks. Rows that were recorded or settled recently are kept as
// well: they are late.
const stayingSQL = `
    SELECT ctid FROM %[1]s WHERE verdict = 'queued'
    UNION
    SELECT ctid FROM %[1]s WHERE last_tick IS NOT NULL AND last_tick >= $1
    UNION
    SELECT ctid FROM %[1]s WHERE recorded_at - tick > interval '1 hour' AND recorded_at >= $1
    UNION
    SELECT (SELECT ctid FROM %[1]s WHERE cron = newest.cron ORDER BY tick DESC LIMIT 1)
    FROM unnest($2::text[]) AS newest (cron)`

const keepTicksSQL = `
INSERT INTO %[2]s
SELECT * FROM %[1]s WHERE ctid = ANY (ARRAY (` + stayingSQL + `))`

const countStayingSQL = `SELECT count(*) FROM (` + stayingSQL + `) AS staying`

// The crons of a partition without ticks from $1 on, which is the end of the
// dropped partitions. The query skips from cron to cron: there are far fewer crons
// than ticks.
const quietCronsSQL = `
WITH RECURSIVE crons AS (
    (SELECT cron FROM %[1]s ORDER BY cron LIMIT 1)
    UNION ALL
    SELECT (SELECT t.cron FROM %[1]s t WHERE t.cron > crons.cron ORDER BY t.cron LIMIT 1)
    FROM crons
    WHERE crons.cron IS NOT NULL
)
SELECT coalesce(array_agg(cron), '{}')
FROM crons
WHERE cron IS NOT NULL
  AND (SELECT true FROM forge_cron_ticks t WHERE t.cron = crons.cron AND t.tick >= $1 LIMIT 1) IS NULL`

// A configuration is over when the next one is in force. forge_config_history keeps the hashes, so
// that none is applied again by itself.
const pruneConfigsSQL = `
DELETE FROM forge_config
WHERE hash IN (
    SELECT c.hash FROM forge_config AS c
    WHERE c.applied_at < (SELECT max(applied_at) FROM forge_config WHERE applied_at < $1)
    ORDER BY c.applied_at
    LIMIT $2)`

// PruneConfigs deletes at most limit configurations that were over before an instant.
func (s *Store) PruneConfigs(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune configurations", pruneConfigsSQL, before, limit)
}

// PruneTicks deletes at most limit ticks from From (inclusive) to To (exclusive) that were
// due before an instant, by their key: a ctid is not unique across partitions. Queued ticks
// and the newest of each cron are kept.
func (s *Store) PruneTicks(ctx context.Context, before, from, to time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune ticks", pruneTicksSQL, before, limit, from, to)
}

// StayingTicks returns how many ticks of a partition have to be kept when it is dropped
// together with all until end, and the crons whose newest tick is in it. No other cron can be
// added before the partition is dropped: only new ticks are inserted, and no newer ticks are
// deleted.
func (s *Store) StayingTicks(ctx context.Context, partition string, before, end time.Time) (kept int64, quiet []string, err error) {
	if err := s.db.QueryRow(ctx, fmt.Sprintf(quietCronsSQL, partition), end).Scan(&quiet); err != nil {
		return 0, nil, err
	}
	err = s.db.QueryRow(ctx, fmt.Sprintf(countStayingSQL, partition), before, quiet).Scan(&kept)
	return kept, quiet, err
}

// KeepTicks copies these ticks to another table. quiet are the crons that StayingTicks
// returned.
func (s *Store) KeepTicks(ctx context.Context, from, to string, before time.Time, quiet []string) (int64, error) {
	return postgres.Affected(ctx, s.db, "keep ticks", fmt.Sprintf(keepTicksSQL, from, to), before, quiet)
}
