package compactor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// nestedSQL makes a batch use the key's index, regardless of estimates.
	nestedSQL = `SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

	// byIndexSQL makes plans use indexes, even before a partition's first ANALYZE.
	byIndexSQL = `SELECT set_config('enable_seqscan', 'off', true)`
)

// Statements that delete individual rows in a span of time, $3 to $4.
const (
	// A row may represent a range of ticks, and a backfilled tick is older than its
	// row.
	ticksSQL = `
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

	metricsSQL = `
WITH due AS MATERIALIZED (
    SELECT metric, labels, at
    FROM forge_metrics_cluster
    WHERE at < $1 AND at >= $3 AND at < $4
    ORDER BY at
    LIMIT $2)
DELETE FROM forge_metrics_cluster m
USING due
WHERE m.metric = due.metric AND m.labels = due.labels AND m.at = due.at AND m.at >= $3 AND m.at < $4`
)

// lateTick is how long after its tick a row may be recorded without being in the
// index of late rows (forge_cron_ticks_late).
const lateTick = time.Hour

// The ticks of a partition (%[1]s) that have to be kept when it is dropped: the
// rows that ticksSQL would keep. All are found through indexes. $2 are the crons
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

// ticksThatStay returns the crons whose newest tick is in a partition. No other
// cron can be added before the partition is dropped: only new ticks are inserted,
// and no newer ticks are deleted.
func ticksThatStay(ctx context.Context, tx pgx.Tx, p Partition, before, end time.Time) (kept int64, known any, err error) {
	var quiet []string
	if err := tx.QueryRow(ctx, fmt.Sprintf(quietCronsSQL, p.Name), end).Scan(&quiet); err != nil {
		return 0, nil, err
	}
	err = tx.QueryRow(ctx, fmt.Sprintf(countStayingSQL, p.Name), before, quiet).Scan(&kept)
	return kept, quiet, err
}
