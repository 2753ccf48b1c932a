package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The oldest queued ticks of each cron, and the number of all its queued ticks.
const waitingSQL = `
SELECT ` + tickColumns + `, n.waiting
FROM unnest($1::text[]) AS c (name)
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting FROM forge_cron_ticks WHERE cron = c.name AND verdict = 'queued'
) AS n
CROSS JOIN LATERAL (
    SELECT * FROM forge_cron_ticks WHERE cron = c.name AND verdict = 'queued' ORDER BY tick LIMIT $2
) AS t
ORDER BY t.cron, t.tick`

// The ids of jobs are taken in the order of the ticks.
const settleSQL = `
UPDATE forge_cron_ticks AS t
SET verdict = u.verdict, reason = u.reason, job_id = u.job_id, term = $5, node_id = $6, recorded_at = clock_timestamp(),
    lateness_ms = greatest(0, extract(epoch FROM clock_timestamp() - t.tick) * 1000)
FROM (SELECT cron, tick, verdict, reason, CASE WHEN fires THEN nextval('river_job_id_seq') END AS job_id
      FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $7::boolean[]) AS r (cron, tick, verdict, reason, fires)) AS u
WHERE t.cron = u.cron AND t.tick = u.tick AND t.verdict = 'queued'
RETURNING t.cron, t.tick, coalesce(t.job_id, 0)`

const markReplacedSQL = `
UPDATE forge_cron_ticks SET verdict = 'replaced', reason = $2
WHERE job_id = ANY($1) AND verdict <> 'replaced'`

// Queue holds the queued ticks of one cron.
type Queue struct {
	// Oldest are the ticks that run first.
	Oldest []Tick
	// Length is the number of all queued ticks.
	Length int
}

// QueueWaiting adds a statement to a batch that reads the queues of the crons that
// have one, each with at most limit ticks.
func QueueWaiting(batch *pgx.Batch, crons []string, limit int, queues map[string]Queue) {
	batch.Queue(waitingSQL, crons, limit).Query(func(rows pgx.Rows) error {
		var (
			tick   Tick
			length int
		)
		_, err := pgx.ForEachRow(rows, append(tick.targets(), &length), func() error {
			tick.BlockedBy = blockerOf(tick.Reason)
			queues[tick.Cron] = Queue{Oldest: append(queues[tick.Cron].Oldest, tick), Length: length}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read queued ticks: %w", err)
		}
		return nil
	})
}

// QueueSettle adds a statement to a batch that sets the Verdict and Reason of
// queued ticks in a term, and the job ids of those that fire.
func QueueSettle(batch *pgx.Batch, term int64, nodeID string, rows []Tick, written Written) {
	n := len(rows)
	crons, ticks, verdicts, reasons := make([]string, n), make([]time.Time, n), make([]string, n), make([]string, n)
	fires := make([]bool, n)
	for i, row := range rows {
		crons[i], ticks[i], verdicts[i], reasons[i], fires[i] = row.Cron, row.Tick, string(row.Verdict), row.Reason, row.Verdict.Fires()
	}
	written.queue(batch, "settle queued ticks", settleSQL, crons, ticks, verdicts, reasons, term, nodeID, fires)
}

// MarkReplaced records that the runs of jobs were cancelled, and why.
func (s *Store) MarkReplaced(ctx context.Context, jobs []int64, reason string) error {
	if _, err := s.db.Exec(ctx, markReplacedSQL, jobs, reason); err != nil {
		return fmt.Errorf("mark replaced ticks: %w", err)
	}
	return nil
}
