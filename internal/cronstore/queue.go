package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The oldest of each cron, and how many wait in all.
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

const settleSQL = `
UPDATE forge_cron_ticks AS t
SET verdict = u.verdict, reason = u.reason, job_id = nullif(u.job_id, 0), term = $5, node_id = $6, recorded_at = clock_timestamp(),
    lateness_ms = greatest(0, extract(epoch FROM clock_timestamp() - t.tick) * 1000)
FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $7::bigint[]) AS u (cron, tick, verdict, reason, job_id)
WHERE t.cron = u.cron AND t.tick = u.tick AND t.verdict = 'queued'`

const markReplacedSQL = `
UPDATE forge_cron_ticks SET verdict = 'replaced', reason = $2
WHERE job_id = ANY($1) AND verdict <> 'replaced'`

// Queue is what waits for its turn in one cron.
type Queue struct {
	// Oldest are the ticks that come first.
	Oldest []Tick
	// Length is how many wait in all.
	Length int
}

// Waiting returns the queues of those crons that have one, each with at most
// limit of its ticks.
func Waiting(ctx context.Context, tx pgx.Tx, crons []string, limit int) (map[string]Queue, error) {
	type row struct {
		tick   Tick
		length int
	}
	rows, err := collect(ctx, tx, func(r pgx.CollectableRow) (row, error) {
		var (
			raw   rawTick
			found row
		)
		err := r.Scan(append(raw.targets(), &found.length)...)
		found.tick = raw.decode()
		return found, err
	}, waitingSQL, crons, limit)
	if err != nil {
		return nil, fmt.Errorf("read queued ticks: %w", err)
	}
	queues := map[string]Queue{}
	for _, r := range rows {
		queue := queues[r.tick.Cron]
		queue.Oldest, queue.Length = append(queue.Oldest, r.tick), r.length
		queues[r.tick.Cron] = queue
	}
	return queues, nil
}

// Settle gives queued ticks their Verdict, Reason and JobID, in the name of a
// term.
func Settle(ctx context.Context, tx pgx.Tx, term int64, nodeID string, rows []Tick) error {
	n := len(rows)
	crons, ticks, verdicts, reasons := make([]string, n), make([]time.Time, n), make([]string, n), make([]string, n)
	jobs := make([]int64, n)
	for i, row := range rows {
		crons[i], ticks[i], verdicts[i], reasons[i], jobs[i] = row.Cron, row.Tick, string(row.Verdict), row.Reason, row.JobID
	}
	if _, err := tx.Exec(ctx, settleSQL, crons, ticks, verdicts, reasons, term, nodeID, jobs); err != nil {
		return fmt.Errorf("settle queued ticks: %w", err)
	}
	return nil
}

// MarkReplaced writes that the runs of jobs were cancelled, and why.
func MarkReplaced(ctx context.Context, tx pgx.Tx, jobs []int64, reason string) error {
	if _, err := tx.Exec(ctx, markReplacedSQL, jobs, reason); err != nil {
		return fmt.Errorf("mark replaced ticks: %w", err)
	}
	return nil
}
